import numpy as np

from streamcal.detect.alarm import NO_FAULT, EceThreshold, Latch

ONE = np.array([0])


def step(latch, *, crossed=False, fault=0, calm=False):
    cleared, raised = latch.update(ONE, np.array([crossed]), np.array([fault], dtype=np.int8), np.array([calm]))
    return cleared, raised.tolist()


def latch(clear_after=3):
    made = Latch(clear_after)
    made.reserve(1)
    return made


def test_an_alarm_is_raised_once_and_clears_after_its_calm_panes_in_a_row():
    held = latch()
    assert step(held, crossed=True, fault=2) == ([], [0])
    assert step(held, calm=True) == ([], [])
    assert step(held, calm=True) == ([], [])
    assert step(held, calm=False) == ([], [])
    assert step(held, calm=True) == ([], [])
    assert step(held, calm=True) == ([], [])
    assert step(held, calm=True) == ([(0, 2)], [])
    assert held.fault.tolist() == [NO_FAULT]
    assert step(held, calm=True) == ([], [])


def test_the_same_fault_again_renews_the_alarm_without_a_word():
    held = latch()
    step(held, crossed=True, fault=1)
    step(held, calm=True)
    step(held, calm=True)
    assert step(held, crossed=True, fault=1) == ([], [])
    step(held, calm=True)
    step(held, calm=True)
    assert step(held, calm=True) == ([(0, 1)], [])


def test_another_fault_takes_the_alarm_over():
    held = latch()
    step(held, crossed=True, fault=1)
    assert step(held, crossed=True, fault=3) == ([(0, 1)], [0])
    assert held.fault.tolist() == [3]


def test_other_series_are_left_alone():
    held = Latch(1)
    held.reserve(3)
    both = np.array([0, 2])
    held.update(both, np.array([True, True]), np.array([0, 1], dtype=np.int8), np.zeros(2, bool))
    cleared, _ = held.update(np.array([2]), np.array([False]), np.array([0], dtype=np.int8), np.array([True]))
    assert cleared == [(0, 1)]
    assert held.fault.tolist() == [0, NO_FAULT, NO_FAULT]


def test_an_absent_ece_exceeds_nothing():
    rule = EceThreshold(above=0.0, min_n=0, min_z=0.0)
    assert rule.exceeded(np.array([np.nan, 0.1]), np.array([10, 10]), np.array([5.0, np.nan])).tolist() == [
        False,
        False,
    ]
