"""The conformance vectors of map documents, computed with 60 decimal digits from `docs/map-format.md` alone.

Run it to add a file for a new document in `DOCUMENTS`, or anew where vectors were added; documents that are there
already keep their bytes. It shares no arithmetic with the product: what it writes is the truth, rounded once::

    python tests/conformance_vectors.py
"""

from __future__ import annotations

import hmac
import json
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, localcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

FOLDER = Path(__file__).parent.parent / "conformance"
DIGITS = Context(prec=60, Emin=-999999, Emax=999999)
RELATIVE = 1e-12
LOWEST, HIGHEST = 1e-7, 1 - 1e-7
TINY, BELOW_ONE = 2.0**-1022, 1 - 2.0**-53

Segments = Mapping[str, str] | None
Content = dict[str, Any]

# --- the truth ----------------------------------------------------------------------------------------------


def logit(p: Decimal) -> Decimal:
    return p.ln() - (1 - p).ln()


def sigmoid(z: Decimal) -> Decimal:
    return 1 / (1 + (-max(z, Decimal(-700))).exp())


def prior(q: Decimal, parameters: Content) -> Decimal:
    if "positive_weight" in parameters:
        return q / (q + Decimal(parameters["positive_weight"]) * (1 - q))
    return q / (q + (1 - q) / Decimal(parameters["negative_sampling_rate"]))


def curve(x: Decimal, xs: list[float], ys: list[float], end_slope: int) -> Decimal:
    i = bisect_right([Decimal(value) for value in xs], x)
    if i in (0, len(xs)):
        end = 0 if i == 0 else -1
        return Decimal(ys[end]) + end_slope * (x - Decimal(xs[end]))
    x0, x1, y0, y1 = (Decimal(value) for value in (xs[i - 1], xs[i], ys[i - 1], ys[i]))
    return y0 + (x - x0) * (y1 - y0) / (x1 - x0)


FAMILIES: Mapping[str, Callable[[Decimal, Content], Decimal]] = {
    "identity": lambda q, _: q,
    "prior": prior,
    "intercept": lambda q, p: sigmoid(logit(q) + Decimal(p["intercept"])),
    "temperature": lambda q, p: sigmoid(logit(q) / Decimal(p["temperature"])),
    "platt": lambda q, p: sigmoid(logit(q) * Decimal(p["slope"]) + Decimal(p["intercept"])),
    "tracking": lambda q, p: sigmoid(logit(q) * Decimal(p["slope"]) + Decimal(p["intercept"])),
    "beta": lambda q, p: sigmoid(q.ln() * Decimal(p["a"]) - (1 - q).ln() * Decimal(p["b"]) + Decimal(p["c"])),
    "isotonic": lambda q, p: curve(q, p["scores"], p["values"], 0),
    "girb": lambda q, p: curve(q, p["scores"], p["values"], 0),
    "cir": lambda q, p: sigmoid(curve(logit(q), p["logits"], p["served_logits"], 1)),
}


def rounded(p: Decimal) -> float:
    return min(max(float(p), TINY), BELOW_ONE)


def entry_for(table: Content, segments: Segments) -> Content | None:
    """The entry of the finest cut that has one."""
    cuts = {}
    for key, entry in table.items():
        pairs = [tuple(part.split("=")) for part in key.split(",")]
        cuts.setdefault(tuple(name for name, _ in pairs), {})[tuple(value for _, value in pairs)] = entry
    for names in sorted(cuts, key=lambda names: (-len(names), [plain(name) for name in names])):
        values = tuple(coded((segments or {}).get(plain(name), "")) for name in names)
        if values in cuts[names]:
            return dict(cuts[names][values])
    return None


def coded(value: str) -> str:
    text = unicodedata.normalize("NFC", value).strip()[:64].rstrip() or "__missing__"
    return text.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")


def plain(text: str) -> str:
    return text.replace("%2C", ",").replace("%3D", "=").replace("%25", "%")


