"""Requests on their way through the aggregator's process: what is told of as done survives it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from simulated_cluster import Process, SimulatedCrash, SimulatedLog, World
from simulated_runs import events_of, rules_of, world_of

from streamcal.runtime.map_requests import MapDesk
from streamcal.runtime.monitor import Observer
from streamcal.serve.requests import Asked, RequestQueue, Tracked
from streamcal.state.claimed_log import AppendUncertainError

MODEL = "default"


class Desk:
    """One process with a queue, driven as the daemon drives it."""

    def __init__(self, world: World) -> None:
        world.start()
        self.process: Process = world.processes[world.started]
        self.monitor = self.process.monitor
        self.queue = RequestQueue()
        self.desk = MapDesk(self.queue, self.monitor)
        self.world = world

    def ask(self, what: Any, **named: Any) -> int:
        return self.queue.submit(Asked(what, named.pop("model", MODEL), who="ada", why="a test", **named)).number

    def commit(self) -> None:
        self.desk.take()
        self.monitor.commit()
        self.desk.answer()

    def steps(self, count: int = 40) -> None:
        for _ in range(count):
            self.world.seconds += 0.3
            self.monitor.step(0.0)
            self.commit()

    def recover(self) -> None:
        for _ in range(400):
            self.steps(1)
            if self.monitor.aggregations:
                return
        raise AssertionError("the aggregator did not recover")

    def told(self, number: int) -> tuple[str, str]:
        request = self.queue.find(number)
        assert isinstance(request, Tracked)
        return request.state, request.detail

    @property
    def loop(self) -> Any:
        (aggregation,) = self.monitor.aggregations.values()
        return aggregation.aggregator.loop(aggregation.names.model(MODEL))


@pytest.fixture
def world() -> World:
    rules = rules_of(0)
    events = events_of(0, rules)
    world = world_of(0, events, rules)
    world.arrivals, world.calm = {}, True
    return world


def test_two_requests_in_one_commit_are_done_in_order_and_survive_the_process(world: World) -> None:
    first = Desk(world)
    first.steps()
    before = first.loop.version
    numbers = [first.ask("pin"), first.ask("refit"), first.ask("unpin"), first.ask("pin")]
    assert [first.told(number)[0] for number in numbers] == ["waiting"] * 4
    first.commit()
    (pinned, (refit, detail), unpinned, again) = (first.told(number) for number in numbers)
    assert (pinned, unpinned, again) == (("done", "pinned"), ("done", "unpinned"), ("done", "pinned"))
    assert (refit == "done") == (first.loop.version > before)
    assert detail
    world.end(world.started)
    second = Desk(world)
    second.recover()
    assert second.loop.pinned
    asked = [(entry.reason, entry.who, entry.why) for entry in second.loop.history if entry.trigger == "manual"]
    assert [reason for reason, *_ in asked if "pin" in reason] == ["pin", "unpin", "pin"]
    assert {(who, why) for _, who, why in asked} == {("ada", "a test")}


def test_what_is_not_known_is_refused_in_words_and_changes_nothing(world: World) -> None:
    desk = Desk(world)
    desk.steps()
    held = desk.loop.version, len(desk.loop.history)
    numbers = [desk.ask("promote", version=4711), desk.ask("rollback", version=4711), desk.ask("pin", model="other")]
    desk.commit()
    told = [desk.told(number) for number in numbers]
    assert [state for state, _ in told] == ["refused"] * 3
    assert all(word in detail for (_, detail), word in zip(told, ("4711", "4711", "other"), strict=True))
    assert (desk.loop.version, len(desk.loop.history)) == held


def test_where_another_process_aggregates_or_this_one_still_recovers_it_is_said(world: World) -> None:
    first, second = Desk(world), Desk(world)
    for _ in range(30):
        for desk in (first, second):
            desk.steps(1)
    (bystander,) = (desk for desk in (first, second) if not desk.monitor.aggregations)
    number = bystander.ask("pin")
    bystander.commit()
    assert bystander.told(number)[0] == "refused"
    assert "does not aggregate" in bystander.told(number)[1]
    third = Desk(world)
    for each in (1, 2):
        world.end(each)
    third.monitor.step(0.0)
    assert ("counts", 0) in third.monitor.roles.recovering
    number = third.ask("pin")
    third.commit()
    assert third.told(number)[0] == "refused"
    assert "taking over" in third.told(number)[1]


def test_a_commit_that_is_put_off_answers_nothing_and_the_next_one_does(world: World) -> None:
    class PutOff(Observer):
        go_on = True

        def before_commit(self) -> bool:
            return self.go_on

    desk = Desk(world)
    desk.monitor._observer = observer = PutOff()
    desk.steps()
    observer.go_on = False
    number = desk.ask("pin")
    desk.commit()
    assert desk.told(number)[0] == "waiting"
    assert desk.loop.pinned
    observer.go_on = True
    desk.commit()
    assert desk.told(number) == ("done", "pinned")
    assert len([entry for entry in desk.loop.history if entry.reason == "pin"]) == 1


def test_an_aggregator_that_moved_before_it_was_durable_is_not_told_of_as_done(world: World) -> None:
    first = Desk(world)
    first.steps()
    first.process.unaware = 1000  # of the rebalance that follows
    second = Desk(world)
    world.assignment = {2: world.assignment[1] | world.assignment[2], 1: frozenset()}
    second.recover()
    number = first.ask("pin")
    first.commit()
    state, detail = first.told(number)
    assert state == "refused"
    assert "may have been made or not" in detail
    assert not second.loop.pinned


def test_a_log_that_does_not_answer_leaves_it_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(world)
    desk.steps()
    number = desk.ask("pin")

    def lost(*_: object) -> None:
        raise AppendUncertainError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedLog, "send", lost)
        desk.commit()
    assert desk.told(number)[0] == "refused"
    assert "may have been made or not" in desk.told(number)[1]
    desk.recover()
    assert not desk.loop.pinned


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_what_was_told_is_in_the_history_once_and_what_was_refused_is_not(seed: int) -> None:
    rules = rules_of(seed)
    events = events_of(seed, rules)
    world = world_of(seed, events, rules)
    world.start()
    desks: dict[int, tuple[RequestQueue, MapDesk]] = {}
    asked: list[tuple[RequestQueue, int]] = []
    for turn in range(150):
        world.act()
        for number, process in list(world.processes.items()):
            if number not in desks:
                queue = RequestQueue()
                desks[number] = queue, MapDesk(queue, process.monitor)
            queue, desk = desks[number]
            if world.random.random() < 0.2:
                asked.append(
                    (queue, queue.submit(Asked("refit", MODEL, who="ada", why=f"turn {turn} of {number}")).number)
                )
            try:
                desk.take()
                process.monitor.commit()
                desk.answer()
            except SimulatedCrash:
                world.end(number)
    monitor = world.finish().monitor
    (aggregation,) = monitor.aggregations.values()
    loop = aggregation.aggregator.loop(aggregation.names.model(MODEL))
    kept = Counter(entry.why for entry in loop.history if entry.trigger == "manual")
    told = [request for queue, number in asked if (request := queue.find(number)) and request.state != "waiting"]
    answered = [request for request in told if "\n" not in request.detail]
    assert {request.asked.why: kept[request.asked.why] for request in answered} == {
        request.asked.why: 1 for request in answered
    }
    refused = [request for request in told if "does not aggregate" in request.detail or "no event" in request.detail]
    assert not any(kept[request.asked.why] for request in refused)
