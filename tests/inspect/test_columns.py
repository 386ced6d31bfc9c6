from __future__ import annotations

import json
from typing import Any

from streamcal.inspect.columns import Column, Table, table
from streamcal.inspect.sample import SampledRecord
from streamcal.inspect.time_forms import near_miss, time_unit, times_ms

T = 1_700_000_000_000


def of(*values: Any, **further: Any) -> Table:
    return table([SampledRecord(json.dumps(value).encode(), **further) for value in values])


def test_paths_lead_into_objects_and_not_into_lists() -> None:
    found = of({"a": {"b": {"c": 1}}, "l": [{"x": 1}], "n": None}, {"a": {"b": 2}})
    assert {path: column.values for path, column in found.columns.items()} == {
        "a.b.c": [1, None],
        "l": [[{"x": 1}], None],
        "a.b": [None, 2],
    }


def test_names_that_no_path_can_say_are_left_out() -> None:
    assert list(of({"a.b": 1, "": 2, "$key": 3, 'q"': 5, "n\n": 6, " s": 7, "b\\": 8, "c": 4}).columns) == ["c"]


def test_keys_and_headers_are_columns_where_they_are_text() -> None:
    found = of({"a": 1}, key=b"k", headers=[("h", b"1"), ("b", b"\xff"), ("h", b"2"), ("none", None)])
    assert {path: column.values for path, column in found.columns.items() if path != "a"} == {
        "$header.h": ["2"],
        "$key": ["k"],
    }


def test_what_is_no_object_is_counted() -> None:
    values = [b"{", b"[]", b"1", b"", None, b"\xff", b'{"a": 1}', b"[" * 100_000]
    found = table([SampledRecord(value) for value in values])
    assert (found.unreadable, found.tombstones, found.rows) == (6, 1, [6])


def test_a_map_with_keys_of_its_own_does_not_grow_without_bound() -> None:
    found = of(*({"id": i, "map": {f"k{i}-{j}": j for j in range(20)}} for i in range(50)))
    assert len(found.columns) == 300
    assert "id" in found.columns


def test_true_and_one_are_two_values() -> None:
    column = Column("a", [True, 1, 1.0, False, 0])
    assert column.distinct == 4
    assert column.kinds == {"boolean": 2, "integer": 2, "number": 1}


def test_units_are_told_apart_by_their_ranges() -> None:
    for unit, per_ms in (("ms", 1), ("us", 1000), ("ns", 1_000_000)):
        column = Column("x", [(T + i) * per_ms for i in range(5)])
        assert time_unit(column) == unit
        assert times_ms(column, unit) == [T + i for i in range(5)]  # type: ignore[arg-type]
    assert time_unit(Column("x", [T / 1000 + i for i in range(5)])) == "s"
    assert time_unit(Column("x", ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5+01:00"])) == "rfc3339"
    assert time_unit(Column("$header.at", [str(T), str(T + 1)])) == "ms"
    for values in ([1, 2, 3], ["a"], [True], [], [1e300], [-T]):
        assert time_unit(Column("x", values)) is None


def test_times_that_are_none_are_explained() -> None:
    assert "no time zone" in (near_miss(Column("x", ["2024-01-01 10:00:00"])) or "")
    assert "written as text" in (near_miss(Column("x", [str(T)])) or "")
    assert "broken numbers" in (near_miss(Column("x", [T + 0.5])) or "")
    assert "they are 0" in (near_miss(Column("x", [0, 0])) or "")
    assert near_miss(Column("x", ["soon"])) is None
