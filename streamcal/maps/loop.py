"""The refit loop of one model: what is in force, what was tried, and why.

Everything here is a function of frozen rows and of event time: an attempt reads the panes that nothing can change any
more (see `streamcal.stream.join`), so a replay decides what the run decided. An attempt that no new row has come for
does nothing at all: whether time is told of it depends on which log was ahead.

Corrections per segment stand beside the map in force and are put there, moved and taken back by `corrections`.

Attempts are made on *schedule*, at each multiple of ``refit.every``; when an *alarm* begins; and when a person asks
(`MapRequest`). Each of them judges what has become known (`evidence`), lets the watch take back a map that is worse
than its parent (`incumbent`), fits every family again (`challengers`), and decides (`policy`). With ``mode: shadow``
all of it happens to candidates that are published under a key of their own and never applied.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StreamcalError
from streamcal.maps.challengers import TRACKING, Challengers
from streamcal.maps.corrected import CorrectedHolder, in_shadow, made
from streamcal.maps.corrections import Corrections
from streamcal.maps.document import Counts, FitWindow, MapDocument, encode
from streamcal.maps.evidence import Evidence
from streamcal.maps.families import Map
from streamcal.maps.guards import LARGEST_STEP, dispersion, largest_step, mean_is_off, scarcer
from streamcal.maps.judged import judged_rows
from streamcal.maps.ledger import MapAttempt, MapRequest, Trigger
from streamcal.maps.loop_settings import LoopSettings
from streamcal.maps.policy import WAGER, Decision, decide
from streamcal.maps.publishing import PublishMap, shadow_key, shadowed_model
from streamcal.maps.wanted import Attempted, document_of, map_to_go_back_to, map_to_promote
from streamcal.stats.counts import Column
from streamcal.stats.fit_panes import Entered, FitPanes
from streamcal.stats.segment_panes import SegmentPanes

__all__ = ["LoopSettings", "MapAttempt", "MapRequest", "ModelLoop", "PublishMap", "shadow_key", "shadowed_model"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NOTHING_CHANGES: Final = ("cooling_down", "pinned", "too_few_labels")
"""Refusals that keep corrections per segment from coming into force too."""

_SMALLEST_MOVE: Final = 0.005
"""Logits by which a tracking filter's map must have moved to be published: a twentieth of the tolerance of alarms."""


