"""What people and their computers do: kill, interrupt, close the lid, come twice, and forget."""

import shutil

import pytest

from orchestrator.errors import AuthError
from tests.kit.machines import CloudSsh
from tests.kit.user import User

G1, G2 = "demo-tpu-g1", "demo-tpu-g2"
LEASE = "storage.objects.insert .tpuctl/lease"
VM = {"machine_type": "e2-small"}


def test_s06_down_ends_whatever_is_gone(cloud, user):
    """Nothing was ever there, the node went by itself, all is down already: each time it ends well."""
    user.down()
    user.up()
    cloud.model.set_node_state(next(iter(cloud.nodes())), "vanish")
    user.down()
    user.down("--delete-data")
    assert (cloud.nodes(), cloud.buckets()) == ({}, [])


def test_numbers_go_on_after_down_and_start_again_only_after_the_data_was_deleted(cloud, user):
    """The README says so: a reused number could pass an old TPU's report for the new one's."""
    user.up()
    assert list(cloud.nodes()) == [G1]
    user.down()
    user.up()
    assert list(cloud.nodes()) == [G2]
    user.down("--delete-data")
    user.up()
    assert list(cloud.nodes()) == [G1]


def test_s06_down_does_not_wait_for_ever_on_a_stale_lock(cloud, user):
    """A killed `watch` of another computer left its lease: a minute later `down` has it."""
    user.up()
    assert user.run("watch", kill=(4, "after")).code is None
    began = cloud.clock.monotonic()
    User(cloud, "elsewhere").down()
    assert 30 < cloud.clock.monotonic() - began < 180
    assert cloud.nodes() == {}


def test_s07_down_that_cannot_delete_the_tpu_does_not_say_that_it_has(cloud):
    """The VM goes, the TPU's deletion is refused: status 5 and its name, until it can be deleted."""
    user = User(cloud, vm=VM)
    user.up()
    cloud.change(denied_permissions=frozenset({"tpu.nodes.delete"}))
    said = user.run("down", "--yes")
    assert (said.code, cloud.vms()) == (5, {})
    assert "left: TPU demo-tpu-g1 europe-west4-b (READY)" in said.err
    cloud.change(denied_permissions=frozenset())
    user.down()
    assert cloud.nodes() == {}


def test_down_names_what_it_does_not_delete_and_how_the_user_does(cloud, user):
    """The file named another zone, and there is no record: the TPU there carries the label, and is left alone."""
    user.up()
    there = {"type": "v5litepod-8", "zones": ["europe-west4-a"]}
    moved = User(cloud, "elsewhere", tpu=there, bucket={"name": "another-bucket"})
    said = moved.run("down", "--yes")
    assert said.code == 5
    assert "left: TPU demo-tpu-g1 europe-west4-b (READY, not touched)" in said.err
    delete = "gcloud compute tpus tpu-vm delete demo-tpu-g1 --zone europe-west4-b --project local-project"
    assert delete in " ".join(said.err.split())
    assert cloud.nodes() == {"demo-tpu-g1": "READY"}


@pytest.mark.parametrize(("place", "remaining"), [("tpu.nodes.delete", []), ("tpu.nodes.create", [G2])])
def test_s11_nothing_is_added_to_a_deployment_that_is_being_deleted(cloud, user, place, remaining):
    """
    A `watch` stands still in the middle of a replacement while `down` runs elsewhere; then it wakes up.

    What was on its way to the cloud arrives, and nothing more is asked for. The next `down` finds it.
    """
    user.up()
    cloud.model.preempt(G1, notice=False)
    elsewhere = User(cloud, "elsewhere")
    asked = len(cloud.asked("tpu.nodes.create"))
    said = user.watch(1200, meanwhile={place: elsewhere.down})
    assert said.code == 6
    assert list(cloud.nodes()) == remaining
    assert len(cloud.asked("tpu.nodes.create")) - asked == len(remaining)
    elsewhere.down()
    assert cloud.nodes() == {}