def exact(content: Content, score: Decimal, segments: Segments) -> Decimal:
    q = min(max(score, Decimal(LOWEST)), Decimal(HIGHEST))
    served = FAMILIES[content["family"]](q, content["parameters"])
    entry = entry_for(content["segments"], segments)
    if entry is not None:
        # A score that float64 cannot tell from 0 or 1 is served as the nearest it can.
        served = min(max(served, Decimal(TINY)), Decimal(BELOW_ONE))
        served = sigmoid(logit(served) * Decimal(entry.get("slope", 1)) + Decimal(entry["offset"]))
    return served


def truth(content: Content, score: float, segments: Segments) -> float:
    """What a document serves, to the nearest float64 inside (0, 1)."""
    with localcontext(DIGITS):
        return rounded(exact(content, Decimal(score), segments))


def class_truth(contents: list[Content | None], scores: list[float], segments: Segments) -> list[float]:
    """What the maps of several classes serve; None is a class without one."""
    with localcontext(DIGITS):
        raw = [Decimal(score) / sum(map(Decimal, scores)) for score in scores]
        served = [p if c is None else exact(c, p, segments) for c, p in zip(contents, raw, strict=True)]
        return [float(p / sum(served)) for p in served]


# --- documents ----------------------------------------------------------------------------------------------

_SCORES = [0.0008, 0.0031, 0.011, 0.03, 1 / 15, 0.15, 0.3, 0.62, 0.87]
_VALUES = [0.0005, 0.0044, 0.0044, 0.021, 0.08, 0.08, 0.25, 0.5, 0.81]
_DENSE = [float(x) for x in np.linspace(-15.9, 15.9, 280)]
_TABLE = {
    "country=GB": {"offset": 0.5},
    "country=DE": {"offset": -0.25, "slope": 0.8},
    "country=GB,device=ios": {"offset": -1.0},
    "country=__missing__": {"offset": 0.0625},
    "device=web": {"offset": 0.125},
    "city=a%2Cb%3D%25,device=ios": {"offset": 0.75},
    "city=Málaga": {"offset": -0.75, "slope": 1.25},
}
DOCUMENTS: Mapping[str, tuple[str, Content, Content]] = {
    "identity": ("identity", {}, {}),
    "prior_rate": ("prior", {"negative_sampling_rate": 0.01}, {}),
    "prior_weight": ("prior", {"positive_weight": 30.0}, {}),
    "prior_huge": ("prior", {"positive_weight": 1e300}, {}),
    "intercept": ("intercept", {"intercept": -0.4366}, {}),
    "intercept_far": ("intercept", {"intercept": -2000.0}, {}),
    "temperature": ("temperature", {"temperature": 1.1630217858890926}, {}),
    "temperature_steep": ("temperature", {"temperature": 0.02}, {}),
    "platt": ("platt", {"slope": 0.60314, "intercept": 0.00871}, {}),
    "platt_steep": ("platt", {"slope": 16.0, "intercept": 3.0}, {}),
    "beta": ("beta", {"a": 0.7907249, "b": 0.6919384, "c": -0.2045015}, {}),
    "beta_one_sided": ("beta", {"a": 0.0, "b": 1.5, "c": 0.3}, {}),
    "isotonic": ("isotonic", {"scores": _SCORES, "values": _VALUES}, {}),
    "girb": ("girb", {"scores": _SCORES[::2], "values": _VALUES[::2]}, {}),
    "cir": (
        "cir",
        {"logits": [-7.25, -4.5, -4.375, -1.0, 0.1, 3.0], "served_logits": [-6.5, -4.875, -3.75, -1.0625, -0.3, 2.2]},
        {},
    ),
    "cir_one_knot": ("cir", {"logits": [0.25], "served_logits": [-3.0]}, {}),
    "cir_dense": ("cir", {"logits": _DENSE, "served_logits": [0.7 * x + 0.3 for x in _DENSE]}, {}),
    "tracking": ("tracking", {"slope": 0.93, "intercept": 0.21}, {}),
    "segments_platt": ("platt", {"slope": 0.9, "intercept": -0.2}, _TABLE),
    "segments_isotonic": ("isotonic", {"scores": _SCORES, "values": _VALUES}, _TABLE),
    "segments_long": ("identity", {}, {f"country={'x' * 63}": {"offset": 1.5}}),
    "segments_far": ("intercept", {"intercept": 900.0}, {"country=GB": {"offset": -1.0}}),
}

