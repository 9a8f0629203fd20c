"""What the watcher publishes, who believes it, new code for a running job: commands on a virtual clock."""

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.status.text import checkpoint_text, saved_text
from orchestrator.app.this_computer.state_folders import RECORD_KEY
from orchestrator.contract.bucket.object_names import CURVE, LEASE, LEASE_WISH, STATUS
from orchestrator.contract.phase import Phase
from orchestrator.domain.checksum import bytes_with_checksum, verified, with_checksum
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.lease import LOOP, Holder
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.engine.publish.published_status import published_here
from orchestrator.engine.publish.publisher import CURVE_HERE, Publisher, read_curve
from tests.cli.test_status_view import body, worker
from tests.kit.user import CommandProcess, User


@pytest.fixture
def user(cloud):
    """Give a computer whose deployment is up."""
    one = User(cloud, job__target_steps=400)
    one.up()
    return one


def while_watching(cloud, user, act, seconds=600):
    """Run commands during a `watch`; return what they printed."""
    reported = []
    cloud.later(seconds / 2, lambda: reported.append(act()))
    assert user.watch(seconds).code == 130
    return reported[0]


def test_other_commands_show_what_the_watcher_has_observed(cloud, user):
    """On its computer and where its key is, with the age; others, and everybody afterwards, ask the cloud."""
    elsewhere, foreign = User(cloud, "elsewhere"), User(cloud, "stranger")
    (foreign.state / "gcp" / RECORD_KEY).unlink()
    looks = ((user, ()), (elsewhere, ()), (user, ("--fresh",)), (foreign, ()))
    here, there, fresh, asked = while_watching(
        cloud,
        user,
        lambda: [d.run("status", *w).out for d, w in looks],
    )
    for shown in (here, there):
        assert "ago, by the watcher (--fresh asks the cloud)" in shown
        assert "watcher      `tpuctl watch` of somebody@home" in shown
        assert "checks again" in shown
    assert "as of" not in fresh
    assert "by the watcher" not in asked
    assert "watcher      `tpuctl watch` of somebody@home" in asked
    for one in (user, elsewhere):
        later = one.run("status").out
        assert "watcher      not running" in later
        assert "as of" not in later


def test_a_look_at_what_is_published_asks_nothing_of_compute_engine_or_tpu(cloud, user, monkeypatch):
    """So it is quick, and works where only the bucket may be read."""

    def read():
        cloud.distort = lambda method, response: pytest.fail(method) if "list" in method else response
        said = user.run("status", "--json")
        cloud.distort = lambda method, response: response
        return said

    body = while_watching(cloud, user, read).document
    assert body["source"]["by"] == "the watcher"
    assert 0 <= body["source"]["age_s"] < 75
    assert body["workers"][0]["heartbeat_age_s"] >= body["source"]["age_s"]


@pytest.mark.parametrize("how", ["killed", "torn", "a stranger's"])
def test_a_status_that_no_live_watcher_vouches_for_is_not_shown(how, cloud, user):
    """A dead watcher's, a damaged one, one that another process wrote."""
    bucket = cloud.buckets()[0]
    if how == "killed":
        said = user.run("watch", kill=("storage.objects.insert .tpuctl/status", "after"))
        assert said.code is None, cloud.log[-20:]
        assert "seen:" not in user.run("status").out
        return

    def spoil():
        (place,) = user.state.glob("*/*/*/status.json")
        place.unlink()
        elsewhere = User(cloud, "elsewhere")
        found = cloud.storage.objects._objects[bucket][STATUS]
        body = json.loads(cloud.storage.objects.read(found))
        torn = {**body, "at": 0}
        changed = (
            torn if how == "torn" else with_checksum({**verified(json.dumps(body).encode()), "holder": "x"})
        )
        cloud.storage.objects.insert(bucket, STATUS, json.dumps(changed).encode(), {}, Preconditions())
        return elsewhere.run("status")

    said = while_watching(cloud, user, spoil)
    assert said.code == 0, said.err
    assert "seen:" not in said.out


def test_the_last_sign_of_life_is_the_same_whether_the_cloud_is_asked_or_not(cloud, user):
    """A watch publishes its passes more often than it renews its lease."""
    ages: list[tuple[float, float]] = []

    def look():
        found = (user.run("status", *words, "--json").document for words in ((), ("--fresh",)))
        ages.append(tuple(one["watcher"]["renewed_age_s"] for one in found))

    for seconds in range(300, 380, 7):
        cloud.later(seconds, look)
    assert user.watch(600).code == 130
    assert len(ages) == 12
    assert [fresh <= published + 1 for published, fresh in ages] == [True] * 12, ages


