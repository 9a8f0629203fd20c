"""A fleet on a virtual clock: its machines, its tasks on a model of Slurm, its money and its end."""

import hashlib
import json
from collections import Counter
from dataclasses import replace

import pytest

from orchestrator.contract.bucket.object_names import CAPACITY, RECORD
from orchestrator.contract.bucket.uncommitted_manifest import (
    RescueMoment,
    UncommittedFile,
    UncommittedManifest,
    folder_name,
    manifest_name,
)
from tests.engine.engine_lab import QUOTA
from tests.kit.user import FleetOwner, User


def ended(cloud, job="sweep"):
    """Return the marks of a job's tasks."""
    return [name.rpartition("/")[2] for name in cloud.objects(f"jobs/{job}/ends/")]


@pytest.fixture
def owner(cloud):
    """Give the computer; with the default of 3 s each node's folder would be read 1,200 times in an hour."""
    return FleetOwner(cloud, watch__listen="30s")


def test_up_makes_one_vm_and_all_nodes_and_down_leaves_nothing(cloud, owner):
    """Each node has its folder of the one bucket, and the capacity history is common."""
    said = owner.up("--yes")
    assert "3 of 3 nodes are up" in said.err
    assert [sorted(cloud.nodes()), list(cloud.vms())] == [
        ["demo-001-tpu-g1", "demo-002-tpu-g1", "demo-003-tpu-g1"], ["demo-vm"],
    ]  # fmt: skip
    assert {f"nodes/demo-00{n}/{RECORD}" for n in (1, 2, 3)} <= set(cloud.objects())
    assert not [name for name in cloud.objects("nodes/") if name.endswith(CAPACITY)]
    assert [words[0] for words in cloud.slurm][:2] == ["engine", "head"]
    owner.down()
    assert (cloud.nodes(), cloud.vms(), len(cloud.buckets())) == ({}, {}, 1)
    owner.down("--delete-data")
    assert cloud.buckets() == []


def test_down_lists_tpus_once_for_all_nodes_and_vms_for_the_head_only(cloud):
    """
    A node has no VM, and a list of TPUs that one node has asked for serves the others.

    The nodes go one after the other here, as they do not elsewhere: so each still asks for lists of its own.
    """
    calls, counts = cloud.model.calls, {}
    for nodes in (2, 8):
        owner = FleetOwner(cloud, f"of {nodes}", fleet__nodes=nodes, name=f"fleet{nodes}")
        owner.up("--yes")
        before = Counter(calls)
        owner.down()
        counts[nodes] = calls - before
    assert cloud.nodes() == {}
    lists, aggregated, tpus = "compute.instances.list", "compute.instances.aggregatedList", "tpu.nodes.list"
    assert counts[8][lists] == counts[2][lists] < 20
    assert counts[8][aggregated] == counts[2][aggregated] == 1
    assert counts[8][tpus] < 25 * 8, "it was 48 for each node"


def test_what_runs_on_a_node_is_no_job_whose_steps_could_be_lost(cloud, owner):
    """Slurm reads no TPUCTL_CHECKPOINT_DIR and has no steps; a task on a lost node has, and goes on elsewhere."""
    said = owner.up("--yes").err
    assert ("TPUCTL_CHECKPOINT_DIR" in said, "slurm.sh" in said) == (False, False)
    cloud.later(100, lambda: cloud.model.preempt("demo-002-tpu-g1", notice=False))
    said = owner.run("watch", interrupt=600, timeout=3600).err
    assert "is PREEMPTED; a task that ran there goes on elsewhere, from its newest checkpoint" in said
    assert "has no steps" not in said


def test_fewer_nodes_in_the_file_delete_the_ones_too_many(cloud, owner):
    """And more of them make only what is missing."""
    owner.up("--yes")
    owner.edit(fleet__nodes=1)
    owner.up("--yes")
    assert list(cloud.nodes()) == ["demo-001-tpu-g1"]


