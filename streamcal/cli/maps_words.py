"""What the reason of a refusal means, and what to do about it."""

from __future__ import annotations

from typing import Final

__all__ = ["REASONS", "in_words"]

REASONS: Final[dict[str, tuple[str, str]]] = {
    "too_few_labels": (
        "the fit window holds fewer labels of either class than refit.min_count",
        "wait for labels, or lower refit.min_count or lengthen refit.fit_window",
    ),
    "too_few_holdout": (
        "too few labels became known since the last change to judge by",
        "wait for labels; `maps promote` needs no judgement",
    ),
    "slope_not_positive": (
        "the labels do not rise with the scores, so there is no map to fit",
        "check that outcomes join the right predictions and that labels are not flipped",
    ),
    "not_finite": (
        "the fit did not settle",
        "look at the scores of the window: few distinct ones, or all of one class",
    ),
    "step_too_large": (
        "the map would move served scores by more than 1.5 logits, more often a fault than a correction",
        "look at `maps diff`; where it is right, `maps promote` takes any step",
    ),
    "mean_off": (
        "the newest labels contradict the mean of what the map would serve, by more than 4 standard errors",
        "look at the status page: labels or scores have changed, and a map fitted before does not hold",
    ),
    "no_gain": (
        "no family has been better than the map in force by enough",
        "nothing is to be done; `maps diff` shows what a family would change",
    ),
    "cooling_down": ("the map in force is too new to be judged", "wait one horizon, or use `maps promote`"),
    "pinned": ("a person has stopped automatic changes", "`maps unpin` lets them go on"),
}
"""Reason to what it says and what to do; those of `streamcal.maps.policy`, which are labels of metrics too."""


def in_words(detail: str) -> tuple[str, str]:
    """What was refused and what to do, from the daemon's answer.

    >>> in_words("pinned")
    ('pinned: a person has stopped automatic changes', '`maps unpin` lets them go on')
    """
    if detail in REASONS:
        words, hint = REASONS[detail]
        return f"{detail}: {words}", hint
    what, _, hint = detail.partition("\n")
    return what.strip() or "no reason was given", hint.strip()
