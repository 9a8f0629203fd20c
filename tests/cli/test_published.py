"""What the watcher publishes, who believes it, new code for a running job: commands on a virtual clock."""

import json
from unittest.mock import patch

import pytest

from orchestrator.app.choice import Choice
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.app.state_folders import RECORD_KEY
from orchestrator.contract.object_names import CURVE, LEASE, LEASE_WISH, STATUS
from orchestrator.domain.checksum import sealed, unsealed
from orchestrator.domain.lease import Holder
from orchestrator.emulator.state.storage.values import Preconditions
from orchestrator.engine.published_copy import published_here
from orchestrator.engine.published_status import Publisher
from tests.scenarios.desk import Desk, Process
from tests.scenarios.town import Town


@pytest.fixture
def town(tmp_path):
    """Give a cloud on a virtual clock, and computers at which commands are typed."""
    with Town(tmp_path).open() as made:
        yield made


@pytest.fixture
def desk(town):
    """Give a computer whose deployment is up."""
    one = Desk(town, job__target_steps=400)
    one.up()
    return one


def while_watching(town, desk, act, seconds=600):
    """Let somebody type commands during a `watch`; return what they were told."""
    told = []
    town.later(seconds / 2, lambda: told.append(act()))
    assert desk.watch(seconds).code == 130
    return told[0]


def test_others_are_shown_what_the_watcher_has_seen(town, desk):
    """On its computer and where its key is, with the age; others, and everybody afterwards, ask the cloud."""
    elsewhere, stranger = Desk(town, "elsewhere"), Desk(town, "stranger")
    (stranger.state / "gcp" / RECORD_KEY).unlink()
    looks = ((desk, ()), (elsewhere, ()), (desk, ("--fresh",)), (stranger, ()))
    here, there, fresh, asked = while_watching(
        town,
        desk,
        lambda: [d.run("status", *w).out for d, w in looks],
    )
    for shown in (here, there):
        assert "s ago by the watcher (--fresh asks the cloud)" in shown
        assert "loop: tpuctl watch of somebody@home" in shown
        assert "looks again" in shown
    assert "seen:" not in fresh
    assert "by the watcher" not in asked
    assert "loop: tpuctl watch of somebody@home" in asked
    for one in (desk, elsewhere):
        later = one.run("status").out
        assert "loop: none runs" in later
        assert "seen:" not in later


def test_a_look_at_what_is_published_asks_nothing_of_compute_engine_or_tpu(town, desk, monkeypatch):
    """So it is quick, and works where only the bucket may be read."""

    def look():
        town.distort = lambda method, response: pytest.fail(method) if "list" in method else response
        said = desk.run("status", "--json")
        town.distort = lambda method, response: response
        return said

    body = while_watching(town, desk, look).document
    assert body["seen"]["by"] == "the watcher"
    assert 0 <= body["seen"]["age_s"] < 75
    assert body["workers"][0]["heartbeat_age_s"] >= body["seen"]["age_s"]


@pytest.mark.parametrize("how", ["killed", "torn", "a stranger's"])
def test_what_nobody_vouches_for_is_not_shown(how, town, desk):
    """A dead watcher's, a damaged one, one that another process wrote."""
    bucket = town.buckets()[0]
    if how == "killed":
        said = desk.run("watch", kill=("storage.objects.insert .tpuctl/status", "after"))
        assert said.code is None, town.log[-20:]
        assert "seen:" not in desk.run("status").out
        return

    def spoil():
        (place,) = desk.state.glob("*/*/*/status.json")
        place.unlink()
        elsewhere = Desk(town, "elsewhere")
        found = town.storage.objects._objects[bucket][STATUS]
        body = json.loads(town.storage.objects.read(found))
        torn = {**body, "at": 0}
        changed = torn if how == "torn" else sealed({**unsealed(json.dumps(body).encode()), "holder": "x"})
        town.storage.objects.insert(bucket, STATUS, json.dumps(changed).encode(), {}, Preconditions())
        return elsewhere.run("status")

    said = while_watching(town, desk, spoil)
    assert said.code == 0, said.err
    assert "seen:" not in said.out


