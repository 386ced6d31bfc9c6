"""What the monitor is told, from the configuration."""

from __future__ import annotations

from streamcal.early.cohorts import CohortLayout
from streamcal.early.shift_panes import slot_panes
from streamcal.parts.source_counts import CountSettings
from streamcal.runtime.claims import about_of
from streamcal.runtime.config import Config
from streamcal.runtime.held_roles import MonitorSettings
from streamcal.runtime.idle import IdleRules
from streamcal.runtime.pacing import PacingSettings
from streamcal.runtime.wiring import engine_settings
from streamcal.settings import EngineSettings
from streamcal.stats.layout import SCORE_CLIP
from streamcal.stream.source import SourceSettings

__all__ = ["count_settings", "monitor_settings", "source_settings"]


def monitor_settings(config: Config, version: str) -> MonitorSettings:
    """Everything but the cluster; `version` is that of the product. Raises as `engine_settings` does."""
    engine = engine_settings(config)
    return MonitorSettings(
        engine=engine,
        sources=source_settings(engine),
        counts=count_settings(engine),
        about=about_of(config, version).to_bytes(),
        pacing=PacingSettings(idle=_idle_rules(config), max_pending=config.join.max_pending),
    )


def _idle_rules(config: Config) -> IdleRules:
    join = config.join
    behind_ms = join.idle_timeout.ms + join.out_of_order.ms if join.idle == "clock" else None
    return IdleRules(timeout_s=join.idle_timeout.ms / 1000, behind_clock_ms=behind_ms)


def source_settings(settings: EngineSettings) -> SourceSettings:
    """How one partition is read and joined."""
    return SourceSettings(
        decoders=settings.decoders,
        dimensions=settings.dimensions,
        rules=settings.rules,
        skew_ms=settings.skew_ms,
        out_of_order_ms=settings.out_of_order_ms,
        pane_ms=settings.aggregate.pane_ms,
        score_clip=SCORE_CLIP,
    )


def count_settings(settings: EngineSettings) -> CountSettings:
    """How one partition is counted."""
    pane_ms = settings.aggregate.pane_ms
    panes = [spec.panes for spec in settings.aggregate.windows]

    def cohorts(horizon_ms: int) -> CohortLayout:
        return CohortLayout.over_panes(horizon_ms, pane_ms, max(panes))

    return CountSettings(
        cuts=settings.cuts,
        max_segments=settings.max_segments,
        pane_ms=pane_ms,
        slot_ms=slot_panes(panes) * pane_ms,
        by_outcome_time=settings.aggregate.by_outcome_time,
        skew_ms=settings.skew_ms,
        cohorts=cohorts,
        step_ms=lambda model: settings.loop(model).step_ms,
        corrected=settings.corrected,
    )
