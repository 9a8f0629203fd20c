"""What the deployments of a fleet are, and which tasks Slurm must have."""

from dataclasses import replace

import pytest

from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.level import Level
from orchestrator.domain.names import capacity_prefix_of, prefix_of
from orchestrator.domain.observation import Bucket, Present
from orchestrator.domain.plan import Kind
from orchestrator.domain.spec import FLEET_COMMAND, FleetSpec, JobSpec
from orchestrator.planning.decide import decide
from orchestrator.planning.fleet.deployments import SlurmController, fleet_of, node_names, node_spec
from orchestrator.planning.fleet.tasks import (
    SlurmTask,
    Submission,
    TaskState,
    grid,
    rows,
    unfinished,
    waiting_copies,
)
from tests.engine.engine_lab import one_zone_spec
from tests.kit.records import record_of
from tests.planning.worlds import world

CONTROLLER = SlurmController("10.0.0.2", 6817, "slurm-abc.tar.gz")


def a_fleet(nodes=3, **more):
    """Return the spec of a fleet."""
    spec = one_zone_spec(job__command=FLEET_COMMAND, **more)
    return replace(spec, fleet=FleetSpec(nodes))


def a_submission(name="sweep", tasks=4, **more):
    """Return a job of some tasks."""
    return Submission(name, tuple({"n": str(n)} for n in range(tasks)), JobSpec("x"), "b", "s", 1.0, **more)


def test_each_node_is_a_deployment_in_a_folder_of_the_fleets_bucket():
    """It has no VM, it never fails for want of output, and its own settings do not change the others'."""
    spec = a_fleet()
    assert node_names(spec) == ("demo-001", "demo-002", "demo-003")
    node = node_spec(spec, "demo-002", "fleet-bucket", CONTROLLER)
    assert (node.vm, node.fleet, prefix_of(node)) == ("none", None, "nodes/demo-002/")
    assert node.bucket.adopt
    assert node.job.env["FLEET_NODE"] == "demo-002"
    assert [p for p in run_rules(node, load_catalog()) if p.level is Level.STOP] == []


def test_the_nodes_of_a_fleet_remember_zones_together_and_others_alone():
    """What one node has learnt keeps the next one from asking in vain."""
    node = node_spec(a_fleet(), "demo-001", "b", CONTROLLER)
    assert capacity_prefix_of(node) == ""
    alone = replace(node, bucket=replace(node.bucket, prefix="runs/a"))
    assert capacity_prefix_of(alone) == "runs/a/"
    assert (fleet_of(node), fleet_of(a_fleet()), fleet_of(alone)) == ("demo", "demo", "")


def test_a_fleets_own_deployment_asks_for_no_tpu():
    """Not even when somebody watches it as an ordinary one."""
    observed = world(bucket=Present(Bucket("b", "europe-west4")), nodes=Present(()))
    record = record_of(started_at=observed.observed_at, bundle="b", agent="a", bucket_ready=True)
    # Without a VM, which would have to come first.
    own, alone = a_fleet(vm="none"), one_zone_spec(vm="none")
    assert Kind.NODE not in {c.kind for c in decide(own, observed, record, 0.0).changes}
    assert Kind.NODE in {c.kind for c in decide(alone, observed, record, 0.0).changes}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"nodes": 0}, "fleet.nodes"), ({"nodes": 101}, "fleet.nodes"), ({"job__command": "python3 x"}, "job"),
        ({"vm__spot": True}, "vm"), ({"vm": "none"}, "vm"),
        ({"name": "a" * 38}, "name"), ({"tpu__strategy": "race"}, "tpu.strategy"),
    ],
)  # fmt: skip
def test_what_a_fleet_cannot_be_is_refused(changes, key):
    """Before anything is made."""
    given = {k: v for k, v in changes.items() if k != "nodes"}
    spec = replace(
        one_zone_spec(**{"job__command": FLEET_COMMAND, **given}), fleet=FleetSpec(changes.get("nodes", 2))
    )
    assert key in {p.setting for p in run_rules(spec, load_catalog()) if p.level is Level.STOP}


def test_a_grid_has_a_task_for_each_combination():
    """The last parameter is the fastest."""
    found = grid({"lr": ["1", "2"], "seed": ["a", "b"]})
    assert [(one["lr"], one["seed"]) for one in found] == [("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")]


def test_what_has_neither_ended_nor_been_cancelled_must_be_in_the_queue():
    """Whatever Slurm says: it may have forgotten a task, or never have heard of it."""
    assert unfinished(a_submission(cancelled=(3,)), {0: TaskState.DONE}) == (1, 2)
    assert unfinished(a_submission(), {}) == (0, 1, 2, 3)


def test_a_copy_that_waits_of_a_task_that_has_ended_is_found():
    """One that runs is left to the agent, which looks for the end; other jobs of Slurm are not ours."""
    slurm_tasks = [
        SlurmTask("sweep", 0, "RUNNING", "7", 1, "demo-001"),
        SlurmTask("sweep", 1, "PENDING", "7", 2, held=True),
        SlurmTask("sweep", 2, "PENDING", "7", 0),
        SlurmTask("other", 1, "PENDING", "8", 0),
    ]
    assert waiting_copies({"sweep": {0: TaskState.DONE, 1: TaskState.DONE}}, slurm_tasks) == (slurm_tasks[1],)


def test_the_mark_of_an_end_counts_more_than_the_queue():
    """A task that Slurm still shows has ended when the bucket says so; one that nobody shows waits."""
    slurm_tasks = [
        SlurmTask("sweep", 0, "RUNNING", "7", 1, "demo-001"),
        SlurmTask("sweep", 1, "RUNNING", "7", 2, "demo-002"),
        SlurmTask("other", 2, "RUNNING", "8", 0, "demo-003"),
    ]
    (job,) = rows([a_submission(cancelled=(3,))], {"sweep": {0: TaskState.DONE}}, slurm_tasks)
    shown = [(task.state.value, task.node, task.restarts) for task in job.tasks]
    assert shown == [("done", "", 1), ("running", "demo-002", 2), ("waiting", "", 0), ("cancelled", "", 0)]
    assert job.count(TaskState.RUNNING) == 1
