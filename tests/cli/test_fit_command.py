"""`streamcal fit`: files of every kind, families, segments, and errors that say where."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from streamcal.cli.fit import Family
from streamcal.errors import MapDocumentError
from streamcal.maps.document import MapDocument, decode
from streamcal.maps.families import FAMILIES
from streamcal.runtime.config import load_config
from streamcal.runtime.wiring import engine_settings
from streamcal.transform import CalibrationTransformer, FileSource
from streamcal.transform.keys import read_verifier

Streamcal = Callable[..., Any]
Row = dict[str, Any]
N = 12_000
START_MS = 1_362_000_000_000
COUNTRIES = {"GB": 0.6, "FR": -0.6, "DE": 0.0}


def logit(p: Any) -> Any:
    return np.log(p / (1 - p))


def made(slope: float = 0.6, intercept: float = -0.3, seed: int = 5) -> list[Row]:
    rng = np.random.default_rng(seed)
    x = rng.normal(-1.5, 1.2, N).round(6)
    country = rng.choice(list(COUNTRIES), N)
    z = slope * x + intercept + np.array([COUNTRIES[name] for name in country])
    y = rng.random(N) < 1 / (1 + np.exp(-z))
    return [
        {"ts": START_MS + 60_000 * i, "score": p, "label": int(label), "country": name}
        for i, (p, label, name) in enumerate(zip((1 / (1 + np.exp(-x))).tolist(), y.tolist(), country, strict=True))
    ]


ROWS = made()


def write(path: Path, rows: Sequence[Row]) -> Path:
    names = list(rows[0])
    if path.name.endswith(".parquet"):
        parquet.write_table(pa.Table.from_pylist(list(rows)), path)
        return path
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        if ".csv" in path.name:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def document(path: Path) -> MapDocument:
    return decode(path.read_bytes())


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r.csv", "r.csv.gz", "r.parquet"])
def test_every_kind_of_file_gives_the_same_map(streamcal: Streamcal, tmp_path: Path, name: str) -> None:
    file, output = write(tmp_path / name, ROWS), tmp_path / "map.json"
    said = streamcal("fit", file, "--output", output, "--time", "ts", "--model", "clicks/7")
    assert said.code == 0, said.err
    found = document(output)
    x, y = logit(np.array([row["score"] for row in ROWS])), np.array([row["label"] for row in ROWS])
    oracle = LogisticRegression(C=1e9).fit(x[:, None], y)
    assert found.parameters["slope"] == pytest.approx(oracle.coef_[0, 0], abs=2e-3)
    assert found.parameters["intercept"] == pytest.approx(oracle.intercept_[0], abs=2e-3)
    assert (found.model, found.version, found.at_ms) == ("clicks/7", 1, ROWS[-1]["ts"])
    assert (found.counts.n, found.counts.positives) == (N, int(y.sum()))
    assert found.fit_window is not None
    assert (found.fit_window.from_ms, found.fit_window.to_ms) == (START_MS, ROWS[-1]["ts"] + 1)


def test_the_report_judges_a_map_of_the_older_rows_on_the_newest(streamcal: Streamcal, tmp_path: Path) -> None:
    shuffled = [ROWS[i] for i in np.random.default_rng(2).permutation(N)]
    output = tmp_path / "map.json"
    said = streamcal("fit", write(tmp_path / "r.jsonl", shuffled), "-o", output, "--time", "ts", "--holdout", "0.25")
    cut = N - N // 4
    x, y = logit(np.array([row["score"] for row in ROWS])), np.array([row["label"] for row in ROWS])
    model = LogisticRegression(C=1e9).fit(x[:cut, None], y[:cut])
    before = log_loss(y[cut:], 1 / (1 + np.exp(-x[cut:])))
    after = log_loss(y[cut:], model.predict_proba(x[cut:, None])[:, 1])
    row = next(line.split() for line in said.out.splitlines() if line.split()[:1] == ["log_loss"])
    assert [float(cell) for cell in row[1:3]] == pytest.approx([before, after], abs=3e-4)
    assert "the newest 25% by time" in said.out
    assert document(output).evidence["gain"] == pytest.approx((before - after) * (N - cut), abs=0.5)
    assert next(line.split() for line in said.out.splitlines() if line.split()[:1] == ["n"])[1:] == [
        "3,000", "3,000", "12,000", "12,000",
    ]  # fmt: skip


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "prior"])
def test_every_family_lowers_the_log_loss_of_rows_it_has_not_seen(
    streamcal: Streamcal, tmp_path: Path, family: str
) -> None:
    rows = made(0.6, 0.0 if family == "temperature" else -0.3)
    said = streamcal(
        "fit", write(tmp_path / "r.jsonl", rows), "-o", tmp_path / "m.json", "--time", "ts", "--family", family
    )
    assert said.code == 0, said.err
    found = document(tmp_path / "m.json")
    assert found.family == family
    if family == "identity":
        assert "does not lower" in said.err
    else:
        assert found.evidence["gain"] > 0
        assert said.err == ""


def test_the_command_offers_every_family() -> None:
    assert {family.value for family in Family} == set(FAMILIES)


def test_a_prior_takes_its_parameter_from_the_command_line(streamcal: Streamcal, tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", ROWS)
    said = streamcal("fit", file, "-o", tmp_path / "m.json", "--family", "prior", "--negative-sampling-rate", "0.5")
    assert said.code == 0, said.err
    found = document(tmp_path / "m.json")
    assert found.parameters == {"negative_sampling_rate": 0.5}
    assert (found.fit_window, found.counts.n) == (None, 0)
    assert streamcal("fit", file, "-o", tmp_path / "n.json", "--family", "prior").code == 1
    assert streamcal("fit", file, "-o", tmp_path / "n.json", "--positive-weight", "2").code == 2


def test_segments_get_offsets_that_lower_the_loss_further(streamcal: Streamcal, tmp_path: Path) -> None:
    rows = [{**row, "geo": {"country": row["country"]}, "device": "web"} for row in ROWS]
    file = write(tmp_path / "r.jsonl", rows)
    plain = streamcal("fit", file, "-o", tmp_path / "plain.json", "--time", "ts")
    said = streamcal(
        "fit",
        file,
        "-o",
        tmp_path / "m.json",
        "--time",
        "ts",
        "--segment",
        "country=geo.country",
        "--segment",
        "device",
    )
    assert (plain.code, said.code) == (0, 0), said.err
    found = document(tmp_path / "m.json")
    assert found.evidence["gain"] > document(tmp_path / "plain.json").evidence["gain"] + 30
    offsets = {name: found.segments[f"country={name}"]["offset"] for name in COUNTRIES}
    apart = {name: offsets[name] - offsets["DE"] for name in COUNTRIES}
    assert apart == pytest.approx({"GB": 0.6, "FR": -0.6, "DE": 0.0}, abs=0.12)
    # the one device of a country says nothing that the country does not: it is served by that
    assert set(found.segments) == {f"country={name}" for name in COUNTRIES}


def test_a_weight_counts_a_row_as_often(streamcal: Streamcal, tmp_path: Path) -> None:
    weights = np.random.default_rng(9).integers(0, 4, N).tolist()
    weighted = write(tmp_path / "w.jsonl", [{**row, "w": w} for row, w in zip(ROWS, weights, strict=True)])
    repeated = write(tmp_path / "r.jsonl", [row for row, w in zip(ROWS, weights, strict=True) for _ in range(w)])
    assert streamcal("fit", weighted, "-o", tmp_path / "w.json", "--weight", "w").code == 0
    assert streamcal("fit", repeated, "-o", tmp_path / "r.json").code == 0
    one, other = document(tmp_path / "w.json").parameters, document(tmp_path / "r.json").parameters
    assert one == pytest.approx(other, abs=3e-3)


def test_other_labels_and_times_are_told_by_options(streamcal: Streamcal, tmp_path: Path) -> None:
    at = [f"2013-02-27T{i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}Z" for i in range(N)]
    rows = [
        {"p": row["score"], "y": "fraud" if row["label"] else "ok", "at": text}
        for row, text in zip(ROWS, at, strict=True)
    ]
    options = ("--score", "p", "--label", "y", "--positive", "fraud", "--negative", "ok", "--time", "at")
    said = streamcal(
        "fit", write(tmp_path / "r.csv", rows), "-o", tmp_path / "m.json", *options, "--time-unit", "rfc3339"
    )
    assert said.code == 0, said.err
    assert document(tmp_path / "m.json").counts.positives == sum(row["label"] for row in ROWS)


def test_the_document_is_a_map_of_day_0(streamcal: Streamcal, tmp_path: Path) -> None:
    assert streamcal("fit", write(tmp_path / "r.jsonl", ROWS), "-o", tmp_path / "m.json").code == 0
    config = tmp_path / "c.yaml"
    config.write_text(f"models: {{clicks: {{prior: {{map_file: {tmp_path / 'm.json'}}}}}}}")
    engine_settings(load_config(config, environ={}, require_kafka=False))


def test_entries_per_segment_are_in_force_on_day_0_where_they_are_corrected_too(
    streamcal: Streamcal, tmp_path: Path
) -> None:
    file, written = write(tmp_path / "r.jsonl", ROWS), tmp_path / "m.json"
    assert streamcal("fit", file, "-o", written, "--segment", "country").code == 0
    config = tmp_path / "c.yaml"
    text = "segments: {cuts: [[country, device]]}\nmodels: {clicks: {prior: {map_file: %s}, refit: {segments: %s}}}"
    config.write_text(text % (written, "[country, device]"))
    settings = engine_settings(load_config(config, environ={}, require_kafka=False)).loop("clicks")
    assert settings.prior_segments == document(written).segments
    config.write_text(text % (written, "[]"))
    with pytest.raises(MapDocumentError, match=r"entries by \[country\]") as caught:
        engine_settings(load_config(config, environ={}, require_kafka=False))
    assert "refit.segments" in str(caught.value.hint)


def test_an_output_that_is_there_is_replaced_only_when_told_to(streamcal: Streamcal, tmp_path: Path) -> None:
    file, output = write(tmp_path / "r.jsonl", ROWS), tmp_path / "m.json"
    output.write_text("mine")
    said = streamcal("fit", file, "-o", output)
    assert (said.code, output.read_text()) == (1, "mine")
    assert "--force" in said.err
    assert streamcal("fit", file, "-o", output, "--force").code == 0
    assert document(output).family == "platt"


BAD_ROWS = [
    ({"score": 1.5}, "score 1.5 is not a number in [0, 1]"),
    ({"score": None}, "score is missing, or is not a number"),
    ({"score": "0.5"}, "score '0.5' is not a number"),
    ({"score": True}, "score True is not a number"),
    ({"label": 2}, "label 2 is not a label"),
    ({"label": None}, "label is missing, or is not a label"),
    ({"ts": 1_362_000}, "ts 1362000 is not a time in ms"),
    ({"ts": "x"}, "ts 'x' is not a time in ms"),
    ({"w": -1}, "w -1 is not a weight"),
    ({"w": 1e9}, "w 1000000000.0 is not a weight"),
    ({"country": {"a": 1}}, "country {'a': 1} is no value of dimension country"),
]


@pytest.mark.parametrize(("change", "told"), BAD_ROWS, ids=str)
def test_a_bad_row_is_named_and_nothing_is_written(
    streamcal: Streamcal, tmp_path: Path, change: Row, told: str
) -> None:
    rows = [{**row, "w": 1} for row in ROWS[:40]]
    rows[16] |= change
    file = write(tmp_path / "r.jsonl", rows)
    said = streamcal("fit", file, "-o", tmp_path / "m.json", "--time", "ts", "--weight", "w", "--segment", "country")
    assert said.code == 3
    assert told in said.err
    assert f"{file}, line 17" in said.err
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "code", "told"),
    [
        ("r.jsonl", b"", 3, "holds no row"),
        ("r.jsonl", b'{"score": 0.5, "label": 1}\n{"score": 0.5', 3, "line 2: is not JSON"),
        ("r.jsonl", b"[1]\n", 3, "line 1: is no JSON object"),
        ("r.csv", b"", 3, "holds no row"),
        ("r.csv", b"score,y\n0.5,1\n", 3, "has no column 'label'; its columns: score, y"),
        ("r.csv", b"score,label\n0.5,1\n0.5\n", 3, "line 3: has 1 fields where the header has 2"),
        ("r.csv", b"score,label\n0.5,yes\n", 3, "label 'yes' is not a label"),
        ("r.csv", b"score,label\nnan,1\n", 3, "score 'nan' is not a number"),
        ("r.csv", b"score,label\n,1\n", 3, "score '' is not a number"),
        ("r.csv", b'score,label\n"0.5,1\n', 3, "is not CSV"),
        ("r.csv", b"score,label\n\xff,1\n", 3, "line 2: is not UTF-8"),
        ("r.jsonl.gz", gzip.compress(b'{"score": 0.5, "label": 1}\n' * 99, mtime=0)[:-9], 3, "cut off or damaged"),
        ("r.parquet", b"PAR1", 3, "no Parquet file"),
        ("r.txt", b"", 3, "say so with --format"),
        ("r.jsonl", b'{"score": 0.5, "label": 1}\n' * 99, 1, "too few"),
        ("none.jsonl", None, 3, "No such file"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_used_is_a_clear_error(
    streamcal: Streamcal, tmp_path: Path, name: str, content: bytes | None, code: int, told: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    said = streamcal("fit", tmp_path / name, "-o", tmp_path / "m.json")
    assert (said.code, said.out) == (code, "")
    assert told in said.err
    assert not (tmp_path / "m.json").exists()


def test_labels_that_fall_as_scores_rise_are_refused_with_a_hint(streamcal: Streamcal, tmp_path: Path) -> None:
    rows = [{**row, "score": 1 - row["score"]} for row in made(3.0)]
    said = streamcal("fit", write(tmp_path / "r.jsonl", rows), "-o", tmp_path / "m.json")
    assert said.code == 1
    assert "slope_not_positive" in said.err
    assert "right columns" in said.err


def test_too_many_segments_are_refused(streamcal: Streamcal, tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", [{**row, "user": i} for i, row in enumerate(ROWS)])
    said = streamcal("fit", file, "-o", tmp_path / "m.json", "--segment", "user")
    assert said.code == 1
    assert "12,000 segments" in said.err


def test_rows_without_weight_do_not_count(streamcal: Streamcal, tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", [{**row, "w": 0} for row in ROWS])
    for family in ("platt", "isotonic", "girb"):
        said = streamcal("fit", file, "-o", tmp_path / "m.json", "--weight", "w", "--family", family)
        assert said.code == 1
        assert "0 rows of a weight above 0" in said.err


@pytest.mark.parametrize(
    "options", [("--model", ""), ("--model", "m#shadow"), ("--holdout", "1"), ("--segment", "a", "--segment", "a=b")]
)
def test_options_that_mean_nothing_are_wrong_usage(
    streamcal: Streamcal, tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = streamcal("fit", write(tmp_path / "r.jsonl", ROWS[:4]), "-o", tmp_path / "m.json", *options)
    assert said.code == 2
    assert options[0] in said.err


def test_a_document_is_signed_where_a_key_is_given(streamcal: Streamcal, tmp_path: Path) -> None:
    file, key = write(tmp_path / "r.jsonl", ROWS), tmp_path / "key"
    key.write_text("k" * 40)
    output = tmp_path / "m.json"
    assert streamcal("fit", file, "-o", output, "--model", "clicks", "--signing-key", key).code == 0
    with CalibrationTransformer(FileSource(output), verifier=read_verifier(key)) as transformer:
        assert transformer.transform(0.5, "clicks")[1] == 1
    key.write_text("short")
    said = streamcal("fit", file, "-o", tmp_path / "n.json", "--signing-key", key)
    assert said.code == 1
    assert "32 or more" in said.err
