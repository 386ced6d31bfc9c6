"""phi against a recount: exact logistic fit of all past rows, residuals of whole blocks about it."""

from itertools import pairwise

import numpy as np
import pytest
from alarm_streams import cells, panes, scores, shocks
from scipy.special import expit

from streamcal.detect.bets import pane_cells
from streamcal.detect.dispersion import MOST_CAUTION, Dispersion, _residuals, block_lengths
from streamcal.detect.pane_fit import solve
from streamcal.stats.platt import fit_platt


def run(grid, stream, panes_per_day=32, epochs=()):
    """A Dispersion after a stream, its runs, and the panes given."""
    given = list(stream)
    dispersion = Dispersion(panes_per_day)
    runs = len(given[0].n)
    dispersion.reserve(runs)
    for pane, rows in enumerate(given):
        if pane in epochs:
            dispersion.new_epoch(np.arange(runs))
        series, found = pane_cells(*cells(grid, rows))
        dispersion.close(pane, series)
        dispersion.add(pane, series, found)
    return dispersion, given


def recount(grid, given, length, run_of):
    """Level phi of one run and block length by an exact fit over the panes of whole blocks."""
    whole = len(given) // length * length
    n = np.array([rows.n[run_of] for rows in given[:whole]]).reshape(-1, length, len(grid.p)).sum(axis=1)
    y = np.array([rows.y[run_of] for rows in given[:whole]]).reshape(n.shape[0], length, -1).sum(axis=1)
    design = np.stack([np.ones_like(grid.x), grid.x], axis=1)
    theta = np.array([0.0, 1.0])
    for _ in range(50):
        rate = expit(design @ theta)
        information = (design.T * (n.sum(axis=0) * rate * (1 - rate))) @ design
        theta = theta + np.linalg.solve(information, design.T @ (y.sum(axis=0) - n.sum(axis=0) * rate))
    gap = (y - n * rate).sum(axis=1)
    cross = (n * rate * (1 - rate)) @ design
    free = cross[:, 0].sum() - np.einsum("bi,ij,bj->", cross, np.linalg.inv(information), cross)
    return (gap**2).sum() / free


@pytest.mark.parametrize("off", [0.0, 1.0])
def test_phi_of_every_block_length_is_that_of_an_exact_refit_of_the_past(off):
    grid = scores(0.05)
    shocked = shocks(grid, 3, 320, 1, sd=0.3, memory=0.8)
    rates = (1 / (1 + (1 - rate) / rate * np.exp(-off)) for rate in shocked)
    dispersion, given = run(grid, panes(grid, 3, 800, 2, rates), panes_per_day=320)  # one day: nothing fades
    dispersion._close_blocks(np.arange(3), np.full(len(dispersion.lengths), -1))
    (squares, variances), _ = _residuals(dispersion.epoch, dispersion.sums)
    for level, length in enumerate(dispersion.lengths[:-1]):
        for series in range(3):
            mine = squares[level, series] / variances[level, series]
            assert mine == pytest.approx(recount(grid, given, length, series), rel=0.05)


def test_phi_is_one_until_twenty_blocks_and_cautious_until_then():
    grid = scores(0.1)
    stream = panes(grid, 1, 500, 3, shocks(grid, 1, 40, 3, sd=0.5, memory=0.0))
    dispersion, found = Dispersion(1440), []
    dispersion.reserve(1)
    for pane, rows in enumerate(stream):
        series, held = pane_cells(*cells(grid, rows))
        found.append(dispersion.close(pane, series))
        dispersion.add(pane, series, held)
    assert [float(now.phi[0]) for now in found[:20]] == [1.0] * 20
    assert found[0].caution[0] == MOST_CAUTION
    assert found[30].phi[0] > 3
    assert found[30].caution[0] == 1.0


def test_miscalibration_is_not_dispersion():
    grid = scores(0.05)
    pivot = grid.pivot
    rate = expit(pivot + 0.7 * (grid.x - pivot) + 0.4)
    dispersion, _ = run(grid, panes(grid, 40, 1000, 4, [rate] * 300))
    assert dispersion.phi(np.arange(40)).phi.mean() < 1.35
    assert dispersion.phi(np.arange(40)).phi.max() < 2.5


