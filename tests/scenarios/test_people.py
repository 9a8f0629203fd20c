"""What people and their computers do: kill, interrupt, close the lid, come twice, and forget."""

import shutil

import pytest

from tests.scenarios.desk import Desk

G1, G2 = "demo-tpu-g1", "demo-tpu-g2"
LEASE = "storage.objects.insert .tpuctl/lease"
VM = {"machine": "e2-small"}


def test_s06_down_ends_whatever_is_gone(town, desk):
    """Nothing was ever there, the node went by itself, all is down already: each time it ends well."""
    desk.down()
    desk.up()
    town.cloud.set_node_state(next(iter(town.nodes())), "vanish")
    desk.down()
    desk.down("--delete-data")
    assert (town.nodes(), town.buckets()) == ({}, [])


def test_s06_down_does_not_wait_for_ever_on_a_stale_lock(town, desk):
    """A killed `watch` of another computer left its lease: a minute later `down` has it."""
    desk.up()
    assert desk.run("watch", kill=(4, "after")).code is None
    began = town.clock.monotonic()
    Desk(town, "elsewhere").down()
    assert 30 < town.clock.monotonic() - began < 180
    assert town.nodes() == {}


def test_s07_down_that_cannot_delete_the_tpu_does_not_say_that_it_has(town):
    """The VM goes, the TPU's deletion is refused: status 5 and its name, until it can be deleted."""
    desk = Desk(town, vm=VM)
    desk.up()
    town.change(denied_permissions=frozenset({"tpu.nodes.delete"}))
    said = desk.run("down", "--yes")
    assert (said.code, town.vms()) == (5, {})
    assert "left: TPU demo-tpu-g1 europe-west4-b (READY)" in said.err
    town.change(denied_permissions=frozenset())
    desk.down()
    assert town.nodes() == {}


def test_down_names_what_it_does_not_delete_and_how_the_user_does(town, desk):
    """The file named another zone, and there is no record: the TPU there carries the label, and is left alone."""
    desk.up()
    there = {"type": "v5litepod-8", "zones": ["europe-west4-a"]}
    moved = Desk(town, "elsewhere", tpu=there, bucket={"name": "another-bucket"})
    said = moved.run("down", "--yes")
    assert said.code == 5
    assert "left: TPU demo-tpu-g1 europe-west4-b (READY, not touched)" in said.err
    delete = "gcloud compute tpus tpu-vm delete demo-tpu-g1 --zone europe-west4-b --project local-project"
    assert delete in " ".join(said.err.split())
    assert town.nodes() == {"demo-tpu-g1": "READY"}


@pytest.mark.parametrize(("place", "left"), [("tpu.nodes.delete", []), ("tpu.nodes.create", [G2])])
def test_s11_nothing_is_added_to_a_deployment_that_is_being_deleted(town, desk, place, left):
    """
    A `watch` stands still in the middle of a replacement while `down` runs elsewhere; then it wakes up.

    What was on its way to the cloud arrives, and nothing more is asked for. The next `down` finds it.
    """
    desk.up()
    town.cloud.preempt(G1, notice=False)
    elsewhere = Desk(town, "elsewhere")
    asked = len(town.asked("tpu.nodes.create"))
    said = desk.watch(1200, meanwhile={place: elsewhere.down})
    assert said.code == 6
    assert list(town.nodes()) == left
    assert len(town.asked("tpu.nodes.create")) - asked == len(left)
    elsewhere.down()
    assert town.nodes() == {}


def test_s11_nothing_is_added_when_even_the_bucket_is_gone_meanwhile(town, desk):
    """`down --delete-data` took the lease away with its bucket: whoever wakes up acts no more, and says why."""
    desk.up()
    town.cloud.preempt(G1, notice=False)
    elsewhere = Desk(town, "elsewhere")
    said = desk.run("watch", meanwhile={"tpu.nodes.delete": lambda: elsewhere.down("--delete-data")})
    assert said.code == 1
    assert "the bucket with checkpoints, code and logs is gone" in said.err
    assert len(town.asked("tpu.nodes.create")) == 1
    assert (town.nodes(), town.buckets()) == ({}, [])