ENDS = [0.0, 5e-324, 1e-9, 1e-7, 1.1e-7, 1e-6, 1e-3, 0.3, 0.5, 0.7, 1 - 1e-6, 1 - 1e-7, 1 - 2.0**-53, 1.0]
ROWS: tuple[Segments, ...] = (
    None,
    {},
    {"country": "GB"},
    {"country": "GB", "device": "ios"},
    {"country": "GB", "device": "web"},
    {"country": "DE", "device": "tv", "colour": "red"},
    {"country": "FR"},
    {"country": "FR", "device": "web"},
    {"country": "gb", "device": "tv"},
    {"country": "  GB\n"},
    {"country": "", "device": "web"},
    {"country": "FR", "city": "Ma\u0301laga"},
    {"country": "FR", "city": "a,b=%", "device": "ios"},
    {"country": "__other__"},
    {"country": "x" * 63 + " yz"},  # cut after the space
    {"country": "G" * 80},
)


def canonical(content: Content) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sealed(content: Content) -> str:
    """The document as text, with its hash."""
    rest = {name: value for name, value in content.items() if name != "hash"}
    return canonical({**rest, "hash": f"sha256:{sha256(canonical(rest)).hexdigest()}"}).decode()


def content_of(family: str, parameters: Content, segments: Content) -> Content:
    return {
        "schema_version": 1,
        "model": "clicks/7",
        "version": 12,
        "family": family,
        "parameters": parameters,
        "segments": segments,
        "fit_window": {"from_ms": 1_360_800_000_000, "to_ms": 1_362_000_000_000},
        "counts": {"n": 12_345, "positives": 2_345},
        "evidence": {"gain": 5.25, "holdout_n": 420.0},
        "parent": 11,
        "at_ms": 1_362_000_000_000,
        "product_version": "0.1.0",
    }


def scores_for(content: Content) -> list[float]:
    """The ends, knots with their neighbours, and a few scores over all magnitudes."""
    knots = np.array(content["parameters"].get("scores", []))
    logits = np.array(content["parameters"].get("logits", []))[:8]
    knots = np.concatenate([knots, 1 / (1 + np.exp(-logits))])
    near = np.concatenate([knots, np.nextafter(knots, 0), np.nextafter(knots, 1)])
    spread = 1 / (1 + np.exp(-np.random.default_rng(7).normal(-2, 5, 30).round(3)))
    return [*ENDS, *near.tolist(), *spread.tolist()]


def vectors(content: Content) -> list[Content]:
    rows: list[tuple[float, Segments]] = [(score, None) for score in scores_for(content)]
    if content["segments"]:
        rows += [(score, segments) for segments in ROWS for score in (0.0, 1e-4, 0.0044, 0.3, 0.95, 1.0)]
    return [vector(content, score, segments) for score, segments in rows]


def vector(content: Content, score: float, segments: Segments) -> Content:
    served = truth(content, score, segments)
    given = {} if segments is None else {"segments": dict(segments)}
    return {"score": score, "score_hex": score.hex(), **given, "served": served, "served_hex": served.hex()}