@pytest.mark.parametrize(("age", "counts"), [(0, True), (74, True), (76, False), (-6, False)])
def test_a_snapshot_counts_for_a_minute(age, counts, tmp_path):
    """An old one does not, nor one from the future: then clocks differ, and its age means nothing."""
    holder = Holder("x", "me@here", "watch", 0.0)
    (tmp_path / "holder").write_bytes(holder.to_json())
    Publisher(None, tmp_path, "x").publish(body(), "news", 1000.0, usable=False)
    found = published_here(tmp_path, 1000.0 + age, lambda _: False)
    assert (found is not None) == counts
    assert published_here(tmp_path, 1000.0, lambda _: True) is None


def test_the_curve_of_the_loss_is_stored_across_watches(cloud, user):
    """A point for each step that a pass has observed, by one watcher and the next."""
    cloud.machines.say("demo", loss=2.5)
    user.watch(600)
    bucket = cloud.buckets()[0]

    def points():
        return verified(cloud.storage.objects.read(cloud.storage.objects._objects[bucket][CURVE]))["points"]

    first = points()
    assert [p[2] for p in first] == [2.5] * len(first)
    assert [p[1] for p in first] == sorted({p[1] for p in first})
    user.watch(600)
    assert points()[: len(first)] == first
    assert len(points()) > len(first)


def test_a_killed_watcher_loses_no_point_of_the_curve(cloud, user):
    """The bucket has the curve within a minute; until then this computer has it, for the next watch."""
    user.edit(job__target_steps=400, watch__poll="10s")
    cloud.machines.say("demo", loss=2.5)
    end = cloud.clock.monotonic() + 400
    assert user.run("watch", kill=lambda *_: cloud.clock.monotonic() > end).code is None
    (bucket,) = cloud.buckets()
    copy = cloud.storage.objects._objects[bucket][CURVE]
    stored = verified(cloud.storage.objects.read(copy))["points"]
    (place,) = user.state.glob("*/*/demo")
    here = verified((place / CURVE_HERE).read_bytes())["points"]
    assert len(here) > len(stored)
    user.watch(600)
    copy = cloud.storage.objects._objects[bucket][CURVE]
    assert verified(cloud.storage.objects.read(copy))["points"][: len(here)] == here


@pytest.mark.parametrize(("started_at", "counts"), [(900.0, True), (1100.0, False)])
def test_the_curve_of_a_deleted_deployment_is_not_that_of_a_later_one(started_at, counts, tmp_path):
    """Another computer may have deleted the data: nothing of it is in the bucket, and the copy is older."""
    Publisher(None, tmp_path, "x").draw(
        Heartbeat(1, 0, Phase.RUN, step=20, loss=2.5, updated=1000.0), usable=False
    )
    empty = SimpleNamespace(read=lambda _: None)
    assert bool(read_curve(empty, tmp_path, started_at)) == counts
    other = bytes_with_checksum({"schema": 1, "points": [(950.0, 5, 2.0, 1)]})
    later = SimpleNamespace(read=lambda _: SimpleNamespace(data=other))
    assert read_curve(later, tmp_path, started_at) == [(950.0, 5, 2.0, 1)]


def test_the_curve_has_a_loss_at_its_own_step(tmp_path):
    """The watcher sees the step of a save, after a loss that was printed for an earlier one."""
    made = Publisher(None, tmp_path, "x")
    for step in (195, 200):
        made.draw(
            Heartbeat(1, 0, Phase.RUN, step=step, loss=0.02, loss_step=180, updated=1000.0), usable=False
        )
    assert made.curve == [(1000.0, 180, 0.02, 1), (1000.0, 195, None, 1), (1000.0, 200, None, 1)]


def test_without_a_file_all_deployments_of_the_computer_are_shown(cloud, user, tmp_path, monkeypatch):
    """`status` and `top` anywhere, one row for each, also of one that cannot be read."""
    other = User(cloud, "second folder", beside=user, name="other")
    other.up()
    (tmp_path / "nowhere").mkdir()
    monkeypatch.chdir(tmp_path / "nowhere")
    found = user.type("status", "--json").document
    assert [(d["name"], d["tpu"]) for d in found["deployments"]] == [("demo", "READY"), ("other", "READY")]
    (retained,) = user.state.glob("*/*/other/spec.json")
    retained.write_text("{}")
    said = user.type("status", "--all")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    assert "cannot be read" in " ".join(said.out.split())
    assert user.type("status", "demo").out.startswith("demo  TPU #1, 0 preemptions")