@pytest.mark.parametrize(("age", "counts"), [(0, True), (74, True), (76, False), (-6, False)])
def test_a_snapshot_counts_for_a_minute(age, counts, tmp_path):
    """An old one does not, nor one from the future: then clocks differ, and its age means nothing."""
    holder = Holder("x", "me@here", "watch", 0.0)
    (tmp_path / "holder").write_bytes(holder.to_json())
    Publisher(None, tmp_path, "x").publish({"name": "demo"}, "news", 1000.0, usable=False)
    found = published_here(tmp_path, 1000.0 + age, lambda _: False)
    assert (found is not None) == counts
    assert published_here(tmp_path, 1000.0, lambda _: True) is None


def test_the_curve_of_the_loss_is_kept_across_watches(town, desk):
    """A point for each step that a look has seen, by one watcher and the next."""
    town.crew.say("demo", loss=2.5)
    desk.watch(600)
    bucket = town.buckets()[0]

    def points():
        return unsealed(town.storage.objects.read(town.storage.objects._objects[bucket][CURVE]))["points"]

    first = points()
    assert [p[2] for p in first] == [2.5] * len(first)
    assert [p[1] for p in first] == sorted({p[1] for p in first})
    desk.watch(600)
    assert points()[: len(first)] == first
    assert len(points()) > len(first)


def test_without_a_file_all_deployments_of_the_computer_are_shown(town, desk, tmp_path, monkeypatch):
    """`status` and `top` anywhere, one row for each, also of one that cannot be read."""
    other = Desk(town, "second folder", beside=desk, name="other")
    other.up()
    (tmp_path / "nowhere").mkdir()
    monkeypatch.chdir(tmp_path / "nowhere")
    found = desk.type("status", "--json").document
    assert [(d["name"], d["tpu"]) for d in found["deployments"]] == [("demo", "READY"), ("other", "READY")]
    (kept,) = desk.state.glob("*/*/other/spec.json")
    kept.write_text("{}")
    said = desk.type("top", "--once")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    assert "cannot be read" in " ".join(said.out.split())
    assert desk.type("status", "demo").out.startswith("demo  incarnation 1, 0 preemptions")


def test_a_push_restarts_the_job_with_the_new_code_and_makes_no_machine(town, desk):
    """Unchanged code is no change; new code reaches the machines that run, from the newest checkpoint."""
    town.wait(300)
    assert desk.run("push", "--json").document["outcome"] == "unchanged"
    before = town.mutations()
    desk.write("train.py", "print('another')\n")
    planned = desk.run("push", "--dry-run", "--json").document
    assert planned["outcome"] == "planned"
    assert "job: starts again from its newest checkpoint (step 24 or later)" in planned["plan"][-1]
    said = desk.run("push", "--json")
    assert (said.code, said.document["outcome"]) == (0, "running"), said.err
    assert list(town.crew.starts.values()) == [2]
    changed = {method for method, _ in town.mutations()[len(before) :]}
    assert not [method for method in changed if not method.startswith("storage.") and "get" not in method]
    assert list(town.nodes().values()) == ["READY"]
    assert desk.run("push", "--json").document["outcome"] == "unchanged"


def test_a_watch_lets_a_push_go_first_and_goes_on(town, desk):
    """One on another computer asks for the lease; when it is done the watch takes it again."""
    asker = Holder("x", "me@elsewhere", "push", 0.0)
    bucket = town.buckets()[0]
    town.later(
        300, lambda: town.storage.objects.insert(bucket, LEASE_WISH, asker.to_json(), {}, Preconditions())
    )
    said = desk.watch(900)
    assert said.code == 130
    assert "tpuctl push goes first; this watch goes on after it" in said.err
    after = said.err.partition("goes on after it")[2]
    assert "job runs" in after


def test_a_watch_that_let_a_push_go_first_waits_for_a_network_that_goes_away(town, desk):
    """It is on its own: nobody is there to start it again when ten minutes later the bucket answers."""
    asker = Holder("x", "me@elsewhere", "push", 0.0)
    bucket = town.buckets()[0]

    def cut():
        if LEASE in town.objects(LEASE):
            town.later(1, cut)
        else:
            desk.offline = True
            town.later(600, lambda: setattr(desk, "offline", False))

    town.later(
        300, lambda: town.storage.objects.insert(bucket, LEASE_WISH, asker.to_json(), {}, Preconditions())
    )
    town.later(301, cut)
    said = desk.watch(1800)
    assert said.code == 130, said.err
    assert desk.offline is False
    assert "job runs" in said.err.partition("goes on after it")[2]


