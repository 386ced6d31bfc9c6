"""Corrections per segment in the refit loop: earned, moved, taken back, and the same whatever came in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from refit_streams import DAY, HOUR, Driven, Labelled, attempts, drive, driven_loop, settings, sigmoid

from streamcal.maps import saved  # noqa: F401 -- maps can be part of a state
from streamcal.maps.document import decode, encode, new_document
from streamcal.maps.families import Platt
from streamcal.maps.judged import weighed
from streamcal.maps.ledger import MapAttempt, MapRequest
from streamcal.maps.levels import Levels
from streamcal.state.trees import dump, load
from streamcal.stats.counts import contributions
from streamcal.stream.events import Names

Floats = NDArray[np.float64]

BY = ("country", "device")
COUNTRIES = ["DE", "FR", "GB", "US"]
DEVICES = ["android", "ios", "web"]
PLACES = [(country, device) for country in COUNTRIES for device in DEVICES]
OFFSETS = dict(zip(PLACES, np.random.default_rng(1).normal(0.0, 0.6, len(PLACES)).tolist(), strict=True))

CENTRED = {place: offset - np.mean(list(OFFSETS.values())).item() for place, offset in OFFSETS.items()}


def stream(
    seed: int,
    days: int,
    per_day: int,
    *,
    offset: dict[tuple[str, str], float] | None = None,
    common: float = 0.0,
    swapped_from: float | None = None,
) -> tuple[Labelled, list[tuple[str, str]]]:
    """Rows of twelve segments, the true logit x + common + offset of the segment, that changes sign at a day."""
    rng = np.random.default_rng(seed)
    n = days * per_day
    predicted = np.sort(rng.integers(0, days * DAY, n))
    place = rng.integers(0, len(PLACES), n)
    x = rng.normal(-1.0, 1.0, n)
    gap = np.array([(offset or {}).get(each, 0.0) for each in PLACES])[place]
    if swapped_from is not None:
        gap = np.where(predicted >= swapped_from * DAY, -gap, gap)
    y = rng.random(n) < sigmoid(x + common + gap)
    known = predicted + rng.integers(0, 3 * HOUR, n)
    order = np.argsort(known, kind="stable")
    names = Names(BY)
    profile = np.array([names.profile(PLACES[i]) for i in place], dtype=np.int32)
    rows = Labelled(predicted[order], known[order], x[order], y[order], profile[order], names)
    return rows, [PLACES[i] for i in place[order]]


def chosen(**options: Any) -> Any:
    return settings(**({"dimensions": BY, "horizon_ms": 6 * HOUR, "every_ms": 3 * HOUR} | options))


def served(driven: Driven, rows: Labelled, places: list[tuple[str, str]]) -> Floats:
    segments = {name: [place[i] for place in places] for i, name in enumerate(BY)}
    return driven.served_at(rows.predicted_ms, rows.x, segments)


def log_loss(q: Floats, y: NDArray[np.bool_]) -> float:
    return float(-np.where(y, np.log(q), np.log1p(-q)).mean())


def reasons(driven: Driven) -> list[str]:
    return [entry.reason for entry in driven.loop.history if entry.promoted]


def test_segments_of_a_calibrated_whole_are_corrected_without_another_family() -> None:
    off = CENTRED
    rows, places = stream(2, 30, 1500, offset=off)
    driven = drive(rows, chosen())
    first = driven.documents[0]
    assert reasons(driven)[0] == "segments"
    assert (first.family, first.parent) == ("identity", None)
    assert first.evidence["gain_segments"] >= first.evidence["bar"] == pytest.approx(np.log(20 * 4))
    late = rows.predicted_ms > 20 * DAY
    q, raw = served(driven, rows, places)[late], sigmoid(rows.x)[late]
    truth = sigmoid(rows.x + np.array([off[place] for place in places]))[late]
    best, held = log_loss(truth, rows.y[late]), log_loss(q, rows.y[late])
    assert held - best < 0.1 * (log_loss(raw, rows.y[late]) - best)
    compiled = driven.documents[-1].compile()
    for place, offset in off.items():
        slope, added = compiled.line(dict(zip(BY, place, strict=True)))
        assert slope * -1.0 + added == pytest.approx(-1.0 + offset, abs=0.2)


def test_a_segment_not_seen_yet_has_what_its_country_has_and_is_followed_once_it_comes() -> None:
    off = {place: {"DE": 0.9, "FR": -0.9, "GB": 0.7, "US": -0.7}[place[0]] for place in PLACES}
    rows, _ = stream(3, 20, 1500, offset=off)
    driven = drive(rows, chosen())
    compiled = driven.documents[-1].compile()
    slope, added = compiled.line({"country": "DE", "device": "fridge"})
    assert slope * -1.0 + added == pytest.approx(-0.1, abs=0.2)
    assert compiled.line({"country": "JP", "device": "web"}) == (1.0, 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_segments_that_do_not_differ_are_never_corrected(seed: int) -> None:
    rows, _ = stream(20 + seed, 60, 600)
    assert drive(rows, chosen()).documents == []


def test_tables_that_move_are_publications_and_the_evidence_of_alarms_goes_on() -> None:
    rows, _ = stream(4, 30, 1500, offset=OFFSETS)
    driven = drive(rows, chosen())
    promoted = [entry.version for entry in driven.loop.history if entry.promoted and entry.reason != "publication"]
    versions = np.array([document.version for document in driven.documents])
    assert len(versions) > 20
    assert len(promoted) < 10
    found = np.unique(driven.loop.promotion_of(versions)).tolist()
    assert found == promoted


def test_a_table_that_turned_bad_follows_or_goes_and_costs_little() -> None:
    rows, places = stream(5, 40, 1500, offset=OFFSETS, swapped_from=20)
    driven = drive(rows, chosen(fit_window_ms=40 * DAY))
    assert "worse_than_parent" in reasons(driven)
    back = next(entry for entry in driven.loop.history if entry.reason == "worse_than_parent" and entry.promoted)
    assert 20 * DAY < back.at_ms < 22 * DAY
    after = (rows.predicted_ms >= back.at_ms) & (rows.predicted_ms < 30 * DAY)
    q = served(driven, rows, places)[after]
    assert log_loss(q, rows.y[after]) <= log_loss(sigmoid(rows.x)[after], rows.y[after]) + 0.005


def test_labels_flipped_in_one_segment_for_hours_do_not_stay() -> None:
    rows, places = stream(6, 40, 1500)
    flipped = np.array([place == ("GB", "ios") for place in places]) & (rows.predicted_ms // DAY == 15)
    driven = drive(replace(rows, y=rows.y ^ flipped), chosen())
    q, raw = served(driven, rows, places), sigmoid(rows.x)
    assert log_loss(q, rows.y) <= log_loss(raw, rows.y) + 0.0005
    last = driven.documents[-1].compile() if driven.documents else None
    if last is not None:
        slope, added = last.line({"country": "GB", "device": "ios"})
        assert abs((slope - 1.0) * -1.0 + added) < 0.1


def test_a_promoted_family_brings_its_own_table() -> None:
    rows, places = stream(7, 30, 1500, offset=OFFSETS, common=0.0)
    shifted = replace(rows, y=rows.y)
    rng = np.random.default_rng(8)
    late = rows.predicted_ms >= 15 * DAY
    gap = np.array([OFFSETS[place] for place in places])
    shifted.y[late] = rng.random(int(late.sum())) < sigmoid(rows.x + gap + 1.0)[late]
    driven = drive(shifted, chosen())
    fitted = [document for document in driven.documents if document.family != "identity"]
    assert next(document for document in fitted if document.at_ms > 15 * DAY).segments
    newest = rows.predicted_ms > 25 * DAY
    q = served(driven, shifted, places)[newest]
    best = log_loss(sigmoid(rows.x + gap + 1.0)[newest], shifted.y[newest])
    assert log_loss(q, shifted.y[newest]) < best + 0.01


def test_what_is_learned_does_not_depend_on_what_is_in_force() -> None:
    rows, _ = stream(9, 20, 1500, offset=OFFSETS)
    tables = []
    for prior in (None, Platt(1.3, 0.4)):
        driven = drive(rows, chosen(prior=prior))
        assert driven.loop.corrections is not None
        tables.append({family: driven.loop.corrections.newest(family) for family in ("intercept", "platt", "cir")})
    assert tables[0] == tables[1]
    assert len(tables[0]["platt"]) > 10


def test_the_order_in_which_segments_come_changes_no_bit() -> None:
    rows, places = stream(10, 15, 1200, offset=OFFSETS)
    driven = drive(rows, chosen())
    names = Names(BY)
    for place in reversed(PLACES):
        names.profile(place)
    order = np.lexsort((np.array([PLACES.index(place) for place in places]), rows.known_ms // (15 * 60_000)))
    profile = np.array([names.profile(places[i]) for i in order], dtype=np.int32)
    columns = (column[order] for column in (rows.predicted_ms, rows.known_ms, rows.x, rows.y))
    other = driven_loop(chosen(), names)
    documents = []
    shuffled = Labelled(*columns, profile, names)
    by_known = np.sort(rows.known_ms)
    for moment in attempts(other, replace(shuffled, known_ms=by_known)):
        documents += [decode(command.document) for command in other.loop.attempt(moment)]
    assert [document.segments for document in documents] == [document.segments for document in driven.documents]
    assert len(documents) > 5


def test_a_saved_loop_goes_on_to_the_same_documents() -> None:
    rows, _ = stream(11, 16, 1500, offset=OFFSETS)
    whole = drive(rows, chosen())
    first, again = driven_loop(chosen(), rows.names), driven_loop(chosen(), rows.names)
    documents, current = [], first
    for moment in attempts(first, rows):
        if moment == 10 * DAY:
            again = Driven(again.loop, first.fits, [], first.segments)
            again.loop._fits, again.loop._segments = first.fits, first.segments
            load(again.loop, dump(first.loop))
            current = again
        documents += [decode(command.document) for command in current.loop.attempt(moment)]
    assert documents == whole.documents
    assert current is again


def test_a_person_goes_back_and_the_table_has_to_earn_its_place_again() -> None:
    rows, _ = stream(12, 20, 1500, offset=OFFSETS)
    driven = driven_loop(chosen(), rows.names)
    since = seen = 0
    for moment in attempts(driven, rows):
        driven.documents += [decode(command.document) for command in driven.loop.attempt(moment)]
        if not since and len(driven.documents) > 8:
            first, newest = driven.documents[0], driven.documents[-1]
            assert first.segments != newest.segments
            (command,) = driven.loop.manual(moment, MapRequest("rollback", "ada", "a test", version=1)).commands
            back = decode(command.document)
            assert (back.family, back.segments, back.parent) == (first.family, first.segments, newest.version)
            since, seen = moment, len(driven.documents)
            assert driven.loop.corrections is not None
            assert not driven.loop.corrections.active
    again = next(document for document in driven.documents[seen:] if document.segments)
    assert again.at_ms >= since + 6 * HOUR
    assert next(entry for entry in driven.loop.history if entry.version == again.version).reason in ("", "segments")


def test_in_shadow_the_corrections_are_candidates() -> None:
    rows, _ = stream(13, 20, 1500, offset=OFFSETS)
    driven = driven_loop(chosen(mode="shadow"), rows.names)
    keys = set()
    for moment in attempts(driven, rows):
        for command in driven.loop.attempt(moment):
            keys.add(command.key)
            driven.documents.append(decode(command.document))
    assert keys == {"m#shadow"}
    assert any(document.segments for document in driven.documents)
    assert driven.loop.champion.document is None


def test_entries_of_the_map_of_day_zero_stand_until_something_is_better() -> None:
    right = {f"country={c},device={d}": {"offset": OFFSETS[c, d]} for c, d in PLACES}
    rows, places = stream(14, 25, 1500, offset=OFFSETS)
    driven = drive(rows, chosen(prior=Platt(1.0, 0.0), prior_segments=right))
    assert driven.documents[0].segments == right
    # What the segments have in common makes a family look better: it comes with a table of its own.
    assert all(document.segments for document in driven.documents)
    assert "segments" not in reasons(driven)
    q, truth = served(driven, rows, places), sigmoid(rows.x + np.array([OFFSETS[place] for place in places]))
    assert log_loss(q, rows.y) < log_loss(truth, rows.y) + 0.003
    centred, _ = stream(14, 25, 1500, offset=CENTRED)
    right = {f"country={c},device={d}": {"offset": CENTRED[c, d]} for c, d in PLACES}
    assert len(drive(centred, chosen(prior=Platt(1.0, 0.0), prior_segments=right)).documents) == 1


@pytest.mark.parametrize("by", [(), ("device",)], ids=["turned off", "another cut"])
def test_entries_that_cannot_be_judged_any_more_are_taken_back_at_once(by: tuple[str, ...]) -> None:
    rows, _ = stream(15, 20, 1500, offset=CENTRED, swapped_from=10)
    first = driven_loop(chosen(), rows.names)
    current, after = first, []
    for moment in attempts(first, rows):
        if moment == 10 * DAY:
            again = driven_loop(chosen(dimensions=by), rows.names)
            load(again.loop, dump(first.loop))
            again.loop._fits = first.fits
            assert first.loop.champion.document is not None
            assert first.loop.champion.document.segments
            current = again
        documents = [decode(command.document) for command in current.loop.attempt(moment)]
        after += documents if current is not first else []
    assert after[0].segments == {}
    assert next(entry for entry in current.loop.history if entry.version == after[0].version).reason == "segments"
    assert all(key.startswith("device=") for document in after for key in document.segments)


def test_going_back_takes_the_corrections_back_where_they_came_last() -> None:
    rows, _ = stream(16, 12, 1500, offset=CENTRED)
    driven = driven_loop(chosen(), rows.names)
    asked = None
    for moment in attempts(driven, rows):
        driven.documents += [decode(command.document) for command in driven.loop.attempt(moment)]
        if asked is None and driven.documents:
            asked = driven.loop.manual(moment, MapRequest("rollback", "ada", "a test"))
            (command,) = asked.commands
            assert decode(command.document).segments == {}
            assert driven.loop.history[-1].reason == "rollback"
            assert driven.loop.results["rolled_back", "manual"] == 1
    assert driven.documents[-1].segments


def test_a_map_that_comes_back_has_no_table_made_for_another() -> None:
    rows, _ = stream(17, 14, 1500, offset=CENTRED, common=0.6)
    driven = driven_loop(chosen(prior=Platt(1.0, 0.0), families=("identity",)), rows.names)
    other = new_document("m", 90, Platt(1.0, 0.6), at_ms=0)
    promoted, back = 0, None
    for moment in attempts(driven, rows):
        if not promoted and driven.loop.corrections is not None and driven.loop.corrections.active:
            entry = MapAttempt(None, "platt", moment, False, "shadow", None)
            driven.loop.ledger.version = 90
            driven.loop.ledger.put(other, entry)
            driven.loop.manual(moment, MapRequest("promote", "ada", "a test", version=90))
            promoted = moment
        if promoted and driven.loop.corrections is not None and driven.loop.corrections.active and back is None:
            driven.loop.champion.parent_gain = 1e4  # as if the labels had said so
            (command,) = driven.loop.attempt(moment)
            back = decode(command.document)
        else:
            driven.loop.attempt(moment)
    assert back is not None
    assert (back.parameters["intercept"], back.segments) == (0.0, {})


def test_the_segments_of_which_most_is_known_are_followed() -> None:
    rows, _ = stream(18, 4, 3000, offset=OFFSETS)
    driven = drive(rows, chosen(max_segments=1))
    assert driven.loop.corrections is not None
    table = driven.loop.corrections.newest("")
    assert 0 < len([key for key in table if "device" in key]) <= 4


def test_a_document_holds_what_differs_most_of_names_too_long_for_a_record() -> None:
    keys = [("\u6f22" * 60 + f"{number:04}",) for number in range(4000)]
    offsets = np.linspace(0.1, 1.0, 4000)
    entries = Levels(["name"], keys).entries([offsets], [np.zeros(4000)], negligible=0.0)
    size = len(encode(new_document("m", 1, Platt(1.0, 0.0), at_ms=0, segments=entries)))
    assert 500_000 < size < 700_000
    assert min(entry["offset"] for entry in entries.values()) > offsets[-len(entries) - 1]


def test_the_weight_of_rows_is_no_number_of_rows() -> None:
    weight = np.array([1.0, 1.0, 1.0, 50.0, 50.0])
    score = np.random.default_rng(19).random(5)
    bins, values, _ = contributions(score, np.array([True, False, True, True, False]), weight)
    rows = weighed(np.zeros(5, dtype=np.int64), bins, values, np.array([0, 0, 0, 1, 1]))
    assert rows.weight.tolist() == pytest.approx([1.0] * 5)
