import numpy as np
import pytest
from alarm_streams import cells, first_raised, panes, scores, settings, watch
from scipy.special import expit

from streamcal.detect.alarm import NO_FAULT
from streamcal.detect.bets import bet_set, log_payoffs, pane_cells
from streamcal.detect.detector import Detector, DetectorSettings
from streamcal.detect.evidence import advance, log_evidence

GRID = scores(0.1)
ALL = np.arange(6)


def stream(count, seed=1, shift=0.0, runs=6, rows=200):
    return list(panes(GRID, runs, rows, seed, [expit(GRID.x + shift)] * count))


def dense(rows):
    of, bins, values = cells(GRID, rows)
    counts = np.zeros((len(rows.n), 284, 9), dtype=np.int64)
    np.add.at(counts, (of, bins), values)
    return counts


def everything(detector):
    return {name: array[:6].tolist() for name, array in detector.state().items()}


def test_evidence_is_that_of_a_plain_loop_over_panes():
    given = stream(50, shift=0.15, runs=1)
    detector = Detector(settings(dispersion=2.5, tolerance=0.0))
    watch(detector, GRID, given)
    bets, log_m, weight, weighted = bet_set(0.0), np.full((14, 1), -np.inf), 0.0, 0.0
    for rows in given:
        _, found = pane_cells(*cells(GRID, rows))
        pivot = np.array([weighted / weight if weight else np.nan])
        log_m = advance(log_m, log_payoffs(found, bets, pivot) / 2.5)
        fade, mine = np.exp(-1 / (60 * 1440)), found.n * found.p * (1 - found.p)
        weight, weighted = fade * weight + mine.sum(), fade * weighted + (mine * found.x).sum()
    state = detector.evidence(np.array([0]))
    assert state.evidence[0] == pytest.approx(log_evidence(log_m)[0], abs=1e-9)
    assert state.leading[0] == bets.fault[log_m[:, 0].argmax()]
    assert state.phi[0] == 2.5


def test_dense_and_sparse_panes_are_the_same():
    one, other = Detector(settings()), Detector(settings())
    for pane, rows in enumerate(stream(60, shift=0.4)):
        assert one.update(pane, ALL, dense(rows)) == other.update_cells(pane, *cells(GRID, rows))
    assert everything(one) == everything(other)


def test_series_do_not_see_each_other():
    given = stream(60, shift=0.4)
    together, alone = Detector(settings()), Detector(settings())
    events = watch(together, GRID, given)
    mine = []
    for pane, rows in enumerate(given):
        mine += alone.update(pane, ALL[3:4], dense(rows)[3:4])
    assert mine == [event for event in events if event.series == 3]
    np.testing.assert_allclose(alone.evidence(ALL[3:4]).evidence, together.evidence(ALL[3:4]).evidence, rtol=1e-9)


def test_a_detector_taken_up_from_its_state_goes_on_as_if_nothing_had_happened():
    given = stream(80, shift=0.3)
    whole = Detector(settings())
    first = watch(whole, GRID, given[:33])
    again = Detector.from_state(settings(), whole.state())
    assert watch(again, GRID, given[33:], 33) == watch(whole, GRID, given[33:], 33)
    assert everything(again) == everything(whole)
    assert first_raised(first) or whole.evidence(ALL).evidence.max() > 0


def test_state_of_another_tolerance_is_refused():
    with pytest.raises(ValueError, match="another tolerance"):
        Detector.from_state(settings(tolerance=0.1), Detector(settings(tolerance=0.0)).state())


def test_a_pane_is_weighed_once_and_in_order():
    detector = Detector(settings())
    rows = stream(1)[0]
    detector.update_cells(5, *cells(GRID, rows))
    for pane in (5, 4):
        with pytest.raises(ValueError, match="weighed before"):
            detector.update_cells(pane, *cells(GRID, rows))
    with pytest.raises(ValueError, match="must ascend"):
        detector.update(6, np.array([2, 1, 3, 4, 5, 0]), dense(rows))


def test_panes_without_rows_are_no_panes():
    detector = Detector(settings())
    watch(detector, GRID, stream(3))
    before = everything(detector)
    assert detector.update(50, ALL, np.zeros((6, 284, 9), dtype=np.int64)) == []
    assert everything(detector) == before


