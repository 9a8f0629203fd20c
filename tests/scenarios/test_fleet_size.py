"""A fleet that grows and shrinks with its queue, on a virtual clock; Slurm is tests/kit/queue_of_nodes.py."""

import json
import re

import pytest

from tests.kit.queue_of_nodes import NodeQueue
from tests.kit.user import FleetOwner


@pytest.fixture
def owner(cloud):
    """Give the computer of a fleet of four nodes at most, which keeps none that has nothing to do."""
    return FleetOwner(
        cloud, fleet__nodes=4, fleet__min_idle=0, fleet__idle="2m", watch__poll="60s", watch__listen="30s"
    )


@pytest.fixture(autouse=True)
def _short_tasks(cloud):
    """Let Slurm be the simple one, and tasks take a minute."""
    cloud.queue = NodeQueue(cloud)
    cloud.queue.seconds = 60.0


def submit(owner, name="sweep", tasks=12):
    """Submit a job of some tasks."""
    job = {"name": name, "array": tasks, "job": {"source": "src", "command": "python3 train.py"}}
    (owner.folder / f"{name}.json").write_text(json.dumps(job))
    said = owner.run("fleet", "submit", str(owner.folder / f"{name}.json"))
    assert said.code == 0, said.err


def watch(owner, seconds, **options):
    """Let the fleet be watched for some time."""
    return owner.run("watch", interrupt=seconds, timeout=seconds + 14_400, **options)


def created(cloud):
    """Return the names of the nodes that were asked for, in that order."""
    return [call.name for call in cloud.log if call.method == "tpu.nodes.create" and call.status < 400]


def done(cloud, job="sweep"):
    """Return how many tasks of a job have ended."""
    return len(cloud.objects(f"jobs/{job}/ends/"))


def test_a_queue_of_twelve_brings_four_nodes_and_an_empty_one_takes_them_away(cloud, owner):
    """Each task runs once, and nothing is left that costs money but the VM."""
    assert "no task waits" in owner.up("--yes").err
    submit(owner)
    watch(owner, 1200.0)
    assert sorted(created(cloud)) == [f"demo-00{n}-tpu-g1" for n in (1, 2, 3, 4)]
    assert (done(cloud), set(cloud.queue.starts.values()), cloud.queue.torn) == (12, {1}, [])
    assert (cloud.nodes(), list(cloud.vms())) == ({}, ["demo-vm"])
    assert [words[0] for words in cloud.slurm if words[0] in {"drain", "undrain"}] == ["drain"] * 4


def test_status_and_cost_show_the_same_range_of_what_the_fleet_has_cost(cloud, owner):
    """Budgets count its upper end, and so does the price of an idle node."""
    owner.up("--yes")
    submit(owner)
    watch(owner, 300.0)
    shown, status = owner.run("fleet", "status"), owner.run("fleet", "status", "--json").document
    cost, plan = owner.run("fleet", "cost", "--json").document, owner.run("fleet", "plan").err
    assert 0 < 1.5 * status["usd"] < status["upper_usd"]
    assert status["upper_usd"] == pytest.approx(cost["upper_usd"], rel=0.1)
    assert re.search(r"VM RUNNING, [0-9.]+ to [0-9.]+ USD so far", shown.out)
    assert status["node_usd_hour"] < status["node_upper_usd_hour"]
    assert re.search(r"An idle node costs [0-9.]+ to [0-9.]+ USD an hour", shown.out)
    assert re.search(r"TPUs .*: [0-9.]+ to [0-9.]+ USD each", plan)


def test_plan_and_a_dry_run_say_what_it_would_cost_and_change_nothing(cloud, owner):
    """What a job would send includes its data; a task's length gives its price."""
    (owner.folder / "rows").mkdir()
    (owner.folder / "rows" / "a.txt").write_text("data")
    plan = owner.run("fleet", "plan", "--json").document
    assert (plan["nodes_max"], plan["node_usd_hour"] > 0) == (4, True)
    job = {"name": "dry", "array": 6, "job": {"source": "src", "command": "x", "data": {"d": "./rows"}}}
    (owner.folder / "dry.json").write_text(json.dumps(job))
    words = ("fleet", "submit", str(owner.folder / "dry.json"), "--dry-run", "--json")
    said = owner.run(*words, "--takes", "30m").document
    assert (said["tasks_count"], said["files_count"]) == (6, 2)
    assert said["usd"] == pytest.approx(3 * plan["node_usd_hour"])
    assert owner.run(*words).document["usd"] is None
    assert (cloud.mutations(), cloud.slurm) == ([], [])


def test_names_are_used_again_with_machines_of_a_new_number(cloud, owner):
    """And the mark by which Slurm kept tasks from the machine before does not hold for the new one."""
    owner.up("--yes")
    submit(owner, "one", 1)
    watch(owner, 700.0)
    submit(owner, "two", 1)
    watch(owner, 700.0)
    first, second = created(cloud)
    assert (first, second.startswith("demo-001-tpu-g"), first != second) == ("demo-001-tpu-g1", True, True)
    assert (done(cloud, "one"), done(cloud, "two"), cloud.nodes()) == (1, 1, {})


