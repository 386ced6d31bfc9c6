"""The refit loop of one model: versions, what is in force, what is tried and what is remembered of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcal.errors import MapDocumentError
from streamcal.maps.document import MapDocument, decode, encode, new_document
from streamcal.maps.families import Identity, Map, Platt, Prior
from streamcal.maps.loop import LoopSettings, ModelLoop, shadow_key, shadowed_model
from streamcal.stats.counts import contributions
from streamcal.stats.fit_panes import FitPanes

PANE, EVERY, WINDOW = 1000, 10_000, 100_000


def loop(*, fits: FitPanes | None = None, **options: Any) -> ModelLoop:
    chosen = {"mode": "auto", "every_ms": EVERY, "fit_window_ms": WINDOW, "pane_ms": PANE, "min_count": 20}
    settings = LoopSettings(**{**chosen, "maturity_ms": 0, "prior": None, **options})
    return ModelLoop(settings, "ctr", fits if fits is not None else FitPanes(9))


def feed(fits: FitPanes, panes: range, *, offset: float, seed: int = 1, rows: int = 40) -> None:
    """Rows in each pane, served logits off by `offset`."""
    rng = np.random.default_rng(seed)
    for pane in panes:
        logit = rng.normal(-0.5, 1.0, rows)
        label = rng.random(rows) < 1 / (1 + np.exp(-logit - offset))
        bins, values, _ = contributions(1 / (1 + np.exp(-logit)), label)
        fits.add(np.full(rows, pane), bins, values)


def published(version: int, map_: Map, model: str = "ctr") -> bytes:
    return encode(new_document(model, version, map_, at_ms=5))


def documents(commands: list[Any]) -> list[MapDocument]:
    return [decode(command.document) for command in commands]


def test_a_promotion_is_in_force_counted_and_published_with_what_it_was_fitted_on() -> None:
    fits = FitPanes(9)
    tried = loop(fits=fits)
    feed(fits, range(3, 20), offset=1.5)
    commands = tried.attempt(20_500 // EVERY * EVERY)
    assert [command.key for command in commands] == ["ctr"]
    (document,) = documents(commands)
    assert (document.version, document.family, document.parent, document.at_ms) == (1, "platt", None, 20_000)
    assert document.fit_window is not None
    assert (document.fit_window.from_ms, document.fit_window.to_ms) == (0, 20_000)
    assert document.counts.n == 17 * 40
    assert tried.results == {("promoted", ""): 1}
    assert tried.state() is not None
    np.testing.assert_array_equal(tried.apply(np.array([0.3])), document.to_map().apply(np.array([0.3])))
    feed(fits, range(20, 60), offset=-1.5)
    (second,) = documents(tried.attempt(60_000))
    assert (second.version, second.parent) == (2, 1)


def test_the_window_fitted_on_is_told_in_whole_panes() -> None:
    fits = FitPanes(9)
    tried = loop(fits=fits, every_ms=1_500, maturity_ms=700)
    feed(fits, range(100, 120), offset=1.5)
    (document,) = documents(tried.attempt(121_500))
    assert document.fit_window is not None
    assert (document.fit_window.from_ms, document.fit_window.to_ms) == (20_000, 120_000)


def test_without_new_rows_nothing_is_tried_and_refusals_in_a_row_share_an_entry() -> None:
    fits = FitPanes(9)
    tried = loop(fits=fits)
    assert tried.attempt(10_000) == []
    assert tried.results == {}
    feed(fits, range(10, 12), offset=0.0, rows=3)
    for moment in (20_000, 30_000):
        assert tried.attempt(moment) == []
    feed(fits, range(30, 31), offset=0.0, rows=3)
    tried.attempt(40_000)
    assert sum(tried.results.values()) == 2
    assert all(result == "refused" for result, _ in tried.results)
    entries = [(entry.at_ms, entry.until_ms, entry.attempts) for entry in tried.history]
    assert entries == [(20_000, 40_000, 2)]


def test_at_maturity_a_pane_is_read_a_horizon_after_its_end() -> None:
    fits = FitPanes(9)
    tried = loop(fits=fits, maturity_ms=25_000)
    feed(fits, range(10), offset=1.5)
    assert tried.attempt(20_000) == []
    assert tried.results == {}
    (document,) = documents(tried.attempt(40_000))
    assert document.counts.n == 400
    assert document.fit_window is not None
    assert document.fit_window.to_ms == 15_000


def test_switched_off_it_lets_panes_go_all_the_same() -> None:
    fits = FitPanes(9)
    off = loop(fits=fits, mode="off")
    feed(fits, range(20), offset=1.5)
    assert off.attempt(20_000) == []
    assert off.attempt(500_000) == []
    assert fits.panes() == []
    assert not off.results
    assert off.apply(np.array([0.3])).tolist() == [0.3]


def test_in_shadow_candidates_go_under_their_own_key_and_are_never_applied() -> None:
    fits = FitPanes(9)
    tried = loop(fits=fits, mode="shadow")
    feed(fits, range(20), offset=1.5)
    (command,) = tried.attempt(20_000)
    assert command.key == shadow_key("ctr") == "ctr#shadow"
    assert tried.state() is None
    assert tried.apply(np.array([0.3])).tolist() == [0.3]
    assert [entry.promoted for entry in tried.history] == [False]
    # The next one has the last candidate to better.
    feed(fits, range(20, 30), offset=1.5, seed=2)
    assert tried.attempt(30_000) == []
    assert tried.results == {("promoted", ""): 1, ("refused", "no_gain"): 1}


def test_keys_of_candidates_and_of_models_are_told_apart() -> None:
    assert shadowed_model(shadow_key("a#b")) == "a#b"
    assert shadowed_model("a#b") is None
    assert shadowed_model("ctr") is None


@pytest.mark.parametrize("order", [[1, 3, 2], [3, 2, 1]])
def test_the_highest_version_published_is_in_force_and_versions_go_on_from_it(order: list[int]) -> None:
    fits = FitPanes(9)
    again = loop(fits=fits, prior=Prior(negative_sampling_rate=0.1))
    again.adopt([published(version, Platt(slope=1.0, intercept=float(version))) for version in order])
    assert again.start() == []
    assert again.state() is not None
    np.testing.assert_array_equal(again.apply(np.array([0.3])), Platt(slope=1.0, intercept=3.0).apply(np.array([0.3])))
    feed(fits, range(20), offset=-1.5)
    (document,) = documents(again.attempt(20_000))
    assert (document.version, document.parent) == (4, 3)


def test_versions_go_on_beyond_those_of_candidates_and_the_last_candidate_is_the_one_to_better() -> None:
    fits = FitPanes(9)
    again = loop(fits=fits, mode="shadow", prior=Prior(negative_sampling_rate=0.1))
    again.adopt_shadow([published(8, Platt(slope=1.0, intercept=1.5)), published(7, Identity())])
    assert [document.version for document in documents(again.start())] == [9]
    feed(fits, range(20), offset=1.5)
    assert again.attempt(20_000) == []
    assert again.results == {("refused", "no_gain"): 1}


def test_the_map_of_day_0_comes_first_and_once() -> None:
    new = loop(prior=Prior(negative_sampling_rate=0.1))
    (document,) = documents(new.start())
    assert (document.version, document.family, document.fit_window) == (1, "prior", None)
    assert new.start() == []
    assert [entry.reason for entry in new.history] == ["day_0"]
    assert loop().start() == []


def test_a_document_that_does_not_verify_is_refused() -> None:
    with pytest.raises(MapDocumentError):
        loop().adopt([published(1, Identity()).replace(b'"version":1', b'"version":2')])


def test_the_history_of_a_daemon_is_bounded() -> None:
    fits = FitPanes(9)
    tried = loop(fits=fits, history=3, fit_window_ms=50_000)
    for turn in range(8):
        feed(fits, range(turn * 50, turn * 50 + 50), offset=3.0 * (-1) ** turn, seed=turn)
        tried.attempt((turn + 1) * 50_000)
    assert len(tried.history) == 3
    assert sum(tried.results.values()) == 8
    assert [entry.at_ms for entry in tried.history] == [300_000, 350_000, 400_000]