@pytest.mark.parametrize("place", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_push_may_be_killed_anywhere(place, moment, town, desk):
    """The next one, or a watch, brings the code; no machine is ever made for it."""
    desk.write("train.py", "print('another')\n")
    desk.run("push", kill=(place, moment))
    town.wait(120)
    said = desk.run("push", "--json")
    assert said.code == 0, said.err
    (worker,) = town.crew.workers.values()
    assert worker.env["TPUCTL_BUNDLE"] == said.document["bundle"]
    assert len(town.nodes()) == 1


def test_a_push_without_a_tpu_leaves_the_code_for_the_next_one(town, desk):
    """It creates none; `watch` does, and that one has the new code."""
    town.cloud.preempt("demo-tpu-g1")
    town.wait(120)
    desk.write("train.py", "print('another')\n")
    said = desk.run("push", "--json")
    assert (said.code, said.document["outcome"]) == (0, "recorded"), said.err
    assert set(town.nodes()) <= {"demo-tpu-g1"}
    desk.watch(1800)
    assert town.in_use() == ["demo-tpu-g2"]
    (worker,) = town.crew.workers.values()
    assert worker.env["TPUCTL_BUNDLE"] == said.document["bundle"]


def test_a_push_needs_a_job_that_runs(town):
    """Before `up`, and after the end."""
    one = Desk(town)
    assert one.run("push", "--json").document["code"] == "TPU-130"
    assert town.mutations() == []


def test_logs_are_followed_across_machines_and_a_network_that_fails(town, desk):
    """One line for each trouble; the lines of the next TPU come after those of the first, until the end."""
    bucket = town.buckets()[0]

    def write(incarnation, text):
        name = f"logs/g{incarnation}/w0/000001.log"
        town.storage.objects.insert(bucket, name, text, {}, Preconditions())

    def end():
        write(2, b"--- incarnation 2 ---\nstep 2\n")
        town.acting[-1].interrupt_at = town.clock.monotonic() + 60

    write(1, b"--- incarnation 1 ---\nstep 1\nhalf a li")
    town.later(100, lambda: setattr(desk, "offline", True))
    town.later(300, lambda: setattr(desk, "offline", False))
    town.later(400, end)
    said = desk.run("logs", "-f")
    assert said.code == 130
    assert said.out.splitlines() == ["--- incarnation 1 ---", "step 1", "--- incarnation 2 ---", "step 2"]
    assert said.err.count("trying again") == 1
    assert desk.run("logs").out.splitlines()[-1] == "half a li", "what no line end has closed comes last"


def test_a_wish_is_forgotten_with_the_lease_in_hand(town, desk):
    """A watch that has stepped aside for a push, and comes back, is not asked for the same push again."""
    town.acting.append(Process(desk, ("push",)))
    session = Session(Choice(desk.folder / "tpuctl.yaml", (), "gcp"), Reporter())
    with patch.dict("os.environ", desk._environment()):
        lease = session.lease
        lease.wish()
        assert LEASE_WISH in town.objects(LEASE_WISH)
        lease.acquire()
        assert town.objects(LEASE_WISH) == []
        lease.release()
    town.acting.pop()


def test_a_record_of_a_computer_without_the_key_is_asked_about_once(town, desk):
    """Nobody at a terminal: an error with the way out; with the flag it is taken, and known from then on."""
    other = Desk(town, "other")
    (other.state / "gcp" / RECORD_KEY).write_bytes(b"o" * 32)
    assert other.run("up").code == 0
    refused = desk.run("up")
    assert (refused.code, "TPU-139" in refused.err) == (2, True)
    assert "record.key" in refused.err
    assert desk.run("up", "--account-override").code == 0
    assert desk.run("up").code == 0
    assert desk.run("status").code == 0
    forged = other.run("up", "--account-override")
    assert forged.code == 0
    assert desk.run("down", "--yes").code == 0
    assert not town.nodes()