def test_down_from_another_computer_finds_the_nodes_that_its_file_does_not_name(cloud, owner):
    """They are in the bucket: without them `down` would say that nothing is left while they are billed."""
    owner.up("--yes")
    FleetOwner(cloud, "elsewhere", fleet__nodes=1).down()
    assert (cloud.nodes(), cloud.vms()) == ({}, {})


def test_up_from_another_computer_with_fewer_nodes_deletes_the_ones_too_many(cloud, owner):
    """Also those that only the first computer knows of."""
    owner.up("--yes")
    other = FleetOwner(cloud, "elsewhere", fleet__nodes=1)
    other.offline = "tpu.nodes.delete"
    said = other.run("up", "--yes", timeout=48 * 3600)
    assert "demo-002 is too many, and stays" in said.err
    other.offline = False
    other.up("--yes")
    assert list(cloud.nodes()) == ["demo-001-tpu-g1"]


def test_secrets_of_tasks_are_named_and_nodes_that_could_not_read_them_are_recreated(cloud, owner):
    """With the wide scope; the job in the bucket has the name of the secret."""
    owner.up("--yes")
    owner.edit(tpu__scope="cloud-platform")
    owner.up("--yes")
    assert sorted(cloud.in_use()) == [f"demo-00{n}-tpu-g2" for n in (1, 2, 3)]
    nodes = cloud.model.kernel.state.nodes.values()
    assert all("cloud-platform" in str(node.scopes) for node in nodes if node.name in cloud.in_use())
    job = {"source": "src", "command": "python3 train.py", "secrets": {"TOKEN": "secret://hf"}}
    (owner.folder / "one.yaml").write_text(json.dumps({"name": "one", "job": job}))
    assert owner.run("submit", str(owner.folder / "one.yaml")).code == 0
    (task,) = next(iter(cloud.machines.fleet.controllers.values())).tasks
    assert "secret://hf" in task.script


def test_up_asks_the_other_zones_where_one_has_no_quota_and_the_watch_says_it_in_a_line(cloud):
    """Each node as a single deployment does; the line counts the nodes."""
    owner = FleetOwner(cloud, tpu__zones=["europe-west4-b", "europe-west4-a"])
    cloud.change(quotas={(QUOTA, "europe-west4-b"): 8})
    assert "3 of 3 nodes are up" in owner.up("--yes").err
    assert {node.zone for node in cloud.model.kernel.state.nodes.values()} == {
        "europe-west4-a",
        "europe-west4-b",
    }


def test_what_was_cancelled_ends_in_slurm_too_when_the_command_was_killed_half_way(cloud, owner):
    """The watch sends Slurm what the bucket says, and queues none of it when Slurm has forgotten everything."""
    owner.up("--yes")
    owner.submit(tasks=5, steps=600)
    assert owner.run("cancel", "sweep", kill=("slurm", "before")).code is None
    (controller,) = cloud.machines.fleet.controllers.values()
    assert len(controller.tasks) == 5
    owner.run("watch", interrupt=60)
    assert controller.tasks == []
    controller.lose_state()
    before = len(cloud.slurm)
    owner.run("watch", interrupt=60)
    assert "submit" not in {words[0] for words in cloud.slurm[before:]}
    assert (controller.tasks, ended(cloud)) == ([], [])


def test_a_lost_node_comes_back_and_slurm_hears_which_machine_is_gone(cloud, owner):
    """The watch of a fleet replaces it; the others are left alone."""
    owner.up("--yes")
    cloud.model.preempt("demo-002-tpu-g1", notice=False)
    owner.run("watch", interrupt=1200, timeout=7200)
    assert sorted(cloud.in_use()) == ["demo-001-tpu-g1", "demo-002-tpu-g2", "demo-003-tpu-g1"]
    assert ("lost", "demo-002", "1") in cloud.slurm