def test_s11_nothing_is_added_when_even_the_bucket_is_gone_meanwhile(cloud, user):
    """`down --delete-data` took the lease away with its bucket: whoever wakes up acts no more, and says why."""
    user.up()
    cloud.model.preempt(G1, notice=False)
    elsewhere = User(cloud, "elsewhere")
    said = user.run("watch", meanwhile={"tpu.nodes.delete": lambda: elsewhere.down("--delete-data")})
    assert said.code == 1
    assert "the bucket with checkpoints, code and logs is gone" in said.err
    assert len(cloud.asked("tpu.nodes.create")) == 1
    assert (cloud.nodes(), cloud.buckets()) == ({}, [])


@pytest.mark.parametrize("next_word", ["up", "down"])
def test_s12_ctrl_c_while_the_tpu_is_made_loses_nothing(cloud, user, next_word):
    """The next `up` waits for the same node, and `down` deletes it although it is not there yet."""
    said = user.run("up", interrupt=60)
    assert said.code == 130
    assert cloud.nodes() == {G1: "CREATING"}
    getattr(user, next_word)()
    assert len(cloud.asked("tpu.nodes.create")) == 1
    cloud.wait(1200)
    assert cloud.nodes() == ({G1: "READY"} if next_word == "up" else {})


def test_ctrl_c_before_a_machine_was_asked_for_says_so(user, monkeypatch):
    """New code for machines out of reach: nothing new is on its way, so nothing is said to be billed."""
    said = user.run("up", interrupt=60)
    assert (said.code, "is billed" in said.err) == (130, True)
    user.up()
    user.write("train.py", "print('other')\n")
    monkeypatch.setattr(CloudSsh, "broken", staticmethod(lambda _: "no route"))
    said = user.run("up", interrupt=60)
    assert (said.code, "no machine was requested" in said.err) == (130, True)


@pytest.mark.parametrize("lost", [True, "tpu."], ids=["all", "TPUs"])
def test_s13_a_controller_without_network_kills_no_healthy_job(cloud, user, lost):
    """Twenty minutes offline, or with the bucket alone: nothing is changed then or later, and the loop goes on."""
    user.up()
    before = cloud.mutations()
    cloud.later(300, lambda: setattr(user, "offline", lost))
    cloud.later(1500, lambda: setattr(user, "offline", False))
    said = user.watch(2400)
    assert said.code == 130
    assert "network" in said.err
    assert "job runs" in said.err.splitlines()[-3]
    assert cloud.mutations() == before
    assert sum(cloud.machines.starts.values()) == 1


def test_s14_a_closed_laptop_and_an_expired_token_harm_nothing(cloud, user):
    """Eight hours later the loop wakes up without credentials: it says so and ends; the job has gone on."""
    user.up()
    before = cloud.mutations()

    def close_the_lid():
        cloud.wait(8 * 3600)
        user.expired = True

    said = user.run("watch", meanwhile={6: close_the_lid}, timeout=9 * 3600)
    assert said.code == 3
    assert "next:" in said.err
    assert cloud.mutations() == before
    user.expired = False
    said = user.watch(300)
    assert (said.code, "job runs" in said.err) == (130, True)
    assert cloud.mutations() == before
    assert max(cloud.machines.complete(cloud.buckets()[0]))[0] > 8 * 300


def test_s15_a_loop_that_stopped_silently_is_reported_and_its_machines_are_swept(cloud):
    """`status` says that nobody watches; past the time to live any command of the computer cleans up."""
    user = User(cloud, watch__ttl="2h")
    user.up()
    assert user.run("watch", kill=(4, "after")).code is None
    cloud.wait(600)
    assert "watcher      not running" in user.run("status").out
    other = User(cloud, "second folder", beside=user, name="other")
    assert "time to live" not in other.run("status").err
    cloud.wait(2 * 3600)
    cloud.change(disabled_apis=frozenset({"tpu.googleapis.com"}))
    assert "not now" in other.run("status").err
    assert cloud.nodes() == {G1: "READY"}
    cloud.change(disabled_apis=frozenset())
    assert "demo: its time to live of 2h is over" in other.run("status").err
    cloud.wait(120)
    assert cloud.nodes() == {}


