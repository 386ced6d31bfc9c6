"""Up to when nothing a source counts can change any more.

A row of a prediction made at t_p is counted, moved or taken out only while its prediction can still be accepted
(t_p >= the prediction watermark) or an outcome can still match it (t_p + horizon >= the outcome watermark); and the
times it is counted under are t_p itself and outcome times from t_p - skew on. So what lies before the lower of the
prediction watermark and the outcome watermark less the horizon, less the skew, is final in every family of counts.
"""

from __future__ import annotations

__all__ = ["final_before_ms"]


def final_before_ms(watermarks: tuple[int, int], horizon_ms: int, skew_ms: int) -> int:
    """Event time before which the counts of a source are final.

    Parameters
    ----------
    watermarks : pair of int
        Of its predictions and of its outcomes, ms.
    horizon_ms, skew_ms : int

    >>> final_before_ms((900, 1000), 200, 5)
    795
    """
    predictions, outcomes = watermarks
    return min(predictions, outcomes - horizon_ms) - skew_ms
