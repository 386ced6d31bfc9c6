"""One alert, in the form that both Prometheus rules and Grafana-managed rules are made of.

An alert compares a *value* with a constant. Prometheus gets both in one expression, which is empty while nothing is
wrong; Grafana gets the value as a query and the comparison as a second step, so that its rules have a value to show
while nothing is wrong. All conditions beyond the comparison (enough rows, not already alarmed, traffic flows) are
inside the value: where they do not hold the value is absent, and an absent value never fires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["PER_PROCESS", "Alert", "Severity"]

Severity = Literal["critical", "warning", "info"]

PER_PROCESS: Final = "instance, pod"
"""Labels that name a process. Aggregated away wherever the subject is a model or a topic: after a hand-over the same
series comes from another process for a while from both, and an alert must neither double nor begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What to compare, when to tell, and what to say.

    Attributes
    ----------
    name : str
        The runbook's heading in lower case is its anchor.
    severity : {"critical", "warning", "info"}
        critical: scores or the monitor cannot be trusted now; warning: a working day; info: good to know.
    value : str
        PromQL of what is compared; gated, never NaN where it is compared.
    above, below : float or None
        Exactly one: fires while the value is above (or below) it.
    hold : str
        How long it must last (`for`).
    keep : str
        How long it goes on after its last true evaluation (`keep_firing_for`): for values whose series vanish with a
        restart, a hand-over or a scrape that fails, where an alert would resolve and come back.
    summary, description : str
        Templates with ``$labels`` and ``$value`` only, which Prometheus and Grafana both know.
    more : str
        Further template text with ``query``, which Grafana does not know; Prometheus appends it to the description.
    no_data : {"OK", "Alerting"}
        What Grafana makes of an empty value.
    dashboard : {"overview", "model"}
        Where Grafana links to.
    """

    name: str
    severity: Severity
    value: str
    above: float | None = None
    below: float | None = None
    hold: str
    keep: str = ""
    summary: str
    description: str
    more: str = ""
    no_data: Literal["OK", "Alerting"] = "OK"
    dashboard: Literal["overview", "model"] = "overview"

    def __post_init__(self) -> None:
        """Refuse an alert with both bounds or none."""
        if (self.above is None) == (self.below is None):
            raise ValueError(f"{self.name} needs exactly one of above and below")

    @property
    def anchor(self) -> str:
        """Anchor of the heading in the runbook."""
        return self.name.lower()

    @property
    def operator(self) -> str:
        """Comparison in PromQL."""
        return ">" if self.above is not None else "<"

    @property
    def bound(self) -> float:
        """What the value is compared with."""
        bound = self.above if self.above is not None else self.below
        assert bound is not None
        return bound

    @property
    def expression(self) -> str:
        """The whole condition in PromQL, empty while it does not hold."""
        value = self.value.strip()
        bracketed = f"(\n{_indented(value)}\n)" if "\n" in value else f"({value})"
        return f"{bracketed} {self.operator} {self.bound:.10g}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else line for line in text.splitlines())
