import pytest

from streamcal.detect.sealing import Sealing, sealed_before


def test_a_pane_is_used_only_when_every_source_has_sealed_it():
    sealing = Sealing([0, 1, 2])
    sealing.seal(0, 10)
    sealing.seal(1, 7)
    assert sealing.before is None
    assert sealing.blocking == 2
    sealing.seal(2, 9)
    assert sealing.before == 7
    assert sealing.blocking == 1
    sealing.seal(1, 12)
    assert sealing.before == 9
    assert sealing.blocking == 2


def test_what_was_sealed_stays_sealed():
    sealing = Sealing([4])
    sealing.seal(4, 10)
    sealing.seal(4, 3)
    assert sealing.before == 10


def test_an_unknown_source_is_refused():
    with pytest.raises(KeyError):
        Sealing([0]).seal(1, 5)


def test_without_sources_nothing_is_sealed_and_nothing_blocks():
    assert Sealing([]).before is None
    assert Sealing([]).blocking is None


def test_state_comes_back():
    sealing = Sealing([0, 1])
    sealing.seal(1, 8)
    again = Sealing.from_state(sealing.state())
    assert again.state() == {0: None, 1: 8}
    assert again.blocking == 0


@pytest.mark.parametrize(
    ("prediction", "outcome", "before"),
    [(60, 10_000, 1), (59, 10_000, 0), (600, 160, 0), (600, 161, 1), (600, 220, 1), (600, 221, 2), (-1, 10_000, -1)],
)
def test_a_pane_needs_its_end_reached_and_its_horizon_passed(prediction, outcome, before):
    assert sealed_before(prediction, outcome, horizon_ms=100, pane_ms=60) == before
