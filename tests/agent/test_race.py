"""Machines of TPUs that race: one claims the job, the others never start it."""

import json
import time

import pytest

from orchestrator.agent.agreement.race import named
from orchestrator.emulator.http.router import Response
from tests.agent.agent_lab import AgentLab

CLAIM = ".tpuctl/claim/4"


def test_of_machines_that_boot_together_one_trains(lab: AgentLab) -> None:
    """Whoever claims first runs the job to its end; the others start nothing, say why, and are held back."""
    racers = {n: lab.machine(f"m{n}", INCARNATION=n, ROUND=4, _STEPS=5) for n in (4, 5, 6)}
    for machine in racers.values():
        machine.start()
    assert [machine.wait() for machine in racers.values()] == [0, 0, 0]

    winner = lab.json(CLAIM)["incarnation"]
    assert [n for n in racers if lab.attempts(n)] == [winner]
    assert racers[winner].heartbeat()["phase"] == "done"
    for number, machine in racers.items():
        if number != winner:
            assert machine.heartbeat()["phase"] == "stopped"
            assert f"TPU #{winner} was first" in (machine.root / "state" / "stop").read_text()


def test_a_winner_that_starts_again_is_still_the_winner(lab: AgentLab) -> None:
    """Its own claim is in the way of nobody: what runs after a crash of the agent is the same TPU."""
    lab.put(CLAIM, json.dumps({"schema": 1, "incarnation": 5}).encode())
    lab.machine(INCARNATION=5, ROUND=4, _STEPS=3).run_to_end()
    assert len(lab.attempts(5)) == 1


def test_a_claim_that_is_replaced_keeps_its_machine(lab: AgentLab) -> None:
    """An earlier machine can have put it there: who is beaten looks on until its controller deletes it."""
    lab.put(CLAIM, json.dumps({"schema": 1, "incarnation": 9}).encode())
    machine = lab.machine(INCARNATION=5, ROUND=4, HEARTBEAT_SECONDS=1, _STEPS=3).start()
    machine.until(lambda: "TPU #9 was first" in json.dumps(machine.heartbeat()), "it is beaten")
    assert lab.attempts(5) == []
    lab.put(CLAIM, json.dumps({"schema": 1, "incarnation": 5}).encode())
    assert machine.wait() == 0
    assert len(lab.attempts(5)) == 1


@pytest.mark.parametrize(
    "said", ["true", '"7"', "1e999", "7.0", "null", "[]", "3", "1004", "-1", "1" * 2000, "[" * 100_000]
)
def test_a_claim_that_names_no_tpu_of_the_race_has_no_winner(said: str) -> None:
    """Whole numbers from the race's own on; the machine waits for one, and does not fall."""
    assert named(f'{{"incarnation": {said}}}'.encode(), 4) is None
    assert named(said.encode(), 4) is None
    assert named(b'{"incarnation": 5}', 4) == 5


def test_no_job_starts_while_the_bucket_does_not_say_who_has_won(lab: AgentLab) -> None:
    """A race without a claim in the bucket is not won."""
    lab.fault = lambda request: Response(403) if request.query.get("name") == CLAIM else None
    machine = lab.machine(INCARNATION=5, ROUND=4, _STEPS=3).start()
    machine.until(lambda: "won the race" in json.dumps(machine.heartbeat()), "the trouble is reported")
    assert lab.attempts(5) == []
    lab.fault = lambda _request: None
    assert machine.wait() == 0
    assert lab.json(CLAIM)["incarnation"] == 5


def test_without_a_race_nothing_is_claimed(lab: AgentLab) -> None:
    """No request more than before."""
    lab.machine(_STEPS=3).run_to_end()
    assert [name for name in lab.names() if "claim" in name] == []


@pytest.mark.parametrize("phase", ["run", "stopping", "ended"])
def test_a_successor_begins_after_the_last_save_of_the_tpu_before_it(lab: AgentLab, phase: str) -> None:
    """It would resume from less otherwise; who is at rest, or says nothing any more, is not waited for."""
    report = {"preempted": True, "phase": phase, "at": time.time() + 1000}
    lab.put(".tpuctl/heartbeat/3/0", json.dumps(report).encode())
    machine = lab.machine(INCARNATION=4, ROUND=4, HEARTBEAT_SECONDS=1, _STEPS=3).start()
    machine.until(lambda: "waits: TPU #3 is being preempted" in json.dumps(machine.heartbeat()), "it waits")
    assert (lab.attempts(4), lab.names(CLAIM)) == ([], [])
    lab.put(".tpuctl/heartbeat/3/0", json.dumps({**report, "phase": "stopped"}).encode())
    assert machine.wait() == 0
    assert lab.json(CLAIM)["incarnation"] == 4


def test_a_claim_by_the_controller_ends_the_wait_for_a_tpu_that_was_cut_off_in_its_save(
    lab: AgentLab,
) -> None:
    """Its report says "saves" as long as reports count; the controller has seen it gone."""
    report = {"preempted": True, "phase": "stopping", "at": time.time() + 1000}
    lab.put(".tpuctl/heartbeat/3/0", json.dumps(report).encode())
    machine = lab.machine(INCARNATION=4, ROUND=4, HEARTBEAT_SECONDS=1, _STEPS=3).start()
    machine.until(lambda: "waits: TPU #3 is being preempted" in json.dumps(machine.heartbeat()), "it waits")
    lab.put(CLAIM, json.dumps({"schema": 1, "incarnation": 4}).encode())
    assert machine.wait(40) == 0
    assert len(lab.attempts(4)) == 1


@pytest.mark.parametrize("change", [{"preempted": False}, {"at": 1000.0}, {"at": "now"}, {"phase": "done"}])
def test_a_machine_that_saves_nothing_more_is_not_waited_for(lab: AgentLab, change: dict) -> None:
    """One that was killed, one that works on demand, one that is done."""
    report = {"preempted": True, "phase": "stopping", "at": time.time(), **change}
    lab.put(".tpuctl/heartbeat/3/0", json.dumps(report).encode())
    machine = lab.machine(INCARNATION=4, ROUND=4, _STEPS=3)
    machine.run_to_end()
    assert "saves" not in lab.log(4)
    assert lab.json(CLAIM)["incarnation"] == 4