def test_the_task_of_a_lost_node_goes_on_from_its_checkpoint_and_ends_once(cloud, owner):
    """On whatever node is free, in front of those that have not begun."""
    owner.up("--yes")
    assert owner.submit(tasks=5).code == 0
    cloud.later(400, lambda: cloud.model.preempt("demo-002-tpu-g1", notice=False))
    owner.run("watch", interrupt=2400, timeout=7200)
    assert ended(cloud) == [f"{number}.done" for number in range(5)]
    book = cloud.machines.fleet.book
    assert (book.verdict, book.starts) == ([], 6)
    tasks = owner.run("queue", "sweep", "--json").document["jobs"][0]["tasks"]
    assert {task["state"] for task in tasks} == {"done"}
    assert sorted(task["restarts"] for task in tasks) == [0, 0, 0, 0, 1]


def test_a_queue_that_slurm_has_forgotten_is_filled_again_by_the_watch(cloud, owner):
    """What has ended is not run again."""
    owner.up("--yes")
    owner.submit(tasks=5)
    (controller,) = cloud.machines.fleet.controllers.values()
    cloud.later(900, lambda: ended(cloud) and controller.lose_state())
    owner.run("watch", interrupt=2400, timeout=7200)
    assert (ended(cloud), controller.tasks) == ([f"{number}.done" for number in range(5)], [])
    assert cloud.machines.fleet.book.verdict == []


def test_a_held_copy_of_a_task_that_has_ended_leaves_the_queue(cloud, owner):
    """Slurm lost sight of a node, queued its task again, was told to hold the job; the node went on to the end."""
    owner.up("--yes")
    owner.submit(tasks=2)
    (controller,) = cloud.machines.fleet.controllers.values()
    (first,) = [task for task in controller.tasks if task.number == 0]
    owner.run("watch", interrupt=2400, timeout=7200)
    assert (ended(cloud), controller.tasks) == (["0.done", "1.done"], [])
    controller.tasks.append(replace(first, node="", held=True))
    owner.run("watch", interrupt=60)
    assert controller.tasks == []
    assert (ended(cloud), cloud.machines.fleet.book.verdict) == (["0.done", "1.done"], [])


def test_the_budget_is_that_of_the_whole_fleet(cloud):
    """It ends all of it when VM and nodes together have cost it, not when one of them has."""
    owner = FleetOwner(cloud, watch__budget_usd=4, watch__poll="60s")
    owner.up("--yes")
    # Three TPUs of 4 to 6.3 USD an hour: one alone would have had until the 38th minute.
    owner.run("watch", interrupt=30 * 60 - cloud.clock.monotonic())
    assert cloud.in_use() == []


def test_a_loop_on_the_vm_stops_that_machine_after_the_last_node_is_gone(cloud):
    """Nobody else would delete a node that it has left."""
    owner = FleetOwner(cloud, watch__budget_usd=4, watch__poll="60s", watch__on_vm=True)
    owner.up("--yes")
    assert "no watcher runs: tpuctl fleet watch --on-vm\n" in owner.run("status").out
    owner.run("watch", "--loop", timeout=48 * 3600)
    calls = [method for method, _ in cloud.mutations()]
    ends = [call for call in calls if call.endswith(("nodes.delete", "instances.stop"))]
    assert ends == ["tpu.nodes.delete"] * 3 + ["compute.instances.stop"]


def test_ordinary_commands_do_not_take_a_fleet_for_a_deployment(cloud, owner):
    """`up` would make another TPU, `push` would restart Slurm."""
    for words in (("up",), ("plan",), ("push",), ("watch",)):
        said = User.run(owner, *words)
        assert (said.code, "tpuctl fleet" in said.err) == (2, True), words
    assert cloud.mutations() == []


