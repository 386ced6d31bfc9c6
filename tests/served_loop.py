"""A refit loop behind the daemon's own HTTP side, without a broker: requests are carried out as they come."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from served_snapshots import model_of, snapshot_of, sources_of

from streamcal.errors import StreamcalError
from streamcal.maps.loop import LoopSettings, MapRequest, ModelLoop
from streamcal.published import _map_log, _maps_held
from streamcal.serve.app import application
from streamcal.serve.http import HttpServer
from streamcal.serve.live import SnapshotHolder
from streamcal.serve.requests import RequestQueue
from streamcal.serve.sources import Access
from streamcal.stats.counts import PLAIN, contributions
from streamcal.stats.fit_panes import FitPanes
from streamcal.stats.layout import N_BINS

TOKEN = "0123456789abcdef"
HOUR_MS = 3_600_000
START_MS = 1_700_006_400_000


class ServedLoop:
    """One model whose raw scores are too low by `offset` logits; leaving the context ends its server and thread."""

    def __init__(self, *, offset: float = 1.2, hours: int = 40, **access: Any) -> None:
        given: dict[str, Any] = {"mode": "auto", "every_ms": HOUR_MS, "fit_window_ms": 1000 * HOUR_MS, "min_count": 20}
        given |= {"pane_ms": HOUR_MS, "maturity_ms": 0, "prior": None, "horizon_ms": HOUR_MS, "out_of_order_ms": 0}
        mode, self._tls = access.pop("mode", "auto"), access.pop("tls", None)
        self._fits = FitPanes(PLAIN)
        self.loop = ModelLoop(LoopSettings(**{**given, "mode": mode}), "default", self._fits)
        self.now = START_MS
        self._rng = np.random.default_rng(1)
        self.scores = np.empty(0)
        self.counts = np.zeros((N_BINS, PLAIN), dtype=np.int64)
        self.queue = RequestQueue()
        self.holder = SnapshotHolder()
        self.sources = sources_of(self.holder, requests=self.queue, counts=self._counts_document)
        self.sources.readiness.ready()
        self._access = Access(**({"admin_token": TOKEN} | access))
        self._ended = threading.Event()
        self.carries_out = True
        self._pictures = 0
        self.feed(hours, offset)

    def feed(self, hours: int, offset: float, rows: int = 60) -> None:
        """Hours of labelled predictions, with an attempt after each."""
        for _ in range(hours):
            x = self._rng.normal(-0.5, 1.0, rows)
            score = 1 / (1 + np.exp(-x))
            bins, values, _ = contributions(score, self._rng.random(rows) < 1 / (1 + np.exp(-x - offset)))
            self._fits.add(np.full(rows, self.now // HOUR_MS), bins, values, np.full(rows, self.now))
            np.add.at(self.counts, bins, values)
            self.scores = np.concatenate([self.scores, score])
            self.now += HOUR_MS
            self.loop.attempt(self.now)
        self.picture()

    def picture(self) -> None:
        """Show what is so now."""
        shown = replace(
            model_of(segments=1), champion=self.loop.state(), maps=_maps_held(self.loop), map_log=_map_log(self.loop)
        )
        self._pictures += 1
        self.holder.publish(snapshot_of(shown, sequence=self._pictures))

    def __enter__(self) -> Self:
        self._server = HttpServer(application(self.sources, self._access), port=0, tls=self._tls)
        self._server.__enter__()
        self.url = self._server.url
        self._thread = threading.Thread(target=self._carry_out)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._server.__exit__(None, None, None)

    def _carry_out(self) -> None:
        while not self._ended.wait(0.02):
            for request in self.queue.drain() if self.carries_out else ():
                asked = request.asked
                wanted = MapRequest(asked.what, asked.who, asked.why, asked.version, asked.family)
                try:
                    told = self.loop.manual(self.now, wanted)
                    state, detail = "done" if told.done else "refused", told.detail
                except StreamcalError as error:
                    state, detail = "refused", str(error)
                self.picture()
                self.queue.settle(request.number, state, detail)  # type: ignore[arg-type]

    def _counts_document(self) -> Mapping[str, Any]:
        raw = {int(b): self.counts[b].tolist() for b in np.flatnonzero(self.counts[:, 0])}
        windows = {"1h": {"raw": {}, "served": {}}, "24h": {"raw": raw, "served": raw}}
        return {"default": {"segments": {"all": {"cut": "all", "windows": windows}}}}