def refused() -> list[Content]:
    """Documents that a reader must not apply, and why."""
    platt = content_of("platt", {"slope": 0.5, "intercept": 0.0}, {})
    good = sealed(platt)
    changes: list[tuple[str, Content]] = [
        ("a family this version does not know", {"family": "spline"}),
        ("a later schema", {"schema_version": 2}),
        ("a slope of 0 erases the ranking", {"parameters": {"slope": 0.0, "intercept": 0.0}}),
        ("a parameter is missing", {"parameters": {"slope": 0.5}}),
        ("a parameter too many", {"parameters": {"slope": 0.5, "intercept": 0.0, "gain": 1.0}}),
        ("a list where a number belongs", {"parameters": {"slope": [0.5], "intercept": 0.0}}),
        ("a rate above 1", {"family": "prior", "parameters": {"negative_sampling_rate": 1.5}}),
        ("a temperature of 0", {"family": "temperature", "parameters": {"temperature": 0.0}}),
        ("a falling term", {"family": "beta", "parameters": {"a": -0.1, "b": 1.0, "c": 0.0}}),
        ("no term", {"family": "beta", "parameters": {"a": 0.0, "b": 0.0, "c": 0.0}}),
        ("knots that do not ascend", {"family": "girb", "parameters": {"scores": [0.2, 0.2], "values": [0.1, 0.3]}}),
        ("values that fall", {"family": "isotonic", "parameters": {"scores": [0.1, 0.2], "values": [0.3, 0.2]}}),
        ("one value for all", {"family": "isotonic", "parameters": {"scores": [0.1, 0.2], "values": [0.3, 0.3]}}),
        ("a value of 1", {"family": "isotonic", "parameters": {"scores": [0.1, 0.2], "values": [0.3, 1.0]}}),
        ("a knot beyond the clip", {"family": "isotonic", "parameters": {"scores": [0.0, 0.2], "values": [0.3, 0.4]}}),
        ("lists of two lengths", {"family": "girb", "parameters": {"scores": [0.1, 0.2, 0.3], "values": [0.3, 0.4]}}),
        ("no knots", {"family": "cir", "parameters": {"logits": [], "served_logits": []}}),
        ("a flat", {"family": "cir", "parameters": {"logits": [0.0, 1.0], "served_logits": [0.0, 0.0]}}),
        ("a segment without an offset", {"segments": {"country=GB": {"slope": 0.5}}}),
        ("a segment with a slope of 0", {"segments": {"country=GB": {"offset": 0.5, "slope": 0.0}}}),
        ("a segment that names no value", {"segments": {"country": {"offset": 0.5}}}),
        ("a segment with a dimension twice", {"segments": {"country=GB,country=DE": {"offset": 0.5}}}),
        ("a segment value that is not trimmed", {"segments": {"country= GB": {"offset": 0.5}}}),
        ("a segment value that is not NFC", {"segments": {"city=Ma\u0301laga": {"offset": 0.5}}}),
        ("a percent code for what needs none", {"segments": {"country=%47B": {"offset": 0.5}}}),
        ("a field this version does not know", {"note": "x"}),
    ]
    return [
        {"why": "not JSON", "document": good[:-1]},
        {"why": "no object", "document": "[]"},
        {"why": "changed after it was sealed", "document": good.replace('"slope":0.5', '"slope":0.6')},
        {"why": "a hash of another kind", "document": good.replace("sha256:", "md5:")},
        *({"why": why, "document": sealed({**platt, **change})} for why, change in changes),
    ]


CLASSES: Mapping[str, str | None] = {"7": "platt", "ant": "segments_platt", "b/c": None, "10": "isotonic"}
"""Class to the document of its map; names that a language might put in another order."""


def class_vectors() -> Content:
    contents = [None if name is None else content_of(*DOCUMENTS[name]) for name in CLASSES.values()]
    documents = {}
    for name, content in zip(CLASSES, contents, strict=True):
        if content is not None:
            documents[name] = sealed({**content, "model": f"animals/{name}"})
    rows = np.random.default_rng(12).dirichlet([0.4] * len(CLASSES), 25).round(6).tolist()
    rows += [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.3, 0.3, 0.3, 0.3], [1e-300, 1e-300, 0.0, 1e-300], [1.0] * 4]
    items: list[Content] = []
    for scores in rows:
        for segments in (None, {"country": "GB", "device": "ios"}):
            given = {} if segments is None else {"segments": segments}
            items.append({"scores": scores, **given, "served": class_truth(contents, scores, segments)})
    head = {"format": 1, "kind": "classes", "classes": list(CLASSES), "documents": documents}
    return {**head, "relative_tolerance": RELATIVE, "items": items}