def test_load_that_comes_and_goes_faster_than_idle_makes_no_node_come_and_go(cloud, owner):
    """A short task each two and a half minutes, of which one is without, keeps one node."""
    owner.up("--yes")
    submit(owner, "job0", 1)
    for number in range(1, 7):
        cloud.later(200 + number * 150.0, lambda number=number: submit(owner, f"job{number}", 1))
    watch(owner, 1200.0)
    assert (created(cloud), len(cloud.queue.starts)) == (["demo-001-tpu-g1"], 7)


def test_a_lost_machine_comes_back_only_while_there_is_work(cloud, owner):
    """The task that it had runs again; no node is asked for beyond those that tasks need."""
    owner.up("--yes")
    submit(owner, tasks=2)
    cloud.queue.seconds = 200.0
    cloud.later(350.0, lambda: cloud.model.preempt("demo-002-tpu-g1", notice=False))
    watch(owner, 1800.0)
    assert (done(cloud), cloud.nodes()) == (2, {})
    assert set(created(cloud)) == {"demo-001-tpu-g1", "demo-002-tpu-g1", "demo-002-tpu-g2"}
    assert sorted(cloud.queue.starts.values()) == [1, 2]


def test_nodes_to_spare_stay(cloud):
    """With `min_idle` that many are there before the first task, and after the last one."""
    owner = FleetOwner(
        cloud, fleet__nodes=4, fleet__min_idle=1, fleet__idle="2m", watch__poll="60s", watch__listen="30s"
    )
    owner.up("--yes")
    assert list(cloud.nodes()) == ["demo-001-tpu-g1"]
    submit(owner, tasks=2)
    watch(owner, 900.0)
    assert (len(created(cloud)), len(cloud.in_use())) == (3, 1)
    # The watch sends what `up` sends.
    sent = [cloud.objects(f"nodes/demo-00{number}/bundles/") for number in (1, 2)]
    assert [name.replace("demo-002", "demo-001") for name in sent[1]] == sent[0] != []


def test_nothing_shrinks_while_slurm_does_not_answer(cloud, owner):
    """What is not known is not idle."""
    owner.up("--yes")
    submit(owner, tasks=2)
    cloud.later(250.0, lambda: setattr(cloud.queue, "silent", True))
    said = watch(owner, 900.0)
    assert sorted(cloud.in_use()) == ["demo-001-tpu-g1", "demo-002-tpu-g1"]
    assert "it does not answer" in said.err
    status = owner.run("status", "--json").document
    assert (status["nodes_wanted"], status["nodes_requested"], status["nodes_max"]) == (None, 2, 4)
    cloud.queue.silent = False
    watch(owner, 600.0)
    assert cloud.nodes() == {}


def test_a_node_that_gets_a_task_in_the_last_moment_stays(cloud, owner):
    """Slurm gives it one just before it is drained: it is not deleted, and works on."""
    owner.up("--yes")
    submit(owner, "one", 1)
    cloud.queue.before_drain = lambda: submit(owner, "late", 1)
    watch(owner, 480.0)
    assert ("undrain", "demo-001") in cloud.slurm
    assert (cloud.queue.torn, cloud.in_use()) == ([], ["demo-001-tpu-g1"])
    watch(owner, 600.0)
    assert (done(cloud, "late"), created(cloud), cloud.nodes()) == (1, ["demo-001-tpu-g1"], {})


def test_a_fleet_that_is_being_taken_down_does_not_grow(cloud, owner):
    """Tasks wait, and `down` was killed at its first node: no watch brings anything back."""
    owner.up("--yes")
    cloud.queue.seconds = 300.0
    submit(owner)
    watch(owner, 400.0)
    assert owner.run("down", "--yes", kill=("tpu.nodes.delete", "after")).code is None
    watch(owner, 300.0)
    assert (len(created(cloud)), done(cloud) < 12) == (4, True)
    owner.down()
    assert (cloud.nodes(), cloud.vms()) == ({}, {})


@pytest.mark.parametrize("call", [15, 60, 110])
def test_a_watch_that_is_killed_anywhere_loses_and_leaves_nothing(cloud, owner, call):
    """The next one ends what it had begun: each task is done, no node stays, none is deleted with a task."""
    owner.up("--yes")
    submit(owner, tasks=3)
    assert watch(owner, 1200.0, kill=(call, "after" if call % 2 else "before")).code is None
    watch(owner, 1200.0)
    assert (done(cloud), cloud.queue.torn, cloud.nodes()) == (3, [], {})
    assert len(created(cloud)) == 3


def test_the_budget_counts_what_nodes_have_cost_that_are_gone(cloud):
    """A new watch knows it too, though nobody watches those nodes any more."""
    owner = FleetOwner(cloud, fleet__nodes=1, fleet__min_idle=0, fleet__idle="2m", watch__budget_usd=5)
    owner.up("--yes")
    cloud.queue.seconds = 1800.0
    submit(owner, "one", 1)
    watch(owner, 2700.0)
    assert (cloud.nodes(), done(cloud, "one")) == ({}, 1)
    submit(owner, "two", 1)
    said = watch(owner, 2700.0)
    assert "budget" in said.err
    assert (done(cloud, "two"), cloud.in_use(), list(cloud.vms().values())) == (0, [], ["TERMINATED"])
