"""What the agent decides by time, in time that the test sets: real buckets, and no waiting."""

import json
import random

import pytest

from orchestrator.agent.agent import Agent
from orchestrator.agent.attempt.attempt_record import AttemptRecord
from orchestrator.agent.attempt.peers import SILENCE, silent_peer
from orchestrator.agent.attempt.rescue import Rescue
from orchestrator.agent.attempt.run_attempt import AttemptRunner
from orchestrator.agent.caches import keeper
from orchestrator.agent.caches.keeper import AFTER_START
from orchestrator.agent.cloud import storage, transport
from orchestrator.agent.context import AgentContext
from orchestrator.agent.end_requests import AgentMustEnd, EndingKind
from orchestrator.agent.fleet.task_part import SILENT, TASK_PART, TaskPart, Worker0
from orchestrator.agent.save_interval_tracker import HEARTBEATS
from orchestrator.agent.telemetry.heartbeat import heartbeat_name
from orchestrator.clock import VirtualClock
from orchestrator.contract.bucket.object_names import JOBS, TASKS
from orchestrator.contract.bucket.uncommitted_manifest import RescueMoment
from orchestrator.emulator.http.router import Request, Response
from tests.agent.agent_lab import AgentLab

SECONDS = 30.0
"""What a machine has after a preemption notice."""


@pytest.fixture
def clock() -> VirtualClock:
    """Return the time of the machine."""
    return VirtualClock()


def agent_on(lab: AgentLab, clock: VirtualClock, **changes: object) -> AgentContext:
    """Return the context of an agent in that time."""
    context = lab.machine(**changes).context(clock)  # type: ignore[arg-type]
    context.settings.layout.make()
    return context


def test_a_job_without_news_stalls_and_each_line_and_each_commit_is_news(
    lab: AgentLab, clock: VirtualClock
) -> None:
    """An evaluation prints no steps for long, and a large save is uploaded in silence."""
    context = agent_on(lab, clock, STALL_SECONDS=60)
    runner = AttemptRunner(context, AttemptRecord())
    clock.advance(60.0)
    assert not runner._stalled()
    context.log.write(b"line\n")
    clock.advance(60.0)
    assert not runner._stalled()
    clock.advance(1.0)
    assert runner._stalled()
    context.heartbeat.set(committed_at=clock.now())
    clock.advance(59.0)
    assert not runner._stalled()
    clock.advance(1.0)
    assert runner._stalled()


def test_an_agent_without_an_answer_of_the_bucket_ends_with_its_lease(
    lab: AgentLab, clock: VirtualClock
) -> None:
    """Counted from the last question that was answered; an answer that came begins a lease of its own."""
    context = agent_on(lab, clock, BUCKET_TIMEOUT_SECONDS=60)
    agent = Agent(context)
    context.heartbeat.set(attempt=1)
    for _ in range(3):
        agent._poll_gang()
        clock.advance(59.0)
        agent._end_without_bucket()
    assert not context.end_requests.ended()
    clock.advance(1.0)
    agent._end_without_bucket()
    with pytest.raises(AgentMustEnd) as ended:
        context.end_requests.check()
    assert ended.value.ending.kind is EndingKind.CUT_OFF


@pytest.mark.parametrize(("back", "saved"), [(SECONDS / 2, True), (float("inf"), False)])
def test_a_rescue_tries_for_as_long_as_the_machine_exists(
    lab: AgentLab, clock: VirtualClock, back: float, saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket that is back in half of the time gets the files; one that stays away is given up."""
    # Else chance makes the last pause of some runs longer than the other half.
    monkeypatch.setattr(transport, "_dice", random.Random(6))
    context = agent_on(lab, clock)
    context.local.folder.mkdir(parents=True, exist_ok=True)
    (context.local.folder / "latest.npz").write_bytes(b"latest")
    began = clock.monotonic()

    def away(_request: Request) -> Response | None:
        return Response(503, b"away") if clock.monotonic() - began < back else None

    lab.fault = away
    Rescue(context).in_time(RescueMoment.NOTICE, 1, None, 0.0, SECONDS)
    lab.fault = lambda _request: None
    assert (context.heartbeat.get("uncommitted_files") == 1) is saved
    assert ("not everything is in the bucket" in context.heartbeat.body()["message"]) is not saved
    took = clock.monotonic() - began
    # A call under way is not cut: the agent leaves without it.
    assert back < took < SECONDS if saved else took < SECONDS + storage.TIMEOUT


def test_a_worker_without_a_new_heartbeat_is_silent(lab: AgentLab, clock: VirtualClock) -> None:
    """Of a gang that is about to give up: a machine that is dead, not the code, may be the cause."""
    context = agent_on(lab, clock, WORKERS=3)
    heartbeats = 0

    def heartbeat(request: Request) -> None:
        nonlocal heartbeats
        if request.method == "GET" and "heartbeat" in request.path:
            heartbeats += 1
            lab.put(heartbeat_name(1, 1), str(heartbeats).encode())

    lab.fault = heartbeat
    assert silent_peer(context, 1) == 2
    assert clock.monotonic() == pytest.approx(
        SILENCE * context.settings.heartbeat_interval, abs=context.settings.poll
    )


def test_worker_0_that_reports_nothing_is_silent(lab: AgentLab, clock: VirtualClock) -> None:
    """For machines that follow it: each report, by whatever clock of its machine, begins its time again."""
    machine = lab.machine()
    part = TaskPart("wide", "0", 1, 0, 1, "10.0.0.1", 1.0, 0.0)
    lab.put(f"nodes/a/{TASK_PART}", part.stored().encode())
    worker0 = Worker0(machine.env, "nodes/a/", clock)
    for phase in ("boot", "run"):
        lab.put(f"{JOBS}wide/{TASKS}0/{heartbeat_name(1, 0)}", json.dumps({"phase": phase}).encode())
        assert worker0.observe() == (part, "")
        clock.advance(SILENT)
        assert worker0.observe() == (part, "")
    clock.advance(1.0)
    assert worker0.observe() == (part, "silent")


def test_caches_are_stored_a_minute_after_a_start_without_steps_and_then_rarely(
    lab: AgentLab, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing takes a processor from the job, which loads its data in its first seconds."""
    looks: list[float] = []
    monkeypatch.setattr(keeper, "_yield_to_the_job", lambda: looks.append(clock.monotonic()))
    context = agent_on(lab, clock, HEARTBEAT_SECONDS=30)
    context.heartbeat.set(phase="run")
    context.heartbeat.time("spawned")
    for _ in range(200):
        context.keeper.keep()
        clock.advance(1.0)
    every = HEARTBEATS * context.settings.heartbeat_interval
    assert looks == [AFTER_START, AFTER_START + every, AFTER_START + 2 * every]
