"""Each mechanism of a fleet, and how to switch it off; `python -m tests.simulation.mutants F` tries these."""

from dataclasses import replace

from orchestrator.agent.fleet import task
from orchestrator.app.deployment.session import Session
from orchestrator.app.fleet import down, sessions, up, watch
from orchestrator.contract.bucket.object_names import GANG
from orchestrator.planning.fleet.tasks import unfinished
from tests.simulation.switch import Switch

FLEET = "tests/scenarios/test_fleet.py::test_"
TIMEOUT = 300.0
"""Seconds: on a computer with other work these tests are slow, which is no proof of anything."""
TASK = "tests/agent/test_task.py::test_"


def _claims_what_it_counts(bucket, environ):
    """Claim without a precondition."""
    folders = (one.rstrip("/").rpartition("/")[2] for one in bucket.level(GANG)[1])
    number = 1 + max((int(one) for one in folders if one.isdecimal()), default=0)
    bucket.write(f"{GANG}{number}/claim.json", b"{}")
    return number


def _marks_at_once(environ, start=task.start_task):
    """Mark the task before it has committed anything."""
    claimed = start(environ)
    if not isinstance(claimed, int):
        task._mark(claimed.job, claimed.task, "done", claimed.number)
    return claimed


def _whatever_was_cancelled(submission, ended):
    return unfinished(replace(submission, cancelled=()), ended)


def _all_of_it(submission, ended):
    return tuple(range(len(submission.parameters)))


SWITCHES = {
    "F1 a start claims with a precondition": Switch(
        ((task, "claim_number", _claims_what_it_counts),),
        (f"{TASK}two_starts_at_the_same_moment_have_two_numbers",)),
    "F2 a task is marked after its last commit": Switch(
        ((task, "start_task", _marks_at_once),),
        (f"{FLEET}the_task_of_a_lost_node_goes_on_from_its_checkpoint_and_ends_once",)),
    "F3 a task that has its mark is not run again": Switch(
        ((task, "_mark", lambda *_: None),),
        (f"{FLEET}the_task_of_a_lost_node_goes_on_from_its_checkpoint_and_ends_once",)),
    "F5 Slurm hears which machines are lost": Switch(
        ((watch.LostFleetNodes, "report", lambda *_: None),),
        (f"{FLEET}a_lost_node_comes_back_and_slurm_hears_which_machine_is_gone",)),
    "F6 what Slurm has forgotten is queued again": Switch(
        ((sessions.Fleet, "submit_missing", lambda *_, **__: None),),
        (f"{FLEET}a_queue_that_slurm_has_forgotten_is_filled_again_by_the_watch",)),
    "F7 what has ended is not queued again": Switch(
        ((sessions, "unfinished", _all_of_it),),
        (f"{FLEET}a_job_that_is_submitted_again_queues_what_has_not_ended",)),
    "F8 what was cancelled is not queued again": Switch(
        ((sessions, "unfinished", _whatever_was_cancelled),),
        (f"{FLEET}what_was_cancelled_ends_in_slurm_too_when_the_command_was_killed_half_way",)),
    "F9 the budget is that of all nodes": Switch(
        ((Session, "upper_cost", Session.cost),),
        (f"{FLEET}the_budget_is_that_of_the_whole_fleet",)),
    "F10 nodes that are too many are deleted": Switch(
        ((up, "end_node", lambda *_: None),),
        (f"{FLEET}fewer_nodes_in_the_file_delete_the_ones_too_many",)),
    "F11 down knows the nodes that the file does not name": Switch(
        ((sessions.Fleet, "in_bucket", lambda self: []),),
        (f"{FLEET}down_from_another_computer_finds_the_nodes_that_its_file_does_not_name",)),
    "F4 what was cancelled ends in Slurm": Switch(
        ((sessions, "cancelled", lambda *_: ()),),
        (f"{FLEET}what_was_cancelled_ends_in_slurm_too_when_the_command_was_killed_half_way",)),
    "F12 the VM stays until all nodes are gone": Switch(
        ((down, "leftovers_of", lambda end: ""),),
        (f"{FLEET}the_vm_stays_until_all_nodes_are_gone",)),
}  # fmt: skip
SWITCHES = {name: replace(switch, timeout=TIMEOUT) for name, switch in SWITCHES.items()}
