"""`down` where no watcher ran: what the bucket and the last heartbeats tell is in every later command."""

import pytest

from orchestrator.contract.bucket.object_names import EVENTS
from tests.kit.user import User

G1 = "demo-tpu-g1"


def test_down_records_a_preemption_and_the_last_checkpoint_that_no_watcher_saw(cloud, user: User):
    """Preempted and deleted without a watch: it was a preemption, and the newest step is the bucket's."""
    user.up()
    cloud.wait(900)
    cloud.model.preempt(G1, notice=False)
    cloud.wait(60)
    before = user.run("status", "--fresh", "--json").document
    assert before["preemptions"] == 1
    user.down()
    saved = max(step for step, _ in cloud.machines.complete(cloud.buckets()[0]))
    after = user.run("status", "--json").document
    assert (after["preemptions"], after["checkpoint_step"]) == (1, saved)
    stored = cloud.objects(EVENTS)
    assert [name for name in stored if name.endswith("-preempted.json")]
    assert [name for name in stored if name.endswith("-delete.json")]
    again = user.run("report", "--json").document
    assert again["summary"]["preemptions"] == 1


def test_a_second_down_counts_no_preemption_again(cloud, user: User):
    """The first one was killed after it had recorded it."""
    user.up()
    cloud.wait(900)
    cloud.model.preempt(G1, notice=False)
    user.run("down", "--yes", kill=("tpu.nodes.delete", "after"))
    user.down()
    assert user.run("status", "--json").document["preemptions"] == 1


def test_status_of_a_deployment_that_is_down_asks_the_bucket_for_its_checkpoint(cloud, user: User):
    """The last save came after the last heartbeat that `down` could read."""
    cloud.machines.reports_nothing = lambda worker: cloud.clock.now() > cloud.reports_until
    cloud.reports_until = float("inf")
    user.up()
    cloud.wait(900)
    cloud.reports_until = cloud.clock.now()
    cloud.wait(900)
    user.down()
    saved = max(step for step, _ in cloud.machines.complete(cloud.buckets()[0]))
    assert user.run("status", "--json").document["checkpoint_step"] == saved


def test_report_and_cost_agree_on_the_storage_and_on_the_sum(cloud, user: User):
    """Both count what the bucket holds now."""
    user.up()
    cloud.wait(7200)
    user.down()
    usd = user.run("cost", "--json").document["uses"]["storage"]
    assert usd > 0
    page = user.folder / "page.html"
    user.run("report", "--output", str(page))
    assert "Storage is in it for what the bucket holds now" in page.read_text()


def test_down_of_a_preempted_tpu_ends_the_cost_of_nothing_else(cloud, user: User):
    """Each pass stops counting a TPU that it sees PREEMPTED; `down` names no price per hour for it either."""
    user.up()
    cloud.wait(900)
    cloud.model.preempt(G1, notice=False)
    assert "this ends about" not in user.down().err


def test_plan_after_down_names_the_format_of_the_checkpoints_in_the_bucket(cloud, user: User):
    """The machines that recognised it are gone; their checkpoints name it."""
    user.up()
    cloud.machines.say("demo", format="torch")
    cloud.wait(900)
    user.down()
    assert "as those in the bucket are" in user.run("plan").out


def test_the_cost_of_a_tpu_that_was_preempted_unwatched_does_not_grow_until_the_next_look(cloud, user: User):
    """It is counted to the report that it owed; what it may have cost more is the upper end, and is said."""
    user.up()
    cloud.wait(900)
    cloud.model.preempt(G1, notice=False)
    cloud.wait(60)
    soon = user.run("cost", "--json").document
    cloud.wait(36_000)
    (late, shown) = (user.run("cost", "--json").document, user.run("cost").out)
    (tpu,) = (item for item in late["items"] if item["what"].startswith("TPU v"))
    assert tpu["machine_seconds"] <= 1000
    (end,) = late["unwatched_ends"]
    assert end["observed_at"] - end["until"] > 35_000
    assert late["upper_usd"] - late["usd"] > end["upper_usd"] > soon["upper_usd"]
    assert "The end of demo-tpu-g1 was not watched" in " ".join(shown.split())


def test_a_job_that_is_done_has_its_model_and_an_idle_tpu_that_costs(cloud, user: User):
    """Nobody has recorded the end: `checkpoints` and `status` go by the reports, and name what ends the cost."""
    user.up()
    cloud.wait(900)
    assert "resumes here" in user.run("checkpoints").out
    cloud.machines.say("demo", phase="done")
    listed = user.run("checkpoints").out
    assert ("complete, the model" in listed, "resumes here" in listed) == (True, False)
    following = [line for line in user.run("status").out.splitlines() if line.startswith("next")]
    assert following[0].startswith(
        "next         run: tpuctl down   (the job is over; demo-tpu-g1 is idle and costs"
    )


def test_the_next_step_after_a_loss_is_a_command(cloud, user: User):
    """What a watcher would do comes second, as none runs."""
    user.up()
    cloud.wait(900)
    cloud.model.preempt(G1, notice=False)
    cloud.wait(60)
    following = [line for line in user.run("status").out.splitlines() if line.startswith("next")]
    assert following[0] == "next         run: tpuctl watch"
    assert following[1].startswith(f"next         delete TPU {G1}")


def test_the_cost_of_a_vm_that_stopped_unwatched_does_not_grow_until_the_next_look(cloud):
    """As the loop on it stops it: what is counted then is its disk, in `cost`, in `down` and after it."""
    user = User(cloud, vm={})
    user.up()
    cloud.wait(900)
    cloud.model.preempt(G1, notice=False)
    with cloud.model.lock:
        cloud.model.compute.stop("europe-west4-b", "demo-vm")
    cloud.wait(36_000)
    late = user.run("cost", "--json").document
    assert 0 < hours(late, "VM e2-small") < 0.5
    assert hours(late, "VM external address") < 0.5
    assert hours(late, "VM disk 50 GB") > 10
    disk = late["usd_hour"]
    said = user.run("down", "--yes", "--json").document
    assert said["ended_usd_hour"] == pytest.approx(disk, abs=0.0001)
    assert hours(user.run("cost", "--json").document, "VM e2-small") < 0.5


def test_the_cost_of_deleted_data_has_the_ends_that_no_watch_saw(cloud):
    """`down --delete-data` keeps what it has cost, and nothing tells the end of its machines afterwards."""
    user = User(cloud, vm={})
    user.up()
    cloud.wait(900)
    with cloud.model.lock:
        cloud.model.compute.stop("europe-west4-b", "demo-vm")
    cloud.wait(36_000)
    user.down("--delete-data")
    assert 0 < hours(user.run("cost", "--json").document, "VM e2-small") < 0.5


def hours(cost, what):
    """Return for how long a machine is counted in a cost."""
    (item,) = (item for item in cost["items"] if item["what"] == what)
    return item["machine_seconds"] / 3600