@pytest.mark.parametrize("next_word", ["up", "down"])
def test_s12_ctrl_c_while_the_tpu_is_made_loses_nothing(town, desk, next_word):
    """The next `up` waits for the same node, and `down` deletes it although it is not there yet."""
    said = desk.run("up", interrupt=60)
    assert said.code == 130
    assert town.nodes() == {G1: "CREATING"}
    getattr(desk, next_word)()
    assert len(town.asked("tpu.nodes.create")) == 1
    town.wait(1200)
    assert town.nodes() == ({G1: "READY"} if next_word == "up" else {})


@pytest.mark.parametrize("lost", [True, "tpu."], ids=["all", "TPUs"])
def test_s13_a_controller_without_network_kills_no_healthy_job(town, desk, lost):
    """Twenty minutes offline, or with the bucket alone: nothing is changed then or later, and the loop goes on."""
    desk.up()
    before = town.mutations()
    town.later(300, lambda: setattr(desk, "offline", lost))
    town.later(1500, lambda: setattr(desk, "offline", False))
    said = desk.watch(2400)
    assert said.code == 130
    assert "network" in said.err
    assert "job runs" in said.err.splitlines()[-3]
    assert town.mutations() == before
    assert sum(town.crew.starts.values()) == 1


def test_s14_a_closed_laptop_and_an_expired_token_harm_nothing(town, desk):
    """Eight hours later the loop wakes up without credentials: it says so and ends; the job has gone on."""
    desk.up()
    before = town.mutations()

    def close_the_lid():
        town.wait(8 * 3600)
        desk.expired = True

    said = desk.run("watch", meanwhile={6: close_the_lid}, patience=9 * 3600)
    assert said.code == 3
    assert "next:" in said.err
    assert town.mutations() == before
    desk.expired = False
    said = desk.watch(300)
    assert (said.code, "job runs" in said.err) == (130, True)
    assert town.mutations() == before
    assert max(town.crew.complete(town.buckets()[0]))[0] > 8 * 300


def test_s15_a_loop_that_stopped_silently_is_told_and_its_machines_are_swept(town):
    """`status` says that nobody watches; past the time to live any command of the computer cleans up."""
    desk = Desk(town, watch__ttl="2h")
    desk.up()
    assert desk.run("watch", kill=(4, "after")).code is None
    town.wait(600)
    assert "loop: none runs" in desk.run("status").out
    other = Desk(town, "second folder", beside=desk, name="other")
    assert "time to live" not in other.run("status").err
    town.wait(2 * 3600)
    town.change(disabled_apis=frozenset({"tpu.googleapis.com"}))
    assert "not now" in other.run("status").err
    assert town.nodes() == {G1: "READY"}
    town.change(disabled_apis=frozenset())
    assert "demo: its time to live of 2h is over" in other.run("status").err
    town.wait(120)
    assert town.nodes() == {}


def test_s15_the_sweep_waits_for_no_watch_that_stands_still(town):
    """Its computer is asleep in the middle of a call, past the time to live: what it holds is left to it."""
    desk = Desk(town, watch__ttl="2h")
    other = Desk(town, "second folder", beside=desk, name="other")
    desk.up()
    said = []

    def asleep():
        town.wait(2 * 3600)
        began = town.clock.monotonic()
        said.append(other.run("status"))
        assert town.clock.monotonic() - began < 60

    desk.watch(600, meanwhile={8: asleep})
    (status,) = said
    assert status.code == 0
    assert "left to its holder: tpuctl watch of somebody@home" in status.err


def test_s15_the_sweep_of_another_computer_ends_what_a_sleeping_watch_holds(town):
    """The lease has run out meanwhile: the machines go, and the watch that wakes up adds none."""
    desk, elsewhere = Desk(town, watch__ttl="2h"), Desk(town, "elsewhere", watch__ttl="2h")
    other = Desk(town, "second folder", beside=elsewhere, name="other")
    desk.up()
    elsewhere.up()
    said = []

    def asleep():
        town.wait(2 * 3600)
        said.append(other.run("status"))

    assert desk.watch(600, meanwhile={8: asleep}).code == 6
    assert "TPU demo-tpu-g1: deletion asked for" in said[0].err
    town.wait(120)
    assert (town.nodes(), len(town.asked("tpu.nodes.create"))) == ({}, 1)