def test_files_of_a_task_that_no_checkpoint_contains_can_be_fetched(cloud, owner):
    """The error about the missing checkpoint names the command, and so does the queue."""
    owner.up("--yes")
    job = {
        "name": "one",
        "array": 2,
        "job": {"source": "src", "command": "python3 train.py", "checkpoint": {"format": "marker"}},
    }
    (owner.folder / "one.yaml").write_text(json.dumps(job))
    assert owner.run("fleet", "submit", str(owner.folder / "one.yaml")).code == 0
    folder = "jobs/one/tasks/1/"
    name = f"{folder_name(1, 0)}checkpoints/model.pt"
    saved = UncommittedFile("checkpoints/model.pt", 5, hashlib.sha256(b"MODEL").hexdigest(), name)
    manifest = UncommittedManifest(
        1, 0, 1, 1, "b", "s", "marker", RescueMoment.UNCOMMITTED, True, (saved,), (), 1.0e9
    )
    cloud.put_object(folder + name, b"MODEL")
    cloud.put_object(folder + manifest_name(1, 0), manifest.text().encode())
    cloud.put_object("jobs/one/ends/1.uncommitted", b"{}")
    refused = owner.run("fleet", "fetch", "one")
    assert (refused.code, "tpuctl fleet fetch one --uncommitted" in refused.err) == (1, True), refused.err
    assert "tpuctl fleet fetch one --uncommitted" in owner.run("fleet", "queue", "one").out
    assert (
        owner.run("fleet", "fetch", "one", "--uncommitted", "--output", str(owner.folder / "got")).code == 0
    )
    assert (owner.folder / "got" / "1" / "checkpoints" / "model.pt").read_bytes() == b"MODEL"


def test_the_vm_stays_until_all_nodes_are_gone(cloud, owner):
    """It can still be asked for them then, and the next `down` finds everything."""
    owner.up("--yes")
    owner.offline = "tpu.nodes.delete"
    retained = owner.run("down", "--yes", timeout=48 * 3600)
    assert (retained.code, list(cloud.vms()), len(cloud.nodes())) == (5, ["demo-vm"], 3), retained.err
    owner.offline = False
    owner.down()
    assert (cloud.vms(), cloud.nodes()) == ({}, {})


def test_a_job_that_is_submitted_again_queues_what_has_not_ended(cloud, owner):
    """Its ended tasks are counted, and never run again."""
    owner.up("--yes")
    job = {"name": "one", "array": 3, "job": {"source": "src", "command": "python3 train.py"}}
    (owner.folder / "one.yaml").write_text(json.dumps(job))
    for ended, numbers in (((), "0,1,2"), ((0, 2), "1")):
        for number in ended:
            cloud.put_object(f"jobs/one/ends/{number}.done", b"{}")
        for controller in cloud.machines.fleet.controllers.values():
            controller.lose_state()
        assert owner.run("fleet", "submit", str(owner.folder / "one.yaml")).code == 0
        assert [words[-1] for words in cloud.slurm if words[0] == "submit"][-1] == numbers


@pytest.fixture
def busy(cloud, owner):
    """Give the computer, with a fleet that has a job of three tasks."""
    owner.up("--yes")
    job = {"name": "sweep", "array": 3, "job": {"source": "src", "command": "python3 train.py"}}
    (owner.folder / "sweep.yaml").write_text(json.dumps(job))
    (owner.folder / "next.yaml").write_text(json.dumps({**job, "name": "next", "after": ["sweep"]}))
    owner.fleet("submit", str(owner.folder / "sweep.yaml"))
    return owner


def test_a_failure_is_tried_again_once_and_what_it_said_is_stored(cloud, busy):
    """What was done or never began is left alone."""
    cloud.put_object("jobs/sweep/ends/0.done", b"{}")
    cloud.put_object("jobs/sweep/ends/1.failed", b'{"incarnation": 1}')
    assert busy.fleet("retry", "sweep", "--json")["tasks"] == [1]
    assert cloud.objects("jobs/sweep/ends/") == ["jobs/sweep/ends/0.done"]
    assert len(cloud.objects("jobs/sweep/earlier-ends/1.")) == 1
    assert busy.fleet("retry", "sweep", "--json")["tasks"] == []


def test_what_was_cancelled_by_mistake_comes_back(cloud, busy):
    """Of a whole job, or one task of it."""
    busy.fleet("cancel", "sweep")
    assert busy.fleet("retry", "sweep/2", "--json")["tasks"] == [2]
    assert [state == "cancelled" for state in busy.states("sweep")] == [True, True, False]
    assert busy.fleet("retry", "sweep", "--json")["tasks"] == [0, 1]
    assert "cancelled" not in busy.states("sweep")