def test_independent_outcomes_have_a_mean_phi_of_little_more_than_one():
    grid = scores(0.05)
    dispersion, _ = run(grid, panes(grid, 60, 500, 5, [grid.p] * 700), panes_per_day=1440)
    assert 1.0 <= dispersion.phi(np.arange(60)).phi.mean() < 1.3


def test_phi_grows_to_the_variance_of_sums_under_correlated_shocks():
    grid = scores(0.01)
    runs, sd, memory, rows = 40, 0.2, 0.9, 1000
    dispersion, _ = run(grid, panes(grid, runs, rows, 6, shocks(grid, runs, 2500, 6, sd=sd, memory=memory)), 1440)
    variance = rows * (grid.share * grid.p * (1 - grid.p)).sum()
    shared = np.expm1(sd * sd) * (rows * 0.01) ** 2 / variance
    # The log-normal's autocorrelation falls a little faster than .9^k; 1.9 / .1 bounds its sum.
    limit = 1 + shared * (1 + memory) / (1 - memory)
    assert 0.75 * limit < dispersion.phi(np.arange(runs)).phi.mean() < 1.5 * limit


def test_a_new_epoch_fits_afresh_and_keeps_what_was_known_of_phi():
    grid = scores(0.05)
    half = [expit(grid.x + 0.8)] * 200
    steady, _ = run(grid, panes(grid, 30, 500, 7, [grid.p] * 200 + half), epochs=(200,))
    mixed, _ = run(grid, panes(grid, 30, 500, 7, [grid.p] * 200 + half))
    assert steady.phi(np.arange(30)).phi.mean() < 1.5
    assert mixed.phi(np.arange(30)).phi.mean() > 5
    assert (steady.phi(np.arange(30)).lengths > 0).all()
    before, _ = run(grid, panes(grid, 30, 500, 7, shocks(grid, 30, 200, 7, sd=0.5, memory=0.0)))
    known = before.phi(np.arange(30)).phi
    before.new_epoch(np.arange(30))
    np.testing.assert_allclose(before.phi(np.arange(30)).phi, known, rtol=0.35)


def test_old_blocks_fade():
    grid = scores(0.05)
    wild = shocks(grid, 20, 320, 8, sd=0.5, memory=0.0)
    dispersion, _ = run(grid, panes(grid, 20, 500, 8, [*wild, *[grid.p] * 32 * 30]), panes_per_day=32)
    late = Dispersion(32)
    late.reserve(20)
    for pane, rows in enumerate(panes(grid, 20, 500, 8, [*shocks(grid, 20, 320, 8, sd=0.5, memory=0.0)])):
        series, found = pane_cells(*cells(grid, rows))
        late.close(pane, series)
        late.add(pane, series, found)
    assert dispersion.phi(np.arange(20)).phi.mean() < 0.5 * late.phi(np.arange(20)).phi.mean()


def test_first_pane_of_a_grossly_wrong_score_is_expanded_at_its_own_fit():
    grid = scores(0.01)
    rate = expit(grid.x + 2.5)
    rows = next(panes(grid, 5, 20_000, 9, [rate]))
    series, found = pane_cells(*cells(grid, rows))
    dispersion = Dispersion(32)
    dispersion.reserve(5)
    dispersion.close(0, series)
    dispersion.add(0, series, found)
    (intercept, slope), _ = solve(dispersion.epoch)
    counts = np.zeros((5, 284, 9), dtype=np.int64)
    of, bins, values = cells(grid, rows)
    np.add.at(counts, (of, bins), values)
    fit = fit_platt(counts)
    middle = grid.pivot
    exact = fit.intercept + (fit.slope - 1) * middle
    np.testing.assert_allclose(intercept + slope * middle, exact, atol=0.03)


@pytest.mark.parametrize("panes_per_day", [1, 24, 96, 1440, 17_280])
def test_block_lengths_nest_and_end_with_a_day(panes_per_day):
    lengths = block_lengths(panes_per_day)
    assert lengths[0] == 1
    assert lengths[-1] == panes_per_day
    assert all(longer % shorter == 0 for shorter, longer in pairwise(lengths))