def test_s16_a_controller_that_forgot_goes_on_from_the_newest_checkpoint(town, desk):
    """Killed, then started with a state folder of long ago: no job is lost, hung or set back."""
    desk.up()
    shutil.copytree(desk.state, town.folder / "old")
    town.later(300, lambda: town.cloud.preempt(G1))
    desk.watch(1200)
    assert desk.run("watch", kill=(7, "before")).code is None
    shutil.rmtree(desk.state)
    shutil.copytree(town.folder / "old", desk.state)
    before, saved = town.mutations(), max(town.crew.complete(town.buckets()[0]))
    desk.watch(600)
    assert town.mutations() == before
    assert town.nodes() == {G2: "READY"}
    town.later(10, lambda: town.cloud.preempt(G2, notice=False))
    desk.watch(600)
    (worker,) = town.crew.workers.values()
    assert worker.incarnation == 3
    assert worker.base >= saved[0] > 0


@pytest.mark.parametrize("hours", [-1, 1])
def test_s26_a_clock_that_jumps_changes_nothing(town, desk, hours):
    """Ages come from the bucket's clock and from seconds that pass, not from the time of day."""
    desk.up()
    before = town.mutations()
    town.later(200, lambda: setattr(desk, "skew", hours * 3600.0))
    assert desk.watch(900).code == 130
    assert desk.watch(300).code == 130
    assert town.mutations() == before


def test_s26_a_holder_paused_past_its_lease_does_no_harm_when_it_wakes(town, desk):
    """Meanwhile another computer took over and replaced the node; the first one writes nothing and says why."""
    desk.up()
    elsewhere = Desk(town, "elsewhere")

    def meanwhile():
        town.wait(70)
        town.cloud.preempt(G1, notice=False)
        assert elsewhere.watch(900).code == 130

    said = desk.watch(1800, meanwhile={8: meanwhile})
    assert said.code == 6
    assert town.nodes() == {G2: "READY"}
    assert town.judge.most_in_use["demo"] == 1


@pytest.mark.parametrize(
    "place", ["storage.buckets.insert", "storage.objects.insert .tpuctl/record", "tpu.nodes.create"]
)
def test_s28_two_ups_from_two_computers_make_one_of_everything(town, place):
    """One stands still at some call while the other runs from beginning to end."""
    here, there = Desk(town, vm=VM), Desk(town, "elsewhere", vm=VM)
    codes = []
    codes.append(here.run("up", meanwhile={place: lambda: codes.append(there.run("up").code)}).code)
    assert min(codes) == 0
    assert set(codes) <= {0, 6}
    here.up()
    assert town.nodes() == {G1: "READY"}
    assert town.vms() == {"demo-vm": "RUNNING"}
    assert len(town.buckets()) == 1
    assert sum(town.crew.starts.values()) == 1


def test_s28_the_second_watch_is_told_who_is_first(town, desk):
    """Status 6, who holds it since when; the first one goes on."""
    desk.up()
    elsewhere, told = Desk(town, "elsewhere"), []
    town.later(200, lambda: told.append(elsewhere.run("watch")))
    assert desk.watch(600).code == 130
    (said,) = told
    assert said.code == 6
    assert "somebody@home holds the lease since 20" in said.err


@pytest.mark.parametrize("moment", ["before", "after"])
def test_s30_a_killed_launcher_leaves_nothing_billing_past_the_time_to_live(town, moment):
    """Nobody comes back for ten hours. Google ends the VM; the TPU goes with the computer's next command."""
    desk = Desk(town, vm=VM, watch__ttl="2h")
    assert desk.run("up", kill=("tpu.nodes.create", moment)).code is None
    town.wait(10 * 3600)
    assert town.vms() == {}
    billed = sum(line.seconds for line in town.cloud.bill() if line.kind == "vm")
    assert 3600 < billed <= 2 * 3600 + 600
    assert list(town.nodes()) == ([G1] if moment == "after" else [])
    Desk(town, "second folder", beside=desk, name="other").run("status")
    town.wait(120)
    assert town.nodes() == {}