def test_s15_a_deployment_that_has_expired_waits_for_no_watch_that_stands_still(cloud):
    """Its computer is asleep in the middle of a call, past the time to live: what it holds is left to it."""
    user = User(cloud, watch__ttl="2h")
    other = User(cloud, "second folder", beside=user, name="other")
    user.up()
    said = []

    def asleep():
        cloud.wait(2 * 3600)
        began = cloud.clock.monotonic()
        said.append(other.run("status"))
        assert cloud.clock.monotonic() - began < 60

    user.watch(600, meanwhile={8: asleep})
    (status,) = said
    assert status.code == 0
    assert "left to its holder: `tpuctl watch` of somebody@home" in status.err


def test_s15_another_computer_ends_what_a_sleeping_watch_holds(cloud):
    """The lease has run out meanwhile: the machines go, and the watch that wakes up adds none."""
    user, elsewhere = User(cloud, watch__ttl="2h"), User(cloud, "elsewhere", watch__ttl="2h")
    other = User(cloud, "second folder", beside=elsewhere, name="other")
    user.up()
    elsewhere.up()
    said = []

    def asleep():
        cloud.wait(2 * 3600)
        said.append(other.run("status"))

    assert user.watch(600, meanwhile={8: asleep}).code == 6
    assert "Deleting TPU demo-tpu-g1" in said[0].err
    cloud.wait(120)
    assert (cloud.nodes(), len(cloud.asked("tpu.nodes.create"))) == ({}, 1)


def test_s16_a_controller_that_forgot_goes_on_from_the_newest_checkpoint(cloud, user):
    """Killed, then started with a state folder of long ago: no job is lost, hung or set back."""
    user.up()
    shutil.copytree(user.state, cloud.folder / "old")
    cloud.later(300, lambda: cloud.model.preempt(G1))
    user.watch(1200)
    assert user.run("watch", kill=(7, "before")).code is None
    shutil.rmtree(user.state)
    shutil.copytree(cloud.folder / "old", user.state)
    before, saved = cloud.mutations(), max(cloud.machines.complete(cloud.buckets()[0]))
    user.watch(600)
    assert cloud.mutations() == before
    assert cloud.nodes() == {G2: "READY"}
    cloud.later(10, lambda: cloud.model.preempt(G2, notice=False))
    user.watch(600)
    (worker,) = cloud.machines.workers.values()
    assert worker.incarnation == 3
    assert worker.base >= saved[0] > 0


@pytest.mark.parametrize("hours", [-1, 1])
def test_s26_a_clock_that_jumps_changes_nothing(cloud, user, hours):
    """Ages come from the bucket's clock and from seconds that pass, not from the time of day."""
    user.up()
    before = cloud.mutations()
    cloud.later(200, lambda: setattr(user, "skew", hours * 3600.0))
    assert user.watch(900).code == 130
    assert user.watch(300).code == 130
    assert cloud.mutations() == before


def test_s26_a_holder_paused_past_its_lease_does_no_harm_when_it_wakes(cloud, user):
    """Meanwhile another computer took over and replaced the node; the first one writes nothing and says why."""
    user.up()
    elsewhere = User(cloud, "elsewhere")

    def meanwhile():
        cloud.wait(70)
        cloud.model.preempt(G1, notice=False)
        assert elsewhere.watch(900).code == 130

    said = user.watch(1800, meanwhile={8: meanwhile})
    assert said.code == 6
    assert cloud.nodes() == {G2: "READY"}
    assert cloud.checks.most_in_use["demo"] == 1


@pytest.mark.parametrize(
    "place", ["storage.buckets.insert", "storage.objects.insert .tpuctl/record", "tpu.nodes.create"]
)
def test_s28_two_ups_from_two_computers_make_one_of_everything(cloud, place):
    """One stands still at some call while the other runs from beginning to end."""
    here, there = User(cloud, vm=VM), User(cloud, "elsewhere", vm=VM)
    codes = []
    codes.append(here.run("up", meanwhile={place: lambda: codes.append(there.run("up").code)}).code)
    assert min(codes) == 0
    assert set(codes) <= {0, 6}
    here.up()
    assert cloud.nodes() == {G1: "READY"}
    assert cloud.vms() == {"demo-vm": "RUNNING"}
    assert len(cloud.buckets()) == 1
    assert sum(cloud.machines.starts.values()) == 1


