"""/api/v1 over a real socket: every answer against its model and against the snapshot it was made of."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import httpx
import numpy as np
import pytest
from served_snapshots import HOUR_MS, NOW_MS, WHOLE, model_of, snapshot_of, sources_of, window_of

from streamcal.maps.document import Counts, new_document
from streamcal.maps.families import Platt
from streamcal.serve import api_models as models
from streamcal.serve import api_tables as tables
from streamcal.serve.app import application
from streamcal.serve.http import HttpServer
from streamcal.serve.live import SnapshotHolder
from streamcal.serve.requests import Asked, RequestQueue
from streamcal.serve.sources import Access
from streamcal.snapshot import MapsHeld, Series

TOKEN = "0123456789abcdef"
HOSTILE = '<img src=x onerror="alert(1)">/../%2e&#"\'\x00'
MODEL = model_of(segments=40)


@pytest.fixture(scope="module")
def holder():
    held = SnapshotHolder()
    held.publish(snapshot_of(replace(MODEL, event_time_ms=NOW_MS - 1000)))
    other = model_of(
        HOSTILE, [HOSTILE], segments=1, windows=[window_of("1h", [Series("country", f"country={HOSTILE}")])]
    )
    held.publish(snapshot_of(MODEL, other, sequence=2))
    return held


@pytest.fixture(scope="module")
def queue():
    return RequestQueue()


@pytest.fixture(scope="module")
def client(holder, queue):
    app = application(sources_of(holder, requests=queue), Access(admin_token=TOKEN))
    with HttpServer(app, port=0) as server, httpx.Client(base_url=f"{server.url}/api/v1", timeout=20) as asking:
        yield asking


def ask(client, path, answer, **parameters):
    response = client.get(path, params=parameters)
    assert response.status_code == 200, response.text
    document = response.json()
    answer.model_validate(document, strict=True)
    return document


def test_the_status_says_what_the_snapshot_says(client):
    status = ask(client, "/status", models.StatusAnswer)
    assert (status["sequence"], status["event_time_ms"], status["version"]) == (2, NOW_MS, "1.2.3")
    assert (status["ready"], status["read_only"]) == (True, False)
    assert status["counters"]["matched"] == 59_000
    assert status["counters"]["rejected"] == {"predictions": {"bad_score": 2}, "outcomes": {"malformed": 5}}
    assert [(one["topic"], one["lag"], one["behind_ms"]) for one in status["partitions"]] == [
        ("outcomes", 0, 90_000),
        ("predictions", 42, 0),
    ]
    first = status["models"][0]
    assert (first["name"], first["alarms"], first["champion"]["version"]) == ("default", 2, 4)
    assert first["verdict"]["state"] == "alarm"


def test_a_model_has_every_figure_of_its_windows_to_the_bit_and_nothing_absent(client):
    document = ask(client, "/model", models.ModelAnswer, model="default")
    for shown, window in zip(document["windows"], MODEL.windows, strict=True):
        for kind in ("raw", "served"):
            figures = getattr(window, kind)
            present = {name: values[0] for name, values in figures.items() if not math.isnan(values[0])}
            assert shown[kind] == pytest.approx(present, rel=0, abs=0)
            assert [row["n"] for row in shown[f"{kind}_bins"]] == [row["n"] for row in getattr(window, f"{kind}_bins")]
    assert document["standing"] == {
        "evidence": 11.5, "threshold": 14.9, "leading": "scores_too_high", "active": "scores_too_high", "phi": 1.44,
    }  # fmt: skip
    assert [alarm["at_ms"] for alarm in document["alarms"]] == [NOW_MS - hours * HOUR_MS for hours in (2, 7, 90)]
    assert document["blocking_partition"] == 3
    assert document["labels"]["delays"] == [{"share": 0.5, "seconds": 120.0}, {"share": 0.9, "seconds": 7200.0}]


def test_what_is_not_known_yet_is_null_and_not_zero(client, holder):
    nothing = dict.fromkeys(("labels", "early", "champion", "event_time_ms", "sealed_until_ms", "blocking_partition"))
    empty = {"windows": (), "alarms": {}, "alarm_log": (), "map_log": (), "last_outcome_ms": {}}
    bare = replace(MODEL, name="bare", **nothing, **empty)
    before = holder.latest
    holder.publish(snapshot_of(bare, sequence=3))
    document = ask(client, "/model", models.ModelAnswer, model="bare")
    for name in ("standing", "labels", "early", "champion", "event_time_ms", "last_outcome_ms"):
        assert document[name] is None
    assert document["verdict"]["state"] == "unknown"
    assert ask(client, "/maps", tables.MapsAnswer, model="bare")["maps"] == []
    assert client.get("/segments", params={"model": "bare"}).status_code == 404
    assert client.get("/history", params={"model": "bare"}).status_code == 404
    holder.publish(before)


def segments(client, **parameters):
    return ask(client, "/segments", tables.SegmentsAnswer, model="default", window="24h", **parameters)


def test_segments_are_paged_without_loss_or_repetition(client):
    pages = [segments(client, limit=7, offset=offset) for offset in range(0, 42, 7)]
    names = [row["segment"] for page in pages for row in page["segments"]]
    assert sorted(names) == sorted(series.segment for series in MODEL.windows[1].series if series != WHOLE)
    assert {(page["total"], page["found"]) for page in pages} == {(40, 40)}


def test_the_worst_come_first_alarms_before_what_is_certainly_off(client):
    rows = segments(client)["segments"]
    assert (rows[0]["segment"], rows[0]["fault"], rows[0]["since_ms"]) == (
        "country=C000", "scores_too_low", NOW_MS - 2 * HOUR_MS,
    )  # fmt: skip
    assert {row["segment"] for row in rows[1:3]} == {"country=C007", "country=C027"}  # made to be far off
    excess = [row["ece_excess"] for row in rows[1:]]
    assert excess == sorted(excess, reverse=True)
    assert excess[1] > 0.05


def test_intervals_of_segments_are_wilsons_for_the_dispersed_number_of_rows(client):
    from statsmodels.stats.proportion import proportion_confint

    for row in segments(client)["segments"]:
        n = row["n"] / 1.44
        low, high = proportion_confint(row["observed_rate"] * n, n, method="wilson")
        assert (row["observed_low"], row["observed_high"]) == pytest.approx((low, high), abs=1e-9)
        assert row["ratio_low"] == pytest.approx(row["mean_score"] / high, rel=1e-9)
        assert row["ratio_low"] < row["ratio"] < row["ratio_high"]


@pytest.mark.parametrize(
    ("sort", "key"),
    [("n", lambda row: -row["n"]), ("ece", lambda row: -row["ece"]),
     ("slope", lambda row: -abs(row["platt_slope"] - 1)), ("ratio", lambda row: -abs(math.log(row["ratio"]))),
     ("evidence", lambda row: -row["evidence"]),
     ("ece_z", lambda row: -row["ece_z"])],
)  # fmt: skip
def test_other_orders_go_by_what_they_are_called(client, sort, key):
    rows = segments(client, sort=sort, limit=100)["segments"]
    assert [key(row) for row in rows] == sorted(key(row) for row in rows)


def test_segments_are_found_by_a_part_of_their_name_in_either_case(client):
    assert {row["segment"] for row in segments(client, search="=c03")["segments"]} == {
        f"country=C03{i}" for i in range(10)
    }
    nobody = segments(client, search="nobody")
    assert (nobody["found"], nobody["total"], nobody["segments"]) == (0, 40, [])
    assert segments(client, cut="device")["found"] == 0
    assert segments(client, cut="country")["found"] == 40


def test_raw_figures_are_shown_on_request(client):
    raw = {row["segment"]: row["ece"] for row in segments(client, score_kind="raw", limit=100)["segments"]}
    held = zip(MODEL.windows[1].series, MODEL.windows[1].raw["ece"].tolist(), strict=True)
    assert raw == {series.segment: value for series, value in held if series != WHOLE}


def test_history_has_a_value_or_null_per_point(client):
    document = ask(client, "/history", tables.HistoryAnswer, model="default", window="24h")
    assert document["at_ms"] == [NOW_MS - 1000, NOW_MS]
    assert document["served"]["ece"] == [MODEL.windows[1].served["ece"][0]] * 2
    assert document["threshold"] == [14.9, 14.9]
    lengths = {len(line) for kind in ("raw", "served") for line in document[kind].values()}
    assert lengths == {2}


def test_maps_say_what_was_done_and_why_and_are_drawn(client):
    document = ask(client, "/maps", tables.MapsAnswer, model="default")
    told = [(one["action"], one["reason"], one["version"], one["in_force"]) for one in document["maps"]]
    assert told == [
        ("rolled_back", "worse_than_parent", 4, True),
        ("refused", "no_gain", None, False),
        ("promoted", "", 3, False),
        ("promoted", "", 2, False),
        ("promoted", "", 1, False),
    ]
    raw = np.array(document["raw"])
    x = np.log(raw / (1 - raw))
    assert document["maps"][0]["served"] == pytest.approx((1 / (1 + np.exp(-(0.6 * x - 0.1)))).tolist(), rel=1e-5)
    assert "served" not in document["maps"][1]
    assert document["maps"][0]["evidence"]["gain"] == 41.5


def test_hostile_names_go_through_a_query_and_come_back_as_they_are(client):
    names = [model["name"] for model in ask(client, "/status", models.StatusAnswer)["models"]]
    shown = HOSTILE.replace("\x00", "%00")  # as on metrics
    assert names == ["default", shown]
    document = ask(client, "/segments", tables.SegmentsAnswer, model=shown)
    assert document["segments"][0]["segment"] == f"country={shown}"


def test_an_answer_that_is_known_already_is_not_sent_again(client, holder):
    for path in ("/model", "/segments", "/history", "/maps"):
        first = client.get(path, params={"model": "default"})
        again = client.get(path, params={"model": "default"}, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert first.headers["Cache-Control"] == "no-cache"
    before = holder.latest
    holder.publish(replace(before, sequence=99))
    known = {"If-None-Match": client.get("/model", params={"model": "default"}).headers["ETag"]}
    holder.publish(replace(before, sequence=100))
    assert client.get("/model", params={"model": "default"}, headers=known).json()["sequence"] == 100
    holder.publish(before)


def test_wrong_questions_are_answered_with_what_is_wrong(client):
    for path, parameters, status in (
        ("/model", {}, 422), ("/model", {"model": "nobody"}, 404), ("/segments", {"model": "default", "limit": 0}, 422),
        ("/segments", {"model": "default", "sort": "x"}, 422), ("/segments", {"model": "default", "window": "9h"}, 404),
        ("/history", {"model": "default", "window": "9h"}, 404), ("/counts", {"model": "x"}, 404),
        ("/nothing", {}, 404),
    ):  # fmt: skip
        answer = client.get(path, params=parameters)
        assert (path, answer.status_code) == (path, status)
        assert answer.json()["detail"]
    assert "1h, 24h" in client.get("/segments", params={"model": "default", "window": "9h"}).json()["detail"]


def test_before_the_first_snapshot_there_is_a_status_and_nothing_else():
    with (
        HttpServer(application(sources_of(SnapshotHolder())), port=0) as server,
        httpx.Client(base_url=server.url) as asking,
    ):
        status = asking.get("/api/v1/status").json()
        models.StatusAnswer.model_validate(status, strict=True)
        assert (status["sequence"], status["snapshot_age_s"], status["models"]) == (0, None, [])
        assert asking.get("/api/v1/model", params={"model": "default"}).status_code == 404
        assert asking.get("/").status_code == 200


# --- requests ----------------------------------------------------------------------------------------------------


def post(client, token=TOKEN, **body):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return client.post("/requests", json={"what": "refit", "model": "default"} | body, headers=headers)


def test_requests_reach_the_loop_in_order_and_tell_what_came_of_them(client, queue):
    kinds = ["refit", "promote", "rollback", "pin", "unpin"]
    numbers = [post(client, what=kind, version=3, why="drift").json()["number"] for kind in kinds]
    drained = queue.drain()
    assert [(request.number, request.asked) for request in drained] == [
        (number, Asked(kind, "default", 3, None, "api", "drift")) for number, kind in zip(numbers, kinds, strict=True)
    ]
    queue.settle(numbers[0], "refused", "no_gain")
    answer = client.get(f"/requests/{numbers[0]}", headers={"Authorization": f"Bearer {TOKEN}"})
    tables.RequestAnswer.model_validate(answer.json(), strict=True)
    assert (answer.json()["state"], answer.json()["detail"]) == ("refused", "no_gain")
    assert client.get("/requests/99999", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404


@pytest.mark.parametrize("token", [None, "x", TOKEN + "x", TOKEN[:-1], TOKEN.upper()])
def test_without_the_token_nothing_is_taken(client, queue, token):
    answer = post(client, token)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert client.get("/requests/1").status_code == 401
    assert queue.drain() == []


def test_a_request_for_what_there_is_not_is_refused(client, queue):
    assert post(client, model="nobody").status_code == 404
    for wrong in ({"what": "delete"}, {"version": 0}, {"version": "3"}, {"extra": 1}, {"model": ""}):
        assert post(client, **wrong).status_code == 422
    assert queue.drain() == []


def test_text_that_no_history_could_hold_is_refused(client, queue):
    for field in ("who", "why", "family"):
        head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        body = f'{{"what": "refit", "model": "default", "{field}": "\\ud800"}}'
        answer = client.post("/requests", content=body, headers=head)
        assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["body", field])
    assert client.post("/requests", content='{"\\ud800": 1}', headers=head).status_code == 422
    assert queue.drain() == []


def test_where_nothing_is_shown_a_request_is_sent_elsewhere_or_told_to_wait(queue):
    held = SnapshotHolder()
    sources = sources_of(held, requests=queue)
    with (
        HttpServer(application(sources, Access(admin_token=TOKEN)), port=0) as server,
        httpx.Client(base_url=f"{server.url}/api/v1") as asking,
    ):
        sources.readiness.not_ready("recovering counts 0")
        answer = post(asking)
        assert (answer.status_code, "recovering counts 0" in answer.json()["detail"]) == (503, True)
        sources.readiness.ready()
        answer = post(asking)
        assert (answer.status_code, "ask the process" in answer.json()["detail"]) == (409, True)
    assert queue.drain() == []


def test_what_a_person_may_put_in_force_is_shown(client, holder):
    document = new_document("default", 7, Platt(0.9, -0.1), at_ms=5, counts=Counts(100, 20), parent=6)
    maps = MapsHeld(True, document, None, {"platt": Platt(0.8, 0.0), "cir": "too_few_labels"})
    before = holder.latest
    holder.publish(snapshot_of(replace(MODEL, maps=maps), sequence=4))
    shown = ask(client, "/maps", tables.MapsAnswer, model="default")
    assert (shown["pinned"], shown["candidate"], shown["current"]["version"]) == (True, None, 7)
    assert shown["current"]["parameters"] == {"slope": 0.9, "intercept": -0.1}
    assert shown["fits"] == [
        {"family": "platt", "reason": "", "parameters": {"slope": 0.8, "intercept": 0.0}},
        {"family": "cir", "reason": "too_few_labels"},
    ]
    assert ask(client, "/status", models.StatusAnswer)["models"][0]["pinned"]
    holder.publish(before)


def test_more_requests_than_anybody_asks_for_are_refused(client, queue):
    statuses = [post(client).status_code for _ in range(101)]
    assert statuses == [202] * 100 + [429]
    assert len(queue.drain()) == 100


@pytest.mark.parametrize(
    ("access", "status", "word"),
    [(Access(), 403, "admin_token_file"), (Access(admin_token=TOKEN), 501, "streamcal run")],
)
def test_a_service_that_takes_no_requests_says_so(holder, access, status, word):
    app = application(sources_of(holder), access)
    with HttpServer(app, port=0) as server, httpx.Client(base_url=f"{server.url}/api/v1") as asking:
        answer = post(asking)
    assert (answer.status_code, word in answer.json()["detail"]) == (status, True)


def test_the_token_is_in_no_answer(client):
    for path in ("/status", "/openapi.json", "/model?model=default", "/requests/1"):
        assert TOKEN not in client.get(path).text


def test_every_path_of_the_api_is_described(client):
    paths = client.get("/openapi.json").json()["paths"]
    names = ("status", "model", "segments", "history", "maps", "counts", "requests", "requests/{number}")
    assert set(paths) == {f"/api/v1/{name}" for name in names}
    described = [operation for one in paths.values() for operation in one.values()]
    assert all("application/json" in str(operation["responses"]) for operation in described)
    assert len(list(itertools.chain(*paths.values()))) == 8