def test_a_job_that_is_held_says_so_until_it_is_released(cloud, busy):
    """Twice the same word changes nothing."""
    assert [busy.fleet("hold", "sweep", "--json")["changed"] for _ in range(2)] == [True, False]
    assert busy.job("sweep")["hold_reason"] == "held"
    busy.fleet("release", "sweep")
    assert busy.job("sweep")["hold_reason"] == ""


def test_a_job_waits_for_the_one_before_and_a_retry_lets_it_go_on(cloud, busy):
    """A failure closes its way, until that task is tried again."""
    busy.fleet("submit", str(busy.folder / "next.yaml"))
    assert busy.job("next")["after"] == ["sweep"]
    cloud.put_object("jobs/sweep/ends/1.failed", b"{}")
    assert (busy.job("next")["hold_reason"], busy.job("next")["after"]) == ("after", [])
    busy.fleet("retry", "sweep")
    assert busy.job("next")["after"] == ["sweep"]
    for number in range(3):
        cloud.put_object(f"jobs/sweep/ends/{number}.done", b"{}")
    assert (busy.job("next")["hold_reason"], busy.job("next")["after"]) == ("", [])


def test_a_job_cannot_wait_for_what_was_not_submitted(cloud, owner):
    """It would wait for ever."""
    owner.up("--yes")
    (owner.folder / "a.yaml").write_text(json.dumps({"name": "a", "after": ["b"], "job": {"command": "x"}}))
    said = owner.run("submit", str(owner.folder / "a.yaml"))
    assert (said.code, "there is no job 'b'" in said.err) == (2, True)
    assert not cloud.objects(".tpuctl/orders/")


def test_several_slices_are_asked_for_in_one_zone_and_never_more_than_there_are(cloud):
    """What the fleet can never give is refused before anything is sent."""
    owner = FleetOwner(cloud, tpu__zones=["europe-west4-b", "europe-west4-a"])
    owner.up("--yes")
    path = owner.folder / "wide.yaml"
    job = {"name": "wide", "job": {"command": "x", "checkpoint": {"format": "orbax", "dir": "bucket"}}}
    path.write_text(json.dumps({**job, "slices": 4}))
    refused = owner.run("fleet", "submit", str(path))
    assert (refused.code, "needs 4 slices, and the fleet has 3 nodes" in refused.err) == (2, True)
    assert cloud.objects("jobs/") == []
    path.write_text(json.dumps({**job, "slices": {"min": 2, "max": 4}}))
    assert owner.run("fleet", "submit", str(path)).code == 0
    (words,) = (words for words in cloud.slurm if words[0] == "submit")
    assert words[-2:] == ("--nodes=2-4", "--constraint=[europe-west4-b|europe-west4-a]")
    path.write_text(json.dumps({**job, "slices": 3}))
    assert "was submitted before" in owner.run("fleet", "submit", str(path)).err  # it would be another job


def test_a_fleet_that_is_not_up_says_so(owner):
    """And how it gets there."""
    for words in (("queue",), ("report",), ("cost",)):
        said = owner.run("fleet", *words)
        assert (said.code, "run: tpuctl fleet up" in said.err) == (1, True), (words, said.err)


@pytest.mark.parametrize(
    ("into", "output", "file"),
    [("r.csv", (), "r.csv"), ("r.csv", ("--output", "mine.csv"), "mine.csv"), ("", (), None)],
)
def test_results_are_written_where_the_job_or_the_user_says(
    cloud, owner, tmp_path, monkeypatch, into, output, file
):
    """Without either no file is written; the table that is shown and the file have the same tasks."""
    owner.up("--yes")
    collect = {"files": ["metrics.json"], **({"into": into} if into else {})}
    owner.fleet("submit", str(owner.job_file("sweep", 3, 60, collect=collect)))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    shown = owner.fleet("fleet", "results", "sweep", *output, "--json")
    made = list(here.iterdir())
    assert (shown["file"], [path.name for path in made]) == (file, [file] if file else [])
    for path in made:
        head, *lines = path.read_text().splitlines()
        assert (head.split(",")[0], len(lines)) == (shown["columns"][0], len(shown["rows"])) == ("task", 3)