def test_an_alarm_starts_the_evidence_afresh_and_latches():
    detector = Detector(settings(panes=2000, tolerance=0.0, dispersion=1.0))
    events = watch(detector, GRID, stream(60, shift=0.8))
    first = first_raised(events)
    assert sorted(first) == list(range(6))
    assert len(events) == 6
    for event in first.values():
        assert event.fault == "scores_too_low"
        assert event.evidence >= detector.threshold
    assert (detector.panes[:6] < 60).all()
    assert (detector.evidence(ALL).active == 1).all()


def test_an_alarm_lasts_as_long_as_its_fault_and_clears_after():
    detector = Detector(settings(panes=43_200, tolerance=0.0, dispersion=1.0, clear_after=60))
    wrong, right = stream(600, shift=0.3), stream(400, seed=2)
    during = watch(detector, GRID, wrong)
    assert sum(event.raised for event in during) == 6
    assert not [event for event in during if not event.raised]
    after = watch(detector, GRID, right, 600)
    assert {event.series for event in after if not event.raised} == set(range(6))
    assert max(event.pane for event in after if not event.raised) < 600 + 300
    assert (detector.evidence(ALL).active == NO_FAULT).all()


def test_a_restart_forgets_the_evidence_and_keeps_alarm_and_phi():
    detector = Detector(settings(panes=2000))
    watch(detector, GRID, stream(60, shift=0.8))
    before = detector.evidence(ALL)
    detector.restart(ALL)
    after = detector.evidence(ALL)
    assert (after.evidence == -np.inf).all()
    assert (after.leading == NO_FAULT).all()
    assert after.active.tolist() == before.active.tolist()
    assert after.phi.tolist() == before.phi.tolist()


def test_a_forgotten_number_is_new_again():
    detector = Detector(settings(panes=2000))
    watch(detector, GRID, stream(60, shift=0.8))
    detector.forget(ALL)
    given = stream(40, seed=5)
    fresh = Detector(settings(panes=2000))
    assert watch(detector, GRID, given) == watch(fresh, GRID, given)
    assert everything(detector) == everything(fresh)


def test_numbers_never_seen_stand_as_at_the_start():
    state = Detector(settings()).evidence(np.array([70, 3]))
    assert state.evidence.tolist() == [-np.inf, -np.inf]
    assert state.phi.tolist() == [1.0, 1.0]
    assert state.active.tolist() == [NO_FAULT, NO_FAULT]
    assert Detector(settings()).evidence(np.array([], dtype=np.int64)).evidence.tolist() == []


def test_the_threshold_is_raised_until_phi_is_known():
    detector = Detector(settings())
    watch(detector, GRID, stream(2))
    assert (detector.evidence(ALL).threshold > 2 * detector.threshold).all()
    watch(detector, GRID, stream(40), 2)
    assert (detector.evidence(ALL).threshold == detector.threshold).all()
    fixed = Detector(settings(dispersion=1.0))
    assert (fixed.evidence(ALL).threshold == fixed.threshold).all()


def test_weights_change_nothing():
    plain, weighted = Detector(settings()), Detector(settings())
    for pane, rows in enumerate(stream(10)):
        of, bins, values = cells(GRID, rows)
        wide = np.concatenate([values, np.full((len(values), 14), 7)], axis=1)
        plain.update_cells(pane, of, bins, values)
        weighted.update_cells(pane, of, bins, wide)
    assert everything(plain) == everything(weighted)


@pytest.mark.parametrize(
    "bad", [{"dispersion": 0.5}, {"clear_after": 0}, {"panes_per_day": 0}, {"dispersion": float("nan")}]
)
def test_settings_without_meaning_are_refused(bad):
    with pytest.raises(ValueError, match=r"below 1|more of the evidence"):
        settings(**bad)


def test_the_threshold_comes_from_budget_pane_and_share():
    made = DetectorSettings(panes_per_day=96, false_alarms_per_month=2.0, share=1000, clear_after=96)
    assert made.log_threshold == pytest.approx(np.log(96 * 30 * 1000 / 2))
