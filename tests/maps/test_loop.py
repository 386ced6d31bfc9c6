"""The refit loop of one model: versions, what is in force, what is tried, taken back and remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refit_streams import served_by

from streamcal.errors import MapDocumentError, StreamcalError
from streamcal.maps.document import MapDocument, decode, encode, new_document
from streamcal.maps.families import Identity, Map, Platt, Prior
from streamcal.maps.loop import LoopSettings, MapRequest, ModelLoop, shadow_key, shadowed_model
from streamcal.stats.counts import contributions
from streamcal.stats.fit_panes import FitPanes

PANE, EVERY, WINDOW, HORIZON = 1000, 10_000, 100_000, 15_000
LATE = PANE
"""Rows become known a pane after their prediction."""


class Streamed:
    """A loop, fed pane by pane, attempts made as event time passes their moments."""

    def __init__(self, **options: Any) -> None:
        chosen = {"mode": "auto", "every_ms": EVERY, "fit_window_ms": WINDOW, "pane_ms": PANE, "min_count": 20}
        chosen |= {"maturity_ms": 0, "prior": None, "horizon_ms": HORIZON, "out_of_order_ms": 0}
        self.fits = FitPanes(9)
        self.loop = ModelLoop(LoopSettings(**{**chosen, **options}), "ctr", self.fits)
        self.commands: list[Any] = []
        self.pane = 0
        self.rng = np.random.default_rng(1)

    def feed(self, panes: int, *, offset: float = 0.0, slope: float = 1.0, rows: int = 60) -> None:
        """`panes` more panes of rows whose true logit is slope * x + offset."""
        settings = self.loop.settings
        for _ in range(panes):
            x = self.rng.normal(-0.5, 1.0, rows)
            label = self.rng.random(rows) < 1 / (1 + np.exp(-slope * x - offset))
            bins, values, _ = contributions(1 / (1 + np.exp(-x)), label)
            predicted = np.full(rows, self.pane * PANE)
            known = predicted // PANE if settings.maturity_ms else (predicted + LATE) // PANE
            self.fits.add(known, bins, values, predicted)
            self.pane += 1
            if self.pane * PANE % settings.every_ms == 0:
                self.commands += self.loop.attempt(self.pane * PANE)

    @property
    def now(self) -> int:
        return self.pane * PANE

    @property
    def documents(self) -> list[MapDocument]:
        return [decode(command.document) for command in self.commands]

    def ask(self, what: Any, **named: Any) -> list[MapDocument]:
        commands = self.loop.manual(self.now, MapRequest(what, "ada", "a test", **named)).commands
        self.commands += commands
        return [decode(command.document) for command in commands]


def published(version: int, map_: Map, **options: Any) -> bytes:
    return encode(new_document("ctr", version, map_, at_ms=5, **options))


# --- promotion -----------------------------------------------------------------------------------------------


def test_a_promotion_is_in_force_counted_and_published_with_what_it_was_fitted_on() -> None:
    tried = Streamed()
    tried.feed(60, offset=1.2)
    assert [command.key for command in tried.commands] == ["ctr"]
    (document,) = tried.documents
    assert (document.version, document.family, document.parent) == (1, "intercept", None)
    assert document.at_ms % EVERY == 0
    assert document.fit_window is not None
    assert (document.fit_window.from_ms, document.fit_window.to_ms) == (0, document.at_ms)
    # Rows of the last pane are not known yet.
    assert document.counts.n == (document.at_ms // PANE - 1) * 60
    assert document.evidence["gain"] >= document.evidence["bar"] == pytest.approx(np.log(60))
    assert document.parameters["intercept"] == pytest.approx(1.2, abs=0.25)
    assert tried.loop.results["promoted", ""] == 1
    assert tried.loop.state() is not None
    score = np.array([0.3])
    np.testing.assert_array_equal(served_by(tried.loop, score), document.to_map().apply(score))
    tried.feed(200, offset=-1.2)
    assert [later.parent for later in tried.documents[1:]] == [later.version - 1 for later in tried.documents[1:]]
    assert tried.documents[1].version == 2


def test_the_first_attempt_has_nothing_to_judge_and_promotes_nothing() -> None:
    tried = Streamed()
    tried.feed(10, offset=3.0)
    assert tried.loop.results == {("refused", "too_few_holdout"): 1}


def test_the_window_fitted_on_is_told_in_whole_panes() -> None:
    tried = Streamed(every_ms=15_000, maturity_ms=3_700, horizon_ms=3_700)
    tried.feed(100, offset=1.2)
    document = tried.documents[0]
    assert document.fit_window is not None
    stop = (document.at_ms - 3_700) // PANE * PANE
    assert (document.fit_window.from_ms, document.fit_window.to_ms) == (max(stop - WINDOW, 0), stop)


def test_what_is_live_has_no_part_in_the_next_fit() -> None:
    fresh, live = Streamed(), Streamed(prior=Platt(0.7, -0.4))
    live.commands += live.loop.start()
    for tried in (fresh, live):
        tried.feed(100, offset=0.4, slope=0.8)
        tried.ask("promote", family="platt")
    one, other = (tried.documents[-1].parameters for tried in (fresh, live))
    assert one == pytest.approx(other, abs=1e-9)
    # And it is the right one, not what is missing beside the live one.
    assert one["slope"] == pytest.approx(0.8, abs=0.1)
    assert one["intercept"] == pytest.approx(0.4, abs=0.1)


def test_after_a_promotion_nothing_replaces_it_before_a_maturity_window_has_passed() -> None:
    tried = Streamed(horizon_ms=60_000)
    tried.feed(50, offset=1.2)
    first = tried.documents[0].at_ms
    # Away from the parent: a roll-back does not wait.
    tried.feed(150, offset=2.4)
    assert tried.loop.results["refused", "cooling_down"] >= 6 - 1
    assert len(tried.documents) > 1
    assert all(document.at_ms >= first + 60_000 for document in tried.documents[1:])


# --- the same whoever is ahead -------------------------------------------------------------------------------


def test_without_new_rows_nothing_is_tried_and_refusals_in_a_row_share_an_entry() -> None:
    tried = Streamed()
    assert tried.loop.attempt(10_000) == []
    assert tried.loop.results == {}
    tried.pane = 10
    tried.feed(1, rows=3)
    for moment in (20_000, 30_000):
        assert tried.loop.attempt(moment) == []
    tried.pane = 30
    tried.feed(1, rows=3)
    tried.loop.attempt(40_000)
    assert sum(tried.loop.results.values()) == 2
    entries = [(entry.reason, entry.at_ms, entry.until_ms, entry.attempts) for entry in tried.loop.history]
    assert entries == [("too_few_labels", 20_000, 40_000, 2)]


@pytest.mark.parametrize("families", [("intercept", "platt", "cir"), ("platt", "tracking")])
def test_quiet_moments_that_only_one_of_two_hears_of_change_nothing(families: tuple[str, ...]) -> None:
    one, other = Streamed(families=families), Streamed(families=families)
    for tried in (one, other):
        tried.feed(50, offset=1.0)
        assert tried.loop.attempt(60_000) == []
    # The gap that follows: only `other` is told that time passes.
    for moment in range(70_000, 200_000, EVERY):
        assert other.loop.attempt(moment) == []
    for tried in (one, other):
        tried.pane = 200
        tried.feed(60, offset=1.0)
    assert len(one.commands) >= 1
    assert [c.document for c in one.commands] == [c.document for c in other.commands]
    assert repr(one.loop.history) == repr(other.loop.history)
    assert one.loop.evidence.gain.tolist() == other.loop.evidence.gain.tolist()


def test_at_maturity_a_pane_is_read_a_horizon_after_its_end() -> None:
    tried = Streamed(maturity_ms=25_000, horizon_ms=25_000)
    tried.feed(120, offset=1.5)
    (document, *_) = tried.documents
    assert document.fit_window is not None
    assert document.fit_window.to_ms == document.at_ms - 25_000
    assert document.counts.n == 60 * (document.at_ms - 25_000) // PANE


# --- modes ---------------------------------------------------------------------------------------------------


def test_switched_off_it_lets_panes_go_all_the_same() -> None:
    tried = Streamed(mode="off")
    tried.feed(60, offset=1.5)
    assert tried.loop.attempt(500_000) == []
    assert tried.commands == []
    assert tried.fits.panes() == tried.fits.entering.panes() == []
    assert not tried.loop.results
    assert served_by(tried.loop, np.array([0.3])).tolist() == [0.3]


def test_in_shadow_candidates_go_under_their_own_key_and_are_never_applied() -> None:
    tried, auto = Streamed(mode="shadow"), Streamed()
    for each in (tried, auto):
        each.feed(200, offset=1.2)
    assert {command.key for command in tried.commands} == {shadow_key("ctr")} == {"ctr#shadow"}
    assert tried.loop.state() is None
    assert served_by(tried.loop, np.array([0.3])).tolist() == [0.3]
    assert {entry.promoted for entry in tried.loop.history} == {False}
    # The next one has the last candidate to better, as it would have the map in force.
    assert [d.parameters for d in tried.documents] == [d.parameters for d in auto.documents]
    assert tried.loop.results == auto.loop.results


def test_keys_of_candidates_and_of_models_are_told_apart() -> None:
    assert shadowed_model(shadow_key("a#b")) == "a#b"
    assert shadowed_model("a#b") is None
    assert shadowed_model("ctr") is None


# --- what was published before -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[1, 3, 2], [3, 2, 1]])
def test_the_highest_version_published_is_in_force_and_versions_go_on_from_it(order: list[int]) -> None:
    again = Streamed(prior=Prior(negative_sampling_rate=0.1))
    again.loop.adopt([published(version, Platt(slope=1.0, intercept=float(version))) for version in order])
    assert again.loop.start() == []
    score = np.array([0.3])
    np.testing.assert_array_equal(served_by(again.loop, score), Platt(slope=1.0, intercept=3.0).apply(score))
    again.feed(60, offset=-1.5)
    assert [(d.version, d.parent) for d in again.documents][:1] == [(4, 3)]


def test_a_parent_that_was_published_too_is_what_an_adopted_map_is_watched_against() -> None:
    again = Streamed()
    again.loop.adopt([published(1, Platt(1.0, 0.0)), published(2, Platt(1.0, 1.4), parent=1)])
    again.feed(20)
    assert [(d.version, d.parent, d.parameters) for d in again.documents] == [(3, 2, {"slope": 1.0, "intercept": 0.0})]


def test_versions_go_on_beyond_those_of_candidates_and_the_last_candidate_is_the_one_to_better() -> None:
    again = Streamed(mode="shadow", prior=Prior(negative_sampling_rate=0.1))
    again.loop.adopt_shadow([published(8, Platt(slope=1.0, intercept=1.5)), published(7, Identity())])
    again.commands += again.loop.start()
    again.feed(60, offset=1.5)
    assert [document.version for document in again.documents] == [9]
    assert again.loop.results["refused", "no_gain"] > 0


def test_the_map_of_day_0_comes_first_and_once() -> None:
    new = Streamed(prior=Prior(negative_sampling_rate=0.1))
    (command,) = new.loop.start()
    document = decode(command.document)
    assert (document.version, document.family, document.fit_window) == (1, "prior", None)
    assert new.loop.start() == []
    assert [entry.reason for entry in new.loop.history] == ["day_0"]
    assert Streamed().loop.start() == []


def test_a_document_that_does_not_verify_is_refused() -> None:
    with pytest.raises(MapDocumentError):
        Streamed().loop.adopt([published(1, Identity()).replace(b'"version":1', b'"version":2')])


def test_the_history_of_a_daemon_is_bounded() -> None:
    tried = Streamed(history=3)
    for turn in range(6):
        tried.feed(60, offset=1.0 * (-1) ** turn)
    assert len(tried.loop.history) == 3
    assert sum(tried.loop.results.values()) == 36


# --- roll-back -----------------------------------------------------------------------------------------------


def test_a_map_that_is_bad_from_the_start_is_taken_back_within_two_maturity_windows() -> None:
    tried = Streamed()
    tried.feed(100, offset=-1.0)
    good = tried.loop.champion.map_
    assert good != Identity()
    began = tried.now
    (bad,) = tried.ask("promote", family="cir")
    # No guard lets a map through that the labels contradict, so it is put there.
    tried.loop.champion.served.maps[-1] = Platt(1.0, 1.0)
    tried.feed(2 * HORIZON // PANE, offset=-1.0)
    back = tried.documents[-1]
    assert (back.version, back.parent) == (bad.version + 1, bad.version)
    assert back.at_ms <= began + 2 * HORIZON
    assert back.to_map() == good
    assert tried.loop.results["rolled_back", "worse_than_parent"] == 1
    assert back.evidence["parent_gain"] > np.log(20)
    assert [entry.reason for entry in tried.loop.history if entry.version == back.version] == ["worse_than_parent"]


def test_after_a_roll_back_nothing_is_promoted_before_the_cool_down_and_there_is_no_parent_to_go_back_to() -> None:
    tried = Streamed()
    tried.loop.adopt([published(1, Platt(1.0, 0.0)), published(2, Platt(1.0, 1.4), parent=1)])
    tried.feed(20)
    assert [document.at_ms for document in tried.documents] == [20_000]
    with pytest.raises(StreamcalError, match="no parent"):
        tried.ask("rollback")
    tried.feed(10, offset=-2.0)
    # One after the adopted map, one after the roll-back.
    assert tried.loop.results["refused", "cooling_down"] == 2


# --- alarms and people ---------------------------------------------------------------------------------------


def test_an_alarm_brings_an_attempt_between_two_on_schedule() -> None:
    tried, scheduled = Streamed(every_ms=50_000), Streamed(every_ms=50_000)
    for each in (tried, scheduled):
        each.feed(205, offset=1.2)
    tried.commands += tried.loop.alarm(tried.now)
    assert scheduled.documents == []
    assert [document.at_ms for document in tried.documents] == [205_000]
    assert tried.loop.history[-1].trigger == "alarm"
    assert tried.loop.history[-1].report()["trigger"] == "alarm"


def test_pinned_nothing_changes_by_itself_and_a_person_still_can() -> None:
    tried = Streamed()
    tried.ask("pin")
    tried.feed(60, offset=1.2)
    assert tried.commands == []
    assert tried.loop.results["refused", "pinned"] == 6
    (document,) = tried.ask("refit")
    assert document.version == 1
    tried.loop.champion.served.maps[-1] = Platt(1.0, -1.5)
    tried.feed(40, offset=1.2)
    assert len(tried.documents) == 1
    tried.ask("unpin")
    tried.feed(10, offset=1.2)
    assert tried.loop.results["rolled_back", "worse_than_parent"] == 1
    asked = [entry.report() for entry in tried.loop.history if entry.trigger == "manual"]
    assert [(entry["reason"], entry["who"], entry["why"]) for entry in asked] == [
        ("pin", "ada", "a test"),
        ("", "ada", "a test"),
        ("unpin", "ada", "a test"),
    ]


def test_a_person_promotes_a_family_a_version_or_the_candidate_and_goes_back() -> None:
    tried = Streamed(mode="shadow")
    tried.feed(60, offset=2.2)
    candidate = tried.documents[-1]
    (first,) = tried.ask("promote")
    assert (first.parameters, first.fit_window, first.counts) == (
        candidate.parameters,
        candidate.fit_window,
        candidate.counts,
    )
    assert served_by(tried.loop, np.array([0.5]))[0] > 0.8
    (second,) = tried.ask("promote", family="cir")
    assert (second.family, second.parent) == ("cir", first.version)
    (third,) = tried.ask("rollback")
    assert third.parameters == first.parameters
    assert third.version == second.version + 1
    (fourth,) = tried.ask("rollback", version=second.version)
    assert fourth.parameters == second.parameters
    assert tried.loop.results["rolled_back", "manual"] == 2


def test_a_promotion_asked_for_may_take_any_step_but_not_contradict_the_labels() -> None:
    tried = Streamed(families=("platt",))
    tried.feed(60, offset=2.5)
    assert tried.loop.results["refused", "step_too_large"] > 0
    assert tried.ask("promote", family="platt")[0].family == "platt"
    tried.feed(90, offset=0.0)
    before = len(tried.commands)
    assert tried.ask("promote", version=1) == []
    assert len(tried.commands) == before
    assert tried.loop.history[-1].reason == "mean_off"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"version": 7}, "version 7"),
        ({"family": "beta"}, "'beta' is not fitted"),
        ({}, "no candidate"),
        ({"family": "cir"}, "too_few_labels"),
    ],
)
def test_what_is_not_known_cannot_be_promoted_and_nothing_changes(named: dict[str, Any], message: str) -> None:
    tried = Streamed()
    with pytest.raises(StreamcalError, match=message) as raised:
        tried.ask("promote", **named)
    assert raised.value.hint
    assert (tried.loop.version, list(tried.loop.history)) == (0, [])


def test_what_came_of_a_request_is_told_whatever_else_is_in_the_history() -> None:
    tried = Streamed(families=("tracking",), horizon_ms=5_000)
    for pane in range(150):
        tried.feed(1, offset=1.0 + 0.6 * np.sin(pane / 40))
    tried.feed(9, offset=1.0)
    told = tried.loop.manual(tried.now, MapRequest("refit", "ada", "a test"))
    # What the filter publishes beside a refusal is not what was asked for.
    assert (told.done, told.detail) == (False, "no_gain")
    assert tried.loop.manual(tried.now, MapRequest("pin", "ada", "")).detail == "pinned"
    assert tried.loop.manual(tried.now, MapRequest("pin", "bob", "")).detail == "pinned already"
    assert [entry.who for entry in tried.loop.history if entry.reason == "pin"] == ["ada"]
    shadow = Streamed(mode="shadow")
    told = []
    for _ in range(60):
        shadow.feed(1, offset=1.2)
        told.append(shadow.loop.manual(shadow.now, MapRequest("refit", "ada", "a test")))
    assert (True, "candidate version 1, in shadow") in [(each.done, each.detail) for each in told]


def test_a_refit_where_nothing_is_fitted_is_refused_and_the_last_promotion_is_not_mistaken_for_it() -> None:
    tried = Streamed(mode="off", prior=Prior(negative_sampling_rate=0.1))
    tried.loop.start()
    with pytest.raises(StreamcalError, match="nothing is fitted"):
        tried.ask("refit")
    assert tried.loop.version == 1


def test_a_map_in_force_is_not_put_in_force_again() -> None:
    tried = Streamed()
    tried.feed(60, offset=1.2)
    version = tried.loop.version
    for asked in ({"what": "promote", "version": version}, {"what": "rollback", "version": version}):
        with pytest.raises(StreamcalError, match=f"already, as version {version}"):
            tried.ask(**asked)
    assert tried.loop.version == version


def test_going_back_leads_only_to_what_was_in_force_and_keeps_what_it_was_fitted_on() -> None:
    tried = Streamed(mode="shadow")
    tried.feed(60, offset=1.2)
    candidate = tried.documents[-1]
    with pytest.raises(StreamcalError, match="never in force"):
        tried.ask("rollback", version=candidate.version)
    (promoted,) = tried.ask("promote", version=candidate.version)
    tried.ask("promote", family="cir")
    (back,) = tried.ask("rollback")
    assert (back.fit_window, back.counts) == (promoted.fit_window, promoted.counts) != (None, None)


def test_what_was_gone_back_to_is_not_refreshed_by_its_own_family() -> None:
    tried = Streamed(families=("platt", "cir"))
    tried.feed(60, offset=1.2)
    assert tried.loop.champion.fitted_on > 0
    (promoted,) = tried.ask("promote", family="cir")
    (back,) = tried.ask("rollback")
    assert back.version == promoted.version + 1
    assert back.counts.n > 0
    assert tried.loop.champion.fitted_on == 0


def test_a_family_is_fitted_to_the_window_that_its_document_tells_of() -> None:
    # Generations four attempts apart: the newest fit in time is older than the window.
    tried = Streamed(horizon_ms=96 * EVERY * 4, every_ms=EVERY)
    tried.feed(70, offset=1.2)
    (document,) = tried.ask("promote", family="platt")
    assert document.fit_window is not None
    assert document.parameters == tried.loop.challengers.fit("platt", tried.fits.whole()).parameters()


def test_a_refit_asked_for_after_the_window_has_emptied_is_refused() -> None:
    tried = Streamed()
    tried.feed(60, offset=1.2)
    tried.ask("pin")
    tried.loop.champion.parent_gain = 1e6
    tried.loop.attempt(1_000_000)
    tried.pane = 1000
    tried.ask("unpin")
    told = tried.loop.manual(1_000_000, MapRequest("refit", "ada", "a test"))
    assert (told.done, told.detail) == (False, "too_few_labels")


def test_like_refusals_of_one_person_share_an_entry() -> None:
    tried = Streamed()
    for _ in range(5):
        tried.ask("refit")
    assert [(entry.reason, entry.attempts, entry.who) for entry in tried.loop.history] == [("too_few_labels", 5, "ada")]


# --- tracking ------------------------------------------------------------------------------------------------


def test_a_promoted_filter_publishes_as_it_moves_without_promotions_and_alarms_go_on() -> None:
    tried = Streamed(families=("tracking",))
    for pane in range(300):
        tried.feed(1, offset=1.0 + 0.6 * np.sin(pane / 40))
    results = tried.loop.results
    assert results["promoted", ""] == 1
    assert results["published", ""] > 10
    versions = [document.version for document in tried.documents]
    assert versions == list(range(1, len(versions) + 1))
    first = tried.loop.history[[entry.promoted for entry in tried.loop.history].index(True)]
    state = tried.loop.state()
    assert state is not None
    assert (state.version, state.family, state.promoted_ms) == (versions[-1], "tracking", first.at_ms)
    assert tried.loop.promotion_of(np.array([-1, 0, *versions])).tolist() == [-1, 0, *[1] * len(versions)]
    publications = [entry for entry in tried.loop.history if entry.reason == "publication"]
    assert sum(entry.attempts for entry in publications) == results["published", ""]
    assert publications[-1].version == versions[-1]