class ModelLoop(CorrectedHolder):
    """Keeps the map of one model and tries to better it.

    Parameters
    ----------
    settings : LoopSettings
    name : str
        The model.
    fits : FitPanes
        What its fits read; must be empty still.
    segments : SegmentPanes, optional
        What its corrections read; without it there are none.

    Attributes
    ----------
    pinned : bool
        Whether a person has stopped automatic changes.
    challengers : Challengers
    """

    STATE = ("ledger", "pinned", "evidence", "corrections", "challengers", "champion", "candidate", "_epochs")
    ADDED = ("corrections",)

    def __init__(self, settings: LoopSettings, name: str, fits: FitPanes, segments: SegmentPanes | None = None) -> None:
        self.pinned = False
        self.challengers = Challengers(settings.challengers())
        families = self.challengers.families
        bar = settings.bar(len(families))
        corrected = None if segments is None else settings.corrections(bar)
        super().__init__(
            settings,
            name,
            Evidence(families, settings.every_ms, settings.fit_window_ms, bar),
            None if corrected is None else Corrections(corrected),
        )
        self._fits, self._segments = fits, segments
        fits.step_ms = settings.step_ms

    @property
    def every_ms(self) -> int:
        """Attempts are made at multiples of this."""
        return self.settings.every_ms

    @property
    def span_ms(self) -> int:
        """How long after the last row an attempt still reads anything."""
        return self.settings.fit_window_ms + self.settings.maturity_ms

    def attempt(self, moment_ms: int) -> list[PublishMap]:
        """Try on what is final at `moment_ms`, a multiple of `every_ms`."""
        return list(self._attempt(moment_ms, "schedule").commands)

    def alarm(self, moment_ms: int) -> list[PublishMap]:
        """Try because an alarm of the whole model has begun.

        To be called at a moment of event time that the logs determine, no earlier than the last one given here:
        panes that end by then are read for good. An alarm lowers no bar; with a long ``refit.every`` it saves waiting.
        """
        return list(self._attempt(moment_ms, "alarm").commands)

    def manual(self, moment_ms: int, request: MapRequest) -> Attempted:
        """Do what a person asks at `moment_ms` of event time.

        ``refit`` is an attempt now, whether pinned or cooling down. ``promote`` needs no gain and may take any step;
        labels that contradict the map's mean still refuse it. ``rollback`` goes to the parent or to a version of the
        history that was in force. ``pin`` stops automatic changes, ``unpin`` lets them go on.

        Raises
        ------
        StreamcalError
            The version or family asked for is not known or in force already, or nothing is fitted here; nothing has
            changed.
        """
        match request.what:
            case "pin" | "unpin":
                if self.pinned == (request.what == "pin"):
                    return Attempted([], True, f"{request.what}ned already")
                self.pinned = request.what == "pin"
                self.history.append(self._entry(request.what, moment_ms, "manual", request, promoted=False))
                return Attempted([], True, f"{request.what}ned")
            case "refit":
                if self.settings.mode == "off" or not self.challengers.families:
                    raise StreamcalError("nothing is fitted for this model", hint="set refit.mode to auto or shadow")
                return self._attempt(moment_ms, "manual", request)
            case "rollback" if request.version is None and self._is_table_last():
                self.results["rolled_back", "manual"] += 1
                return self._turn(moment_ms, self._entry("rollback", moment_ms, "manual", request), on=False)
            case "rollback":
                wanted = map_to_go_back_to(request, self.history, self.champion)
                wanted.check_new(self.champion)
                self.results["rolled_back", "manual"] += 1
                old, map_ = self.champion.document, wanted.map_
                entries = self._entries(wanted.source)
                document = self.ledger.document(map_, at_ms=moment_ms, parent=old, like=wanted.source, segments=entries)
                entry = self._entry("rollback", moment_ms, "manual", request)
                return made(document, self._put_in_force(document, map_, None, entry))
            case "promote":
                return self._promote_as_asked(moment_ms, request)

    # --- one attempt ---------------------------------------------------------------------------------------------

    def _attempt(self, moment_ms: int, trigger: Trigger, request: MapRequest | None = None) -> Attempted:
        stop = (moment_ms - self.settings.maturity_ms) // self.settings.pane_ms
        # Panes are let go even where nothing is fitted.
        start = stop - self.settings.fit_window_ms // self.settings.pane_ms
        fresh = self._fits.move(start, stop)
        entered = self._fits.take_entered()
        of_segments = None if self._segments is None else self._segments.take(start, stop)
        if self.settings.mode == "off" or not self.challengers.families or not (fresh or request):
            return Attempted([], False, "")
        self._judge(entered, moment_ms)
        self._correct(of_segments, self.challengers.usable(), moment_ms)
        if self._has_foreign_entries():
            return self._turn(moment_ms, self._entry("segments", moment_ms, trigger, request), on=False)
        if self._is_worse_than_parent():
            return self._roll_back(moment_ms, self._entry("worse_than_parent", moment_ms, trigger, request))
        if not self.pinned and self._is_worse_corrected(self._fits):
            self.results["rolled_back", "worse_than_parent"] += 1
            return self._turn(moment_ms, self._entry("worse_than_parent", moment_ms, trigger, request), on=False)
        self.challengers.refit(self._fits.whole(), moment_ms, due=trigger != "schedule")
        decision = self._decide(moment_ms, trigger)
        if decision.promoted and self.challengers.fitted_ms != moment_ms:
            self.challengers.refit(self._fits.whole(), moment_ms, due=True)
            decision = self._decide(moment_ms, trigger)
        if decision.map_ is None and decision.reason not in _NOTHING_CHANGES and self._may_correct(moment_ms):
            self.results["promoted", ""] += 1
            return self._turn(moment_ms, self._entry("segments", moment_ms, trigger, request), on=True)
        if decision.map_ is None:
            entry = self._entry(decision.reason, moment_ms, trigger, request, promoted=False, family=decision.family)
            self.ledger.refuse(entry)
            return Attempted(self._publication(moment_ms), False, decision.reason)
        self.results["promoted", ""] += 1
        document = self._fitted(decision.map_, moment_ms, decision)
        entry = self._entry("", moment_ms, trigger, request)
        return self._tried(document, decision.map_, self._judged.map_, entry, reference=decision.map_.family)

    def _judge(self, entered: Entered, moment_ms: int) -> None:
        """Add up what the rows that became known say, then let the tracking filter learn from them."""
        rows = judged_rows(entered, self.settings.step_ms).since(self._judged.since_ms)
        if len(rows):
            loss = self._judged.judge(rows)
            gains = {family: loss - of_family for family, of_family in self.challengers.losses(rows).items()}
            known = np.logical_or.reduce([~np.isnan(gain) for gain in gains.values()])
            if known.any():
                sums = {family: float(np.nansum(gain)) for family, gain in gains.items()}
                self.evidence.add(moment_ms, sums, int(rows.n[known].sum()), int(rows.positives[known].sum()))
        self.challengers.learn(entered, moment_ms, self._fits.stop)

    def _decide(self, moment_ms: int, trigger: Trigger) -> Decision:
        judged, least = self._judged, self.settings.min_count
        fitted_on = judged.fitted_on
        decision = decide(self.evidence, self.challengers, self._fits, judged.map_, least, fitted_on=fitted_on)
        reason = ""
        if trigger != "manual" and self._judged.cools_until(self.settings.cool_down_ms) > moment_ms:
            reason = "cooling_down"
        if trigger != "manual" and self.pinned:
            reason = "pinned"
        return Decision(reason, decision.family, None, decision.evidence) if reason else decision

    def _is_worse_than_parent(self) -> bool:
        """Whether the odds are 20 to 1 that it should not have been promoted.

        Taken to the power 1 / phi as alarms do: on flights, where whole days are late together (phi 36 in the median),
        18 of 42 promotions would be taken back otherwise, most of them on account of one day's weather.
        """
        judged = self._judged
        if self.pinned or judged.parent is None or judged.parent_gain < WAGER or not len(self._fits.rows):
            return False
        return judged.parent_gain >= WAGER * dispersion(self._fits)

    def _roll_back(self, moment_ms: int, entry: MapAttempt) -> Attempted:
        judged = self._judged
        assert judged.parent is not None
        self.results["rolled_back", "worse_than_parent"] += 1
        evidence = {"parent_gain": judged.parent_gain}
        reference, segments = self._of_parent()
        document = self.ledger.document(
            judged.parent,
            at_ms=moment_ms,
            parent=judged.document,
            evidence=evidence,
            like=document_of(judged.parent, self.history),
            segments=segments,
        )
        return self._tried(document, judged.parent, None, entry, reference=reference)

    def _publication(self, moment_ms: int) -> list[PublishMap]:
        """What the tracking filter and the corrections say now, as far as they are in force and have moved."""
        if self.pinned:
            return []
        judged, map_ = self._judged, self._moved()
        corrected = self.corrections is not None and self.corrections.publish(moment_ms)
        if map_ is None and not corrected:
            return []
        like = judged.document if map_ is None else None
        document = self.ledger.document(
            map_ or judged.map_, at_ms=moment_ms, parent=judged.document, like=like, segments=self._table()
        )
        judged.publish(document, map_ or judged.map_, moment_ms, self.settings.memory_ms)
        if judged is not self.champion:
            return [PublishMap(shadow_key(self.name), encode(document))]
        self._epochs.publish(document.version)
        self.ledger.publish(document)
        return [PublishMap(self.name, encode(document))]

    def _moved(self) -> Map | None:
        """The tracking filter's map, where that is the one to better, has moved, and passes its guards."""
        judged = self._judged
        if judged.map_.family != TRACKING or TRACKING not in self.challengers.families:
            return None
        map_ = self.challengers.newest(TRACKING)
        if isinstance(map_, str):
            return None
        step = largest_step(self._fits.whole(), judged.map_, map_)
        return map_ if _SMALLEST_MOVE <= step <= LARGEST_STEP else None

    # --- what is in force ----------------------------------------------------------------------------------------

    def _promote_as_asked(self, moment_ms: int, request: MapRequest) -> Attempted:
        counts, least = self._fits.whole(), self.settings.min_count
        wanted = map_to_promote(request, self.history, self.candidate, self.challengers, counts)
        wanted.check_new(self.champion)
        map_, old = wanted.map_, self.champion
        if scarcer(counts) >= least and mean_is_off(self._fits, map_, least):
            entry = self._entry("mean_off", moment_ms, "manual", request, promoted=False, family=map_.family)
            self.ledger.refuse(entry)
            return Attempted([], False, "mean_off")
        self.results["promoted", ""] += 1
        document = self._fitted(map_, moment_ms) if wanted.fitted else None
        document = document or self.ledger.document(
            map_,
            at_ms=moment_ms,
            parent=old.document,
            like=wanted.source,
            segments=self._entries(wanted.source),
        )
        entry, reference = self._entry("", moment_ms, "manual", request), map_.family if wanted.fitted else None
        return made(document, self._put_in_force(document, map_, old.map_, entry, reference))

    def _tried(
        self, document: MapDocument, map_: Map, parent: Map | None, entry: MapAttempt, *, reference: str
    ) -> Attempted:
        """What an attempt that made a document came to."""
        command = self._change(document, map_, parent, entry, reference)
        if self.settings.mode == "auto":
            return made(document, command)
        return Attempted([command], True, in_shadow(document))

    def _fitted(self, map_: Map, moment_ms: int, decision: Decision | None = None) -> MapDocument:
        """A document of a map fitted to the window as it stands."""
        stop, pane_ms = self._fits.stop, self.settings.pane_ms
        start = stop - self.settings.fit_window_ms // pane_ms
        n, positives = self._fits.whole()[:, [Column.N, Column.Y]].sum(axis=0).tolist()
        return self.ledger.document(
            map_,
            at_ms=moment_ms,
            parent=self.champion.document,
            fitted_on=(FitWindow(max(start, 0) * pane_ms, stop * pane_ms), Counts(n, positives)),
            evidence=None if decision is None else decision.evidence,
            segments=self._table_of(map_.family),
        )
