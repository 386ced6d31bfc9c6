"""Payoffs: the e-process of row-by-row data, and expectations enumerated over every outcome of small bins."""

import itertools

import numpy as np
import pytest
from stats_oracle import oracle_rows, tally

from streamcal.detect.bets import FAULTS, PaneCells, bet_set, log_payoff, log_payoffs, pane_cells
from streamcal.detect.evidence import advance

# Bernoulli likelihood ratios over the 5,000 oracle rows in order of id, by an independent program; the bet is
# q = sigmoid(a x + b). Sum of log e; final logarithm of M = e (M + 1); final of C = e max(C, 1); largest log M.
E_PROCESSES = {
    (1.0, 0.2): (-3.8489236161752984, 6.1876909065849235, 0.13765743872130462, 9.066516647981095),
    (1.0, -0.2): (-11.255514970863912, 7.330401617228003, 1.078230190961084, 7.475731134762499),
    (0.8, 0.0): (13.209528362996942, 20.55910160533745, 15.349234930942838, 22.288814900304352),
    (1.25, 0.0): (-90.18025032651789, 5.045286772729428, 0.36377386294228164, 6.270495581795987),
    (0.8, -0.3): (23.624426925517845, 30.483789586957776, 24.93708745042174, 30.690596879082612),
}


def rows_as_cells(p, y):
    """Each row a cell of a series of its own."""
    size, n = len(p), np.ones(len(p))
    p = np.asarray(p, dtype=float)
    x = np.log(p / (1 - p))
    return PaneCells(np.arange(size), np.ones(size, int), n, np.asarray(y, float), p, x, np.zeros(size, np.int8))


def one_bin(p, y):
    """All rows in one cell, as a bin would hold them."""
    mean, size = float(np.mean(p)), len(p)
    x = np.log([mean / (1 - mean)])
    part = (np.array([0]), np.array([1]), np.array([float(size)]), np.array([float(np.sum(y))]))
    return PaneCells(*part, np.array([mean]), x, np.zeros(1, np.int8))


@pytest.mark.parametrize(("slope", "intercept"), list(E_PROCESSES))
def test_row_by_row_the_payoffs_are_those_of_the_reference_e_process(slope, intercept):
    rows = oracle_rows()
    cells = rows_as_cells(np.clip(rows.p, 1e-6, 1 - 1e-6), rows.y)
    log_e = log_payoff(cells, (slope - 1) * cells.x + intercept)
    log_m, log_c, most = np.array(-np.inf), -np.inf, -np.inf
    for step in log_e:
        log_m = advance(log_m, step)
        log_c = step + max(log_c, 0.0)
        most = max(most, float(log_m))
    total, final, cusum, largest = E_PROCESSES[slope, intercept]
    assert log_e.sum() == pytest.approx(total, abs=1e-9)
    assert float(log_m) == pytest.approx(final, abs=1e-9)
    assert log_c == pytest.approx(cusum, abs=1e-9)
    assert most == pytest.approx(largest, abs=1e-9)


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("p", [[0.02, 0.3, 0.5, 0.9], [0.001, 0.001, 0.004], [0.2, 0.21, 0.22, 0.95, 0.99]])
def test_a_bin_of_unequal_scores_pays_at_most_one_on_average_for_every_bet_and_every_tolerated_rate(p, tolerance):
    p, bets = np.array(p), bet_set(tolerance)
    worst = np.zeros(len(bets))
    for off in (-tolerance, -tolerance / 2, 0.0, tolerance):
        rate = 1 / (1 + (1 - p) / p * np.exp(-off))
        mean = np.zeros(len(bets))
        for y in itertools.product((0, 1), repeat=len(p)):
            chance = np.prod(np.where(y, rate, 1 - rate))
            mean += chance * np.exp(log_payoffs(one_bin(p, y), bets, np.array([-1.0]))[:, 0])
        worst = np.maximum(worst, mean)
    assert (worst <= 1 + 1e-12).all()
    assert worst.max() > 0.5


def test_equal_scores_pay_exactly_one_on_average():
    p, bets = np.full(5, 0.3), bet_set(0.0)
    mean = np.zeros(len(bets))
    for y in itertools.product((0, 1), repeat=len(p)):
        mean += np.prod(np.where(y, p, 1 - p)) * np.exp(log_payoffs(one_bin(p, y), bets, np.array([-2.0]))[:, 0])
    np.testing.assert_allclose(mean, 1.0, rtol=1e-12)


def test_level_and_slope_bets_pay_what_the_general_formula_says():
    draw = np.random.default_rng(1)
    p = draw.uniform(0.001, 0.999, 40)
    y = draw.random(40) < p
    _, cells = pane_cells(np.zeros(284, int), np.arange(284), tally(p, y))
    for tolerance in (0.0, 0.15):
        bets, m = bet_set(tolerance), -0.7
        paid = log_payoffs(cells, bets, np.array([m]))[:, 0]
        shifts = [np.full(len(cells.x), b) for b in bets.levels] + [(a - 1) * (cells.x - m) for a in bets.slopes]
        for k, shift in enumerate(shifts):
            q, h = (1 / (1 + np.exp(-cells.x - s)) for s in (shift, np.clip(shift, -tolerance, tolerance)))
            direct = (cells.y * np.log(q / h) + (cells.n - cells.y) * np.log((1 - q) / (1 - h))).sum()
            assert paid[k] == pytest.approx(direct, abs=1e-10)


def test_without_a_pivot_slope_bets_are_not_played():
    paid = log_payoffs(one_bin([0.2, 0.3], [1, 0]), bet_set(0.0), np.array([np.nan]))[:, 0]
    assert (paid[8:] == 0).all()
    assert (paid[:8] != 0).all()


def test_the_cells_of_a_pane_have_the_mean_scores_of_their_rows():
    draw = np.random.default_rng(2)
    p = 1 / (1 + np.exp(-draw.normal(-4, 2, 500)))
    y = draw.random(500) < p
    series, cells = pane_cells(np.full(284, 7), np.arange(284), tally(p, y, draw.uniform(0, 3, 500)))
    assert series.tolist() == [7]
    assert cells.n.sum() == 500
    assert cells.y.sum() == y.sum()
    assert (cells.n * cells.p).sum() == pytest.approx(p.sum(), abs=1e-8)


def test_scores_of_zero_and_one_lose_no_validity_to_the_clip():
    for score, dead in ((0.0, slice(0, 4)), (1.0, slice(4, 8))):
        _, cells = pane_cells(np.zeros(284, int), np.arange(284), tally([score] * 50, [score == 1] * 50))
        paid = log_payoffs(cells, bet_set(0.0), np.array([0.0]))[:, 0]
        assert (paid[dead] == 0).all()
        assert (np.exp(paid) <= 1 + 1e-12).all()


def test_bets_inside_the_band_leave_their_weight_to_the_others():
    assert len(bet_set(0.0)) == 14
    assert len(bet_set(0.1)) == 12
    assert [FAULTS[f] for f in bet_set(0.4).fault] == ["scores_too_high", "scores_too_low"] + ["over_confident"] * 3 + [
        "under_confident"
    ] * 3
    for tolerance in (-0.1, 0.8):
        with pytest.raises(ValueError, match="no bet lies beyond"):
            bet_set(tolerance)
