import numpy as np
import pytest

from streamcal.detect.evidence import advance, log_evidence, log_threshold


def test_the_recursion_is_the_sum_over_onsets():
    e = np.exp(np.random.default_rng(1).normal(0, 1, (30, 3)))
    log_m = np.full(3, -np.inf)
    for step in e:
        log_m = advance(log_m, np.log(step))
    onsets = sum(e[onset:].prod(axis=0) for onset in range(30))
    np.testing.assert_allclose(np.exp(log_m), onsets, rtol=1e-12)


def test_before_any_pane_there_is_no_evidence():
    assert log_evidence(np.full((14, 2), -np.inf)).tolist() == [-np.inf, -np.inf]


def test_evidence_is_the_mean_over_the_bets_however_large():
    assert log_evidence(np.log([[2.0], [4.0]]))[0] == pytest.approx(np.log(3.0))
    assert log_evidence(np.array([[5000.0], [5000.0]]))[0] == pytest.approx(5000.0)


def test_the_budget_is_shared_and_scales():
    alone = log_threshold(43_200, 1.0, 1)
    assert alone == pytest.approx(np.log(43_200))
    assert log_threshold(43_200, 1.0, 1000) == pytest.approx(alone + np.log(1000))
    assert log_threshold(43_200, 4.0, 1) == pytest.approx(alone - np.log(4))
    assert log_threshold(10, 1000.0, 1) == 0.0


@pytest.mark.parametrize("bad", [(0, 1.0, 1), (10, 0.0, 1), (10, 1.0, 0)])
def test_a_budget_of_nothing_is_refused(bad):
    with pytest.raises(ValueError, match="not all above 0"):
        log_threshold(*bad)