def test_s28_the_second_watch_names_who_holds_the_lease(cloud, user):
    """Status 6, who holds it since when; the first one goes on."""
    user.up()
    elsewhere, reported = User(cloud, "elsewhere"), []
    cloud.later(200, lambda: reported.append(elsewhere.run("watch")))
    assert user.watch(600).code == 130
    (said,) = reported
    assert said.code == 6
    assert "somebody@home holds the lease since 20" in said.err


@pytest.mark.parametrize("moment", ["before", "after"])
def test_s30_a_killed_launcher_leaves_nothing_billing_past_the_time_to_live(cloud, moment):
    """Nobody comes back for ten hours. Google ends the VM; the TPU goes with the computer's next command."""
    user = User(cloud, vm=VM, watch__ttl="2h")
    assert user.run("up", kill=("tpu.nodes.create", moment)).code is None
    cloud.wait(10 * 3600)
    assert cloud.vms() == {}
    billed = sum(line.seconds for line in cloud.model.bill() if line.kind == "vm")
    assert 3600 < billed <= 2 * 3600 + 600
    assert list(cloud.nodes()) == ([G1] if moment == "after" else [])
    User(cloud, "second folder", beside=user, name="other").run("status")
    cloud.wait(120)
    assert cloud.nodes() == {}


def test_a_command_in_another_terminal_names_the_local_cloud(cloud, user, monkeypatch):
    """There TPUCTL_CLOUD is not set: tpuctl has no login for Google, or knows no such deployment there."""
    folder = user.state / "local" / "local-project" / "demo"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    said = user.type("status", "demo")
    assert (said.code, "demo is up on the local cloud: add --cloud local" in said.err) == (2, True)

    def refused(*_, **__):
        raise AuthError("log in to Google Cloud", code="TPU-201")

    monkeypatch.setattr("orchestrator.app.deployment.session.Session.project", property(refused))
    for word in ("status", "up", "cost"):
        said = user.run(word)
        assert (said.code, "demo is up on the local cloud" in said.err) == (3, True)
    user.edit(name="other")
    assert "local cloud" not in user.run("status").err


def test_a_watch_that_is_killed_while_another_command_runs_ends_alone(cloud, user):
    """It dies at the renewal of its lease, in the middle of an `up` of another deployment, which succeeds."""
    user.up()
    other, running, ends = User(cloud, "elsewhere", name="other"), [], []

    def bring_up():
        running.append(other)
        ends.append(other.up())
        running.clear()

    cloud.later(100, bring_up)
    killed = user.watch(3600, kill=lambda what, _: bool(running) and what.endswith(".tpuctl/lease"))
    assert killed.code is None
    assert [said.code for said in ends] == [0]
    user.watch(600)
    assert set(cloud.nodes()) == {"demo-tpu-g1", "other-tpu-g1"}


def test_the_log_says_that_a_watch_was_killed_and_another_one_took_its_place(cloud, user):
    """It is what one looks for after an accident; a watch that its user ended has said so itself."""
    user.up()
    user.watch(300)
    assert "killed or cut off" not in user.run("logs", "--events").out
    late = cloud.clock.monotonic() + 200
    killed = user.watch(3600, kill=lambda *_: cloud.clock.monotonic() > late)
    assert killed.code is None
    user.watch(300)
    said = [line for line in user.run("logs", "--events").out.splitlines() if "killed or cut off" in line]
    assert len(said) == 1
    assert "`tpuctl watch` of" in said[0]


def test_explain_names_the_moment_at_which_the_watcher_looks_again(cloud, user):
    """Between two of its looks; who only looks at the cloud would name the whole interval."""
    user.up()
    looks = []

    def explain():
        now = cloud.clock.now()
        items = user.run("explain", "--json").document["items"]
        looks.append(next(item["when"] for item in items if item["what"] == "watcher") - now)

    for second in (301, 307):
        cloud.later(second, explain)
    user.watch(600)
    assert looks[0] - looks[1] == pytest.approx(6, abs=1)
