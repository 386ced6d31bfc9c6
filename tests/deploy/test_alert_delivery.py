"""From flights to a webhook: daemon, Prometheus and Alertmanager as shipped, all of them real.

Every score of a model comes e times too high in its odds: an alarm is raised, the refit of the next days promotes a
map, the alarm clears. Event time stands still while a notification is on its way (the demo's own thread waits in the
hook for pictures), so nothing here depends on how fast this machine is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flights_year import CONFIG
from prometheus_server import Alertmanager, Prometheus, Webhook, wait_until, webhook

from streamcal.runtime.config import load_config
from streamcal.runtime.demo import Demo
from streamcal.runtime.flights import flights_folder, read_flights
from streamcal.serve.http import HttpServer
from streamcal.snapshot import Snapshot

pytestmark = pytest.mark.slow

ALARM = "StreamcalCalibrationAlarm"


def broken_model() -> Demo:
    """Flights whose scores are too high, refitted once a day, so that the alarm comes first."""
    flights = read_flights(flights_folder())
    odds = np.e * flights.score / (1 - flights.score)
    config = load_config(CONFIG, environ={"STREAMCAL_REFIT__EVERY": "1d"}, require_kafka=False)
    return Demo(config, replace(flights, score=odds / (1 + odds)), days_per_second=1.0)


def at_once(rule: dict[str, Any]) -> None:
    """The two alerts waited for are as shipped but for their patience: minutes for people, seconds here."""
    if rule["alert"] in {ALARM, "StreamcalDown"}:
        rule["for"] = "0s"
        rule["keep_firing_for"] = "2s"


class Watch:
    """Holds event time where an alarm is in force until the webhook has heard of it."""

    def __init__(self, hook: Webhook) -> None:
        self._hook = hook
        self.raised: Snapshot | None = None
        self.cleared: Snapshot | None = None

    def __call__(self, snapshot: Snapshot) -> None:
        if not snapshot.models or self.cleared is not None:
            return
        active = any(state.active for series, state in snapshot.models[0].alarms.items() if series.cut == "all")
        if active and self.raised is None:
            self.raised = snapshot
            wait_until(lambda: bool(self._hook.have(alertname=ALARM, status="firing")), "the alert at the webhook")
        elif not active and snapshot.models[0].champion is not None and self.raised is not None:
            self.cleared = snapshot
            wait_until(lambda: bool(self._hook.have(alertname=ALARM, status="resolved")), "its end at the webhook")


@contextlib.contextmanager
def monitored(folder: Path, demo: Demo) -> Iterator[tuple[Webhook, Prometheus, Alertmanager, HttpServer]]:
    for name in ("prometheus", "alertmanager"):
        (folder / name).mkdir()
    with (
        webhook() as hook,
        HttpServer(demo.app, port=0) as server,
        Alertmanager.running(folder / "alertmanager", hook.url) as manager,
        Prometheus.running(
            folder / "prometheus", f"127.0.0.1:{server.port}", alertmanager=manager.address, shorten=at_once
        ) as prometheus,
    ):
        yield hook, prometheus, manager, server


def test_an_alarm_on_the_flights_reaches_the_webhook_and_is_resolved_after_the_refit(tmp_path: Path) -> None:
    demo = broken_model()
    with monitored(tmp_path, demo) as (hook, *_):
        watch = Watch(hook)
        failed: list[BaseException] = []

        def run() -> None:
            try:
                demo.run(lambda: watch.cleared is not None, watch)
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    assert watch.raised is not None
    assert watch.cleared is not None
    raised, cleared = watch.raised.models[0], watch.cleared.models[0]
    # the alert is the one of the engine: same model, same fault, same figures
    first = hook.have(alertname=ALARM, status="firing")[0]
    (fault,) = {state.active for series, state in raised.alarms.items() if series.cut == "all"}
    assert first["labels"]["fault"] == fault == "scores_too_high"
    assert first["labels"]["model"] == "default"
    assert first["labels"]["severity"] == "critical"
    assert first["annotations"]["runbook_url"] == "docs/runbook.md#streamcalcalibrationalarm"
    (day,) = [window for window in raised.windows if window.window == "24h"]
    assert f"Predicted to observed {day.served['ratio'][0]:.3f} (24h)" in first["annotations"]["description"]
    # before the refit there was no map, after it one that the loop promoted
    assert raised.champion is None
    assert cleared.champion is not None
    assert cleared.refits["promoted", ""] >= 1
    last = hook.have(alertname=ALARM, status="resolved")[-1]
    assert last["labels"] == first["labels"]
    assert last["endsAt"] > first["startsAt"]
    # and nothing else was told of a stream that flows
    told = {alert["labels"]["alertname"] for alert in hook.seen}
    possible = {"StreamcalSegmentCalibrationAlarm", "StreamcalEvidenceNearThreshold", "StreamcalMapRolledBack"}
    assert told <= {ALARM, *possible}


def test_a_daemon_that_is_down_is_told_and_silences_its_calibration_alarm(tmp_path: Path) -> None:
    demo = broken_model()
    raised = threading.Event()

    def until_alarm(snapshot: Snapshot) -> None:
        if snapshot.models and any(state.active for state in snapshot.models[0].alarms.values()):
            raised.set()

    with contextlib.ExitStack() as stack:
        hook, prometheus, manager, server = stack.enter_context(monitored(tmp_path, demo))
        demo.run(raised.is_set, until_alarm)
        assert raised.is_set()
        wait_until(lambda: bool(hook.have(alertname=ALARM, status="firing")), "the alarm at the webhook")
        server.__exit__(None, None, None)
        wait_until(
            lambda: bool(hook.have(alertname="StreamcalDown", status="firing")), "the daemon's end at the webhook"
        )
        states = {alert["labels"]["alertname"]: alert["status"] for alert in manager.alerts()}
        if ALARM in states:  # kept firing for two seconds more
            assert states[ALARM]["inhibitedBy"]
        assert not states["StreamcalDown"]["inhibitedBy"]
        assert prometheus.query("1 - up")[0]["value"][1] == "1"