def test_a_push_restarts_the_job_with_the_new_code_and_makes_no_machine(cloud, user):
    """Unchanged code is no change; new code reaches the machines that run, from the newest checkpoint."""
    cloud.wait(300)
    assert user.run("push", "--json").document["result"] == "unchanged"
    before = cloud.mutations()
    user.write("train.py", "print('another')\n")
    planned = user.run("push", "--dry-run", "--json").document
    assert planned["result"] == "planned"
    assert "job: starts again from its newest checkpoint (step 24 or later)" in planned["plan"][-1]
    said = user.run("push", "--json")
    assert (said.code, said.document["result"]) == (0, "running"), said.err
    assert list(cloud.machines.starts.values()) == [2]
    changed = {method for method, _ in cloud.mutations()[len(before) :]}
    assert not [method for method in changed if not method.startswith("storage.") and "get" not in method]
    assert list(cloud.nodes().values()) == ["READY"]
    assert user.run("push", "--json").document["result"] == "unchanged"


def test_a_push_says_at_once_what_it_waits_for(cloud, user):
    """For the job that stops; before it for the watcher, which looks for a push once in a pass."""
    cloud.wait(300)
    user.write("train.py", "print('another')\n")
    said = user.run("push").err
    begins = "waiting: the job is asked to stop, may save, and starts with the new code"
    assert said.index("~ job: starts again") < said.index(begins) < said.index("has new code")
    assert "lets the push go first" not in said
    assert "goes on within" not in said
    user.write("train.py", "print('a third')\n")
    watcher = Holder("x", "me@elsewhere", "watch", cloud.clock.now())
    cloud.storage.objects.insert(cloud.buckets()[0], LEASE, watcher.to_json(), {}, Preconditions())
    said = user.run("push").err
    assert "waiting: `tpuctl watch` lets the push go first (it looks every 1m)" in said
    assert begins not in said
    bucket, yields = cloud.buckets()[0], replace(watcher, yields=("push",))
    cloud.storage.objects.insert(bucket, LEASE, yields.to_json(), {}, Preconditions())
    cloud.later(5, lambda: cloud.storage.objects.delete(bucket, LEASE, None, Preconditions()))
    assert "`tpuctl watch` goes on within a few seconds" in user.run("push").err
    user.write("train.py", "print('a fourth')\n")
    loop = replace(yields, command=LOOP, since=cloud.clock.now())
    cloud.storage.objects.insert(bucket, LEASE, loop.to_json(), {}, Preconditions())
    cloud.later(5, lambda: cloud.storage.objects.delete(bucket, LEASE, None, Preconditions()))
    said = user.run("push").err
    assert "waiting: the loop on the VM lets the push go first" in said
    assert "the loop on the VM goes on within a minute" in said
    cloud.model.preempt("demo-tpu-g1", notice=False)
    cloud.wait(120)
    assert begins not in user.run("push").err


