"""Numbers and names of segments, and the cap."""

from __future__ import annotations

from urllib.parse import unquote

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamcal.snapshot import Series
from streamcal.stats.series import SAFETY_FACTOR, SeriesTable, segment_label
from streamcal.stream.events import OTHER, Names

TEXT = st.text(st.sampled_from("ab%,=é2C5"), max_size=4)


def table(max_segments: int = 100, cuts: tuple[tuple[str, ...], ...] = ((), ("country",))) -> tuple[Names, SeriesTable]:
    names = Names(("country", "device"))
    return names, SeriesTable(names, cuts, max_segments)


def numbers(names: Names, series: SeriesTable, *values: tuple[str, str], model: int = 0) -> np.ndarray:
    profile = np.array([names.profile(value) for value in values], dtype=np.int32)
    return series.of_rows(np.full(len(values), model, dtype=np.int32), profile)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
def test_labels_can_be_read_back_and_so_never_coincide(pairs: list[tuple[str, str]]) -> None:
    label = segment_label([d for d, _ in pairs], [v for _, v in pairs])
    read = [tuple(map(unquote, part.split("="))) for part in label.split(",")]
    assert read == pairs


def test_each_model_cut_and_segment_has_a_number_of_its_own_and_keeps_it() -> None:
    names, series = table(cuts=((), ("country",), ("country", "device")))
    first = numbers(names, series, ("GB", "ios"), ("GB", "web"), ("DE", "ios"))
    assert first[0].tolist() == [first[0, 0]] * 3
    assert first[1, 0] == first[1, 1] != first[1, 2]
    assert len(set(first.ravel().tolist())) == 1 + 2 + 3
    other = numbers(names, series, ("GB", "ios"), model=1)
    assert not np.isin(other, first).any()
    assert (numbers(names, series, ("GB", "ios"), ("GB", "web"), ("DE", "ios")) == first).all()
    assert series.wholes(np.array([1, 0, 1], dtype=np.int32)).tolist() == [other[0, 0], first[0, 0], other[0, 0]]
    assert np.flatnonzero(series.is_whole()).tolist() == sorted([first[0, 0], other[0, 0]])
    assert series.whole(0) == first[0, 0]
    assert series.whole(7) is None


def test_slots_go_by_first_pane_and_then_by_name_and_the_rest_is_shared() -> None:
    names, series = table(max_segments=2)
    found = numbers(names, series, ("late", ""), ("b", ""), ("a", ""), ("early", ""))
    series.first_pane[found[1]] = [9, 5, 5, 1]
    series.first_pane[found[0, 0]] = 1
    shown = series.published(np.unique(found))
    late, b, a, early = found[1].tolist()
    assert shown == {
        (0, Series("all", "all")): [found[0, 0]],
        (0, Series("country", "country=early")): [early],
        (0, Series("country", "country=a")): [a],
        (0, Series("country", f"country={OTHER}")): [b, late],
    }


def test_the_shared_segment_takes_no_slot_of_the_cap() -> None:
    names, series = table(max_segments=2)
    found = numbers(names, series, (OTHER, ""), ("a", ""), ("b", ""))
    series.first_pane[found[1]] = [0, 1, 2]
    labels = {labels.segment for _, labels in series.published(found[1])}
    assert labels == {f"country={OTHER}", "country=a", "country=b"}


def test_a_number_is_used_again_once_free_and_leads_to_its_new_segment_only() -> None:
    names, series = table()
    old = int(numbers(names, series, ("GB", ""))[1, 0])
    series.first_pane[old] = 3
    series.free([old])
    assert series.published(np.empty(0, dtype=np.int64)) == {}
    new = int(numbers(names, series, ("DE", ""))[1, 0])
    assert new == old
    assert series.first_pane[new] > 10**18
    series.first_pane[new] = 8
    assert [labels.segment for _, labels in series.published(np.array([new]))] == ["country=DE"]
    back = int(numbers(names, series, ("GB", ""))[1, 0])
    assert back != new


def test_beyond_the_safety_cap_segments_share_a_number_whatever_they_are_called() -> None:
    names, series = table(max_segments=2, cuts=((), ("country", "device")))
    many = [(OTHER, f"d{i}") for i in range(50)]
    found = numbers(names, series, *many)[1]
    assert len(np.unique(found)) == 2 * SAFETY_FACTOR + 1
    assert series.key(int(found[-1]))[2] == (OTHER, OTHER)
    series.free([int(found[0])])
    # A place is free again.
    assert series.key(int(numbers(names, series, ("new", "d"))[1, 0]))[2] == ("new", "d")
