"""Logit and sigmoid against 40 decimal digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from streamcal.maps.link import logit, logit_one, sigmoid, sigmoid_one

RNG = np.random.default_rng(11)
P = np.concatenate([RNG.random(500), 0.5 + RNG.normal(0, 1e-4, 200), 10 ** -RNG.uniform(0, 7, 300)])
P = np.concatenate([P, 1 - P[700:]])


def test_the_logit_is_right_to_the_last_place() -> None:
    with localcontext() as context:
        context.prec = 40
        exact = [(Decimal(p) / (1 - Decimal(p))).ln() for p in P.tolist()]
        errors = [float(abs(Decimal(x) - e)) for x, e in zip(logit(P).tolist(), exact, strict=True)]
    assert (np.array(errors) <= np.maximum(1.5 * np.spacing(np.abs(logit(P))), 3e-16)).all()


def test_the_sigmoid_is_right_to_the_last_places() -> None:
    z = RNG.uniform(-30, 30, 500)
    with localcontext() as context:
        context.prec = 40
        exact = np.array([float(1 / (1 + (-Decimal(v)).exp())) for v in z.tolist()])
    np.testing.assert_allclose(sigmoid(z.copy()), exact, rtol=5e-16)


def test_scalars_equal_arrays_to_the_bit() -> None:
    x = logit(P)
    assert x.tolist() == [logit_one(p) for p in P.tolist()]
    z = np.concatenate([x, [-1e6, -800.0, 800.0, 1e6]])
    assert sigmoid(z.copy()).tolist() == [sigmoid_one(v) for v in z.tolist()]


def test_the_sigmoid_stays_inside_at_any_logit() -> None:
    ends = sigmoid(np.array([-1e300, -700.0, 37.0, 1e300]))
    assert ((ends > 0) & (ends < 1)).all()