@pytest.mark.parametrize("place", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_push_may_be_killed_anywhere(place, moment, cloud, user):
    """The next one, or a watch, brings the code; no machine is ever made for it."""
    user.write("train.py", "print('another')\n")
    user.run("push", kill=(place, moment))
    cloud.wait(120)
    said = user.run("push", "--json")
    assert said.code == 0, said.err
    assert "new settings" not in said.err, "the record of the killed one names this code already"
    (worker,) = cloud.machines.workers.values()
    assert worker.env["TPUCTL_BUNDLE"] == said.document["bundle"]
    assert len(cloud.nodes()) == 1


def test_a_push_without_a_tpu_leaves_the_code_for_the_next_one(cloud, user):
    """It creates none; `watch` does, and that one has the new code."""
    cloud.model.preempt("demo-tpu-g1")
    cloud.wait(120)
    user.write("train.py", "print('another')\n")
    said = user.run("push", "--json")
    assert (said.code, said.document["result"]) == (0, "recorded"), said.err
    assert set(cloud.nodes()) <= {"demo-tpu-g1"}
    user.watch(1800)
    assert cloud.in_use() == ["demo-tpu-g2"]
    (worker,) = cloud.machines.workers.values()
    assert worker.env["TPUCTL_BUNDLE"] == said.document["bundle"]


def test_without_a_watcher_the_loss_and_the_checkpoint_are_shown(cloud, user):
    """The preemption counts when it is seen; with the TPU gone the newest checkpoint is still in the bucket."""
    user.watch(300)
    assert user.run("status", "--json").document["checkpoint_step"]
    cloud.model.preempt("demo-tpu-g1")
    cloud.wait(120)
    lost = user.type("status", "demo", "--fresh").out
    assert lost.startswith("demo  TPU #1, 1 preemption\n"), lost
    cloud.change(stockouts=frozenset({"europe-west4-b", "europe-west4-a", "europe-west4-c"}))
    user.watch(60)
    found = user.run("status", "--fresh", "--json").document
    assert found["preemptions"] == 1
    assert found["resumes_from"], (found["state"], found["workers"], found["resources"])
    text = user.type("status", "demo", "--fresh").out
    assert "in the bucket: the job resumes from it" in " ".join(text.split()), text
    assert f"step {found['resumes_from']} is in the bucket" in user.type("explain", "demo").out


def test_a_push_needs_a_job_that_runs(cloud):
    """Before `up`, and after the end."""
    one = User(cloud)
    assert one.run("push", "--json").document["code"] == "TPU-130"
    assert cloud.mutations() == []


def test_logs_are_followed_across_machines_and_a_network_that_fails(cloud, user):
    """One line for each trouble; the lines of the next TPU come after those of the first, until the end."""
    bucket = cloud.buckets()[0]

    def write(incarnation, text):
        name = f"logs/g{incarnation}/w0/000001.log"
        cloud.storage.objects.insert(bucket, name, text, {}, Preconditions())

    def end():
        write(2, b"--- incarnation 2 ---\nstep 2\n")
        cloud.acting[-1].interrupt_at = cloud.clock.monotonic() + 60

    write(1, b"--- incarnation 1 ---\nstep 1\nhalf a li")
    cloud.later(100, lambda: setattr(user, "offline", True))
    cloud.later(300, lambda: setattr(user, "offline", False))
    cloud.later(400, end)
    said = user.run("logs", "-f")
    assert said.code == 130
    assert said.out.splitlines() == [
        "--- incarnation 1 ---", "step 1",
        "--- TPU #1 was lost here; the last lines that it wrote may be lost with it ---",
        "--- incarnation 2 ---", "step 2",
    ]  # fmt: skip
    assert said.err.count("trying again") == 1
    assert user.run("logs").out.splitlines()[-1] == "half a li", "what no line end has closed comes last"


def test_a_wish_is_forgotten_with_the_lease_in_hand(cloud, user):
    """A watch that has stepped aside for a push, and comes back, is not asked for the same push again."""
    cloud.acting.append(CommandProcess(user, ("push",)))
    session = Session(Choice(user.folder / "tpuctl.yaml", (), "gcp"), Reporter())
    with patch.dict("os.environ", user._environment()):
        lease = session.lease
        lease.wish()
        assert LEASE_WISH in cloud.objects(LEASE_WISH)
        lease.acquire()
        assert cloud.objects(LEASE_WISH) == []
        lease.release()
    cloud.acting.pop()


def test_a_record_of_a_computer_without_the_key_is_asked_about_once(cloud, user):
    """Nobody at a terminal: an error with the way out; with the flag it is taken, and known from then on."""
    other = User(cloud, "other")
    (other.state / "gcp" / RECORD_KEY).write_bytes(b"o" * 32)
    assert other.run("up").code == 0
    refused = user.run("up")
    assert (refused.code, "TPU-139" in refused.err) == (2, True)
    assert "record.key" in refused.err
    assert user.run("up", "--account-override").code == 0
    assert user.run("up").code == 0
    assert user.run("status").code == 0
    forged = other.run("up", "--account-override")
    assert forged.code == 0
    assert user.run("down", "--yes").code == 0
    assert not cloud.nodes()


def test_the_checkpoint_of_a_gang_is_the_one_that_all_workers_have():
    """What each has committed last may be another step for each of them; its age is nobody's then."""
    workers = [worker(0, checkpoint_step=60), worker(1, checkpoint_step=50)]
    assert saved_text(body(workers=workers)) == "step 50", "as an earlier release published it"
    assert checkpoint_text(body(workers=workers, checkpoint_step=20)) == "step 20"
    assert checkpoint_text(body(workers=workers, checkpoint_step=None)) == ""


def test_logs_end_with_what_down_has_cut_off(cloud, user):
    """While the TPU is there its log goes on; nothing is said of one that has printed nothing yet."""
    empty = user.run("logs")
    assert (empty.out, empty.err) == ("", "no log yet; see `tpuctl status`\n")
    line = b"--- TPU #1, worker 0, attempt 1: start from the beginning ---\nstep 1\n"
    cloud.storage.objects.insert(cloud.buckets()[0], "logs/g1/w0/000001.log", line, {}, Preconditions())
    assert user.run("logs").out.splitlines()[-1] == "step 1"
    cloud.wait(60)
    old = user.run("logs", "--since", "20s")
    assert (old.out, old.err) == ("", "nothing was added to the log in that time; all of it: `tpuctl logs`\n")
    user.down()
    end = "--- TPU #1 was deleted here; the last lines that it wrote may be lost with it ---"
    assert user.run("logs").out.splitlines()[-2:] == ["step 1", end]
