"""Events of calibrated streams whose positives are slow, for the whole machine."""

from __future__ import annotations

import numpy as np
from alarm_streams import delayed
from engine_streams import HOUR_MS, START_MS
from recount_events import Event


def calibrated_events(seed: int, days: int, per_hour: float, *, positives_only: bool) -> list[Event]:
    """Positives six hours late, negatives one, traffic that follows the day."""
    rows = delayed(seed, days, per_hour)
    made, known = (START_MS + (hours * HOUR_MS).astype(np.int64) for hours in (rows.made, rows.known))
    timed: list[tuple[int, Event]] = []
    for i, (p, y) in enumerate(zip(rows.p.tolist(), rows.y.tolist(), strict=True)):
        value = {"id": f"i{i}", "ts": int(made[i]), "score": p}
        timed.append((int(made[i]), ("p", 0, value, None)))
        if y or not positives_only:
            timed.append((int(known[i]), ("o", 0, {"id": f"i{i}", "ts": int(known[i]), "label": y}, None)))
    return [event for _, event in sorted(timed, key=lambda entry: entry[0])]