SECRETS = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210")
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(32))


def hmac_signature(secret: str, message: bytes) -> Content:
    key = secret.encode()
    key_id = hmac.new(key, b"streamcal key id", sha256).hexdigest()[:16]
    return {"algorithm": "hmac-sha256", "key_id": key_id, "value": hmac.new(key, message, sha256).hexdigest()}


def ed25519_signature(private: Ed25519PrivateKey, message: bytes) -> Content:
    key_id = sha256(b"streamcal key id" + private.public_key().public_bytes_raw()).hexdigest()[:16]
    return {"algorithm": "ed25519", "key_id": key_id, "value": private.sign(message).hex()}


def signed() -> list[Content]:
    """Records, and whether a reader that holds the keys of the file takes them."""
    content = json.loads(
        sealed(content_of("platt", {"slope": 0.5, "intercept": 0.25}, {"city=Málaga": {"offset": 1.0}}))
    )
    key = content["model"]

    def record(signature: Content, key: str = key, **change: Any) -> tuple[str, str]:
        return key, canonical({**content, **change, "signature": signature}).decode()

    message = key.encode() + b"\n" + canonical(content)
    shadow = f"{key}#shadow"
    by_secret, by_key = hmac_signature(SECRETS[0], message), ed25519_signature(PRIVATE, message)
    other = json.loads(sealed({**content, "version": 13}))
    cases = [
        ("signed by the secret", True, record(by_secret)),
        ("signed by the other secret", True, record(hmac_signature(SECRETS[1], message))),
        ("signed by the key", True, record(by_key)),
        (
            "a candidate under its own key",
            True,
            record(hmac_signature(SECRETS[0], shadow.encode() + b"\n" + canonical(content)), shadow),
        ),
        ("a candidate's signature under the model's key", False, record(by_secret, shadow)),
        ("not signed", False, (key, canonical(content).decode())),
        ("signed by a stranger", False, record(ed25519_signature(STRANGER, message))),
        ("a stranger under an accepted name", False, record({**by_key, "value": STRANGER.sign(message).hex()})),
        ("the signature of another version", False, record(by_secret, version=13, hash=other["hash"])),
        ("a signature of the document alone", False, record(hmac_signature(SECRETS[0], canonical(content)))),
        ("one digit changed", False, record({**by_secret, "value": f"{int(by_secret['value'], 16) ^ 1:064x}"})),
        ("cut short", False, record({**by_key, "value": by_key["value"][:64]})),
        ("the algorithm of the other key", False, record({**by_secret, "algorithm": "ed25519"})),
        ("an unknown algorithm", False, record({**by_secret, "algorithm": "rot13"})),
        ("capital digits", False, record({**by_secret, "value": by_secret["value"].upper()})),
        ("null", False, (key, canonical({**content, "signature": None}).decode())),
    ]
    return [{"why": why, "accepted": taken, "key": at, "document": text} for why, taken, (at, text) in cases]


def written(content: Content) -> str:
    lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in content.pop("items"))
    head = json.dumps(content, ensure_ascii=False, indent=1)
    return head[:-2] + f',\n "items": [\n{lines}\n]\n}}\n'


def files() -> dict[str, str]:
    """Every file's text; documents already written are taken as they are."""
    texts = {"refused.json": written({"format": 1, "kind": "refused", "items": refused()})}
    texts["classes.json"] = written(class_vectors())
    keys = [*SECRETS, PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()]
    texts["signed.json"] = written({"format": 1, "kind": "signed", "keys": keys, "items": signed()})
    for name, parts in DOCUMENTS.items():
        path = FOLDER / f"{name}.json"
        text = json.loads(path.read_text())["document"] if path.exists() else sealed(content_of(*parts))
        content = {"format": 1, "kind": "apply", "document": text, "relative_tolerance": RELATIVE}
        texts[path.name] = written({**content, "items": vectors(json.loads(text))})
    return texts


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
