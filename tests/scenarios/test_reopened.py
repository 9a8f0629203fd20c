"""A deployment that has ended: what `plan` shows of it, what `up` opens again, and what `push` refuses."""

import hashlib
import json

import pytest

from orchestrator.config.load import load
from orchestrator.contract.bucket.object_names import RECORD
from orchestrator.domain.checksum import bytes_with_checksum, proven
from orchestrator.planning.job_digest import job_digest
from tests.kit.cloud import PROJECT
from tests.kit.machines import CloudMachines
from tests.kit.user import User

KEY = b"k" * 32
SETTINGS_BEFORE = (
    "JobSpec(command='python3 train.py', source='src', data={}, setup='', python='', run_on='tpu', env={}, "
    "secrets={}, checkpoint=CheckpointSpec(format='auto', dir='local', keep=3, marker='COMPLETE', every=None, "
    "save_seconds=None), progress='auto', memory=MemorySpec(params_millions=None, optimizer='adam', "
    "dtype='fp32', shards=1, activations_gb=None, text_gb=None), target_steps=None, failures=5, "
    "stop_signal='TERM', grace=None)"
)
"""What the digest of the settings was made of in commit fbcd1de6, for the file of these tests."""
DONE = {"phase": "done"}


def finished(cloud, user, **words):
    """Let the job run for a quarter of an hour and report its end, which nobody watches."""
    user.up()
    cloud.wait(900)
    cloud.machines.say("demo", **{**DONE, **words})


def done_and_down(cloud, user, *, watched):
    """Let a job be done, and take its machines down; without a watcher only `down` learns of the end."""
    finished(cloud, user, committed_step=60)
    if watched:
        user.run("watch", timeout=3600)
    user.down()


def verbs(document):
    """Return verb and kind of each change of a plan."""
    return [(change["verb"], change["kind"]) for change in document["changes"]]


@pytest.mark.parametrize("watched", [True, False], ids=["noted", "not noted"])
@pytest.mark.parametrize("end", [DONE, {"phase": "failed"}], ids=["done", "failed"])
def test_plan_shows_that_up_opens_an_ended_deployment_again(cloud, user, end, watched):
    """The code was changed after the end: a new TPU is planned, and `up` asks for exactly that one."""
    finished(cloud, user, **end)
    if watched:
        user.run("watch", timeout=3600)
    user.write("train.py", "print('other')\n")
    planned = user.run("plan", "--detailed-exitcode", "--json")
    assert planned.code == 2
    assert ("create", "tpu") in verbs(planned.document)
    warned = "The job is done; up would start it again from its newest checkpoint" in user.run("plan").out
    assert warned == (planned.document["state"] == "done")
    before = len(cloud.asked("tpu.nodes.create"))
    user.up()
    assert len(cloud.asked("tpu.nodes.create")) == before + 1


def test_a_plan_in_a_file_holds_for_an_ended_deployment(cloud, user):
    """Nothing has moved between `plan --output` and `up`, so it is carried out; the file may lie among the code."""
    finished(cloud, user)
    user.run("watch", timeout=3600)
    user.write("train.py", "print('other')\n")
    file = user.folder / "src" / "p.json"
    assert user.run("plan", "--output", str(file)).code == 0
    assert user.type("up", str(file)).code == 0
    assert user.run("plan", "--detailed-exitcode").code == 0


def test_a_plan_among_the_code_must_look_like_one(cloud, user):
    """Under another name it would be sent as code, and change the code that it holds."""
    user.up()
    said = user.run("plan", "--output", str(user.folder / "src" / "plan.txt"))
    assert (said.code, "plan.json" in said.err) == (2, True)
    assert user.run("plan", "--output", str(user.folder / "plan.txt")).code == 0


def test_new_code_for_a_trained_model_buys_no_tpu(cloud):
    """The newest checkpoint has reached the target: `plan` and `up` say so, until the target is raised."""
    user = User(cloud, job__target_steps=60)
    finished(cloud, user)
    said = user.run("watch", timeout=3600).err
    assert max(len(line) for line in said.partition("  next:")[2].splitlines()) <= 80
    watched = " ".join(said.split())
    own = "and the number of steps in your program if it has one"
    assert f"to train further, raise job.target_steps {own}, then: tpuctl up" in watched
    user.down()
    explained = " ".join(user.run("explain").out.split())
    assert explained.startswith("demo: done: the job is done, and `down` has run deployment: done ")
    assert f"to train beyond step 60, raise job.target_steps {own}, then: tpuctl up" in explained
    user.write("train.py", "print('other')\n")
    planned = user.run("plan", "--detailed-exitcode")
    assert (planned.code, "Price:" in planned.out, "USD per hour" in planned.out) == (0, False, False)
    said = user.up()
    assert "has reached job.target_steps (60)" in said.err
    for text in (" ".join(one.split()) for one in (planned.out, said.err, user.run("push").err)):
        assert (
            f"Changed code alone trains nothing more: raise job.target_steps, {own}, then `tpuctl up`" in text
        )
        assert "or change the code" not in text
    assert cloud.nodes() == {}
    explained = " ".join(user.run("explain").out.split())
    assert "the newest TPU is #1" in explained
    assert "do `tpuctl checkpoints fetch` copies the model; `tpuctl down --delete-data`" in explained
    assert "machines that are left" not in explained
    user.edit(job__target_steps=600)
    assert user.run("plan", "--detailed-exitcode").code == 2
    assert "program's own number of steps is higher now" in " ".join(user.run("plan").out.split())
    more = "`tpuctl up` trains on to step 600; raise the number of steps in your program too if it has one"
    assert more in " ".join(user.run("explain").out.split())


@pytest.mark.parametrize("watched", [True, False], ids=["noted", "not noted"])
def test_up_after_down_makes_nothing_for_a_job_that_is_done(cloud, user, watched):
    """Code, settings and model are those of the job that is done: a TPU would only find that out, and be billed."""
    done_and_down(cloud, user, watched=watched)
    planned = user.run("plan", "--detailed-exitcode")
    assert (planned.code, "More training: raise job.target_steps" in planned.out.replace("\n", " ")) == (
        0,
        True,
    )
    said = user.up()
    assert "nothing to do: the job is done" in said.err
    assert "tpuctl checkpoints fetch" in said.err
    assert "change the code" in said.err
    assert (cloud.nodes(), cloud.vms()) == ({}, {})
    assert "the model" in user.run("checkpoints").out
    (newest, *_) = user.run("checkpoints", "--json").document["checkpoints"]
    assert user.run("status", "--json").document["checkpoint_step"] == newest["step"]
    user.write("train.py", "print('other')\n")
    assert "The job is done; up would start it again from its newest checkpoint" in user.run("plan").out
    assert "the job was done; its code or settings have changed" in user.up().err
    assert len(cloud.nodes()) == 1


def test_up_after_down_trains_again_if_the_bucket_has_no_model(cloud, user):
    """The record alone is no model: whoever has deleted the checkpoints wants them anew."""
    cloud.machines.saves_nothing = lambda _: True
    done_and_down(cloud, user, watched=True)
    user.up()
    assert len(cloud.nodes()) == 1


@pytest.mark.parametrize("end", [DONE, {"phase": "failed"}, {"phase": "uncommitted"}], ids=str)
def test_push_to_a_job_that_is_over_is_refused_and_the_next_up_runs_the_code(cloud, user, end):
    """Nothing has recorded the end: taken for running, the code would go to machines that the next pass deletes."""
    finished(cloud, user, **end)
    user.write("train.py", "print('other')\n")
    before = cloud.mutations()
    said = user.run("push")
    assert (said.code, "TPU-130" in said.err, "tpuctl up" in said.err) == (2, True, True)
    assert cloud.mutations() == before
    user.up()
    assert len(cloud.asked("tpu.nodes.create")) == 2


def test_push_to_a_trained_model_names_the_target_and_not_up_alone(cloud):
    """With VM and TPU still there: `up` would answer that there is nothing to do, whatever the code is."""
    user = User(cloud, job__target_steps=60)
    finished(cloud, user, committed_step=60)
    user.write("train.py", "print('other')\n")
    document = user.run("push", "--json").document
    assert "is done (checkpoint" in document["message"]
    assert document["hint"].startswith("Changed code alone trains nothing more: raise job.target_steps")
    user.edit(job__target_steps=6000)
    assert user.run("push", "--json").document["hint"] == "run: tpuctl up"


def test_push_at_the_end_of_the_time_to_live_is_refused(cloud):
    """The next pass deletes the machines, whatever code they have."""
    user = User(cloud, watch__ttl="2h")
    user.up()
    cloud.wait(3 * 3600)
    user.write("train.py", "print('other')\n")
    said = user.run("push")
    assert (said.code, "time to live" in said.err) == (2, True)


def test_an_upgrade_of_tpuctl_restarts_no_job_and_reopens_none(cloud, user):
    """An earlier version wrote its own digest of the same settings, and its agent was another one."""
    user.up()
    spec = load(user.folder / "tpuctl.yaml")
    earlier = hashlib.sha256(SETTINGS_BEFORE.encode()).hexdigest()[:16]
    written = user.state / "gcp" / PROJECT / "demo" / "record.json"

    def downgrade():
        """Write the record as that version would have, here and in the bucket."""
        body = json.loads(written.read_bytes())
        assert body["history"]["job"] == job_digest(spec) != earlier
        body["history"].update(job=earlier, agent="0" * 64, serial=body["history"]["serial"] + 1)
        known = {key: body[key] for key in ("schema", "deployment", "writer", "history")}
        whole = bytes_with_checksum(proven(known, KEY))
        written.write_bytes(whole)
        cloud.put_object(RECORD, whole)

    downgrade()
    assert "settings" not in user.run("push", "--dry-run").err
    user.up()
    assert set(cloud.machines.starts.values()) == {1}
    cloud.wait(900)
    cloud.machines.say("demo", **DONE)
    user.run("watch", timeout=3600)
    downgrade()
    assert "nothing to do" in user.up().err
    assert len(cloud.asked("tpu.nodes.create")) == 1


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        ({"phase": "failed", "message": "boom"}, 1, "the job ended with what was pushed: worker 0: boom"),
        ({"phase": "done", "committed_step": 7}, 0, "the job is done with the new code"),
    ],
    ids=["failed", "done"],
)
def test_a_job_that_ends_with_the_pushed_code_is_not_said_to_wait_for_a_machine(
    cloud, user, monkeypatch, end, code, text
):
    """No next machine takes this code: the end is reported, and no machine is deleted by a push."""
    user.up()
    user.write("train.py", "print('other')\n")
    started = CloudMachines.start

    def ends_at_once(self, worker, **words):
        started(self, worker, **words)
        worker.said.update(end)

    monkeypatch.setattr(CloudMachines, "start", ends_at_once)
    said = user.run("push")
    assert (said.code, text in said.err) == (code, True)
    assert cloud.in_use() == ["demo-tpu-g1"]


def test_code_that_a_failed_tpu_had_got_is_pushed_to_the_next_one(cloud, user):
    """The record knew it as sent: the push was said to be done, and the machine went on with the code before."""
    code = {"bug": "print('bug')\n", "mended": "print('mended')\n"}
    user.up()
    cloud.wait(300)
    user.write("train.py", code["bug"])
    assert user.run("push").code == 0
    cloud.machines.say("demo", phase="failed", message="boom")
    user.run("watch", timeout=3600)
    user.write("train.py", code["mended"])
    user.up()
    cloud.wait(300)
    starts = dict(cloud.machines.starts)
    for name in ("bug", "mended", "bug"):
        user.write("train.py", code[name])
        assert "the job runs the new code" in user.run("push").err
    assert [cloud.machines.starts[key] - starts.get(key, 0) for key in cloud.machines.starts] == [0, 3]


def test_a_push_of_settings_speaks_of_settings(cloud, user):
    """The code is the same."""
    user.up()
    cloud.wait(300)
    user.edit(job__env={"LR": "1"})
    said = user.run("push").err
    assert "starts with the new settings" in said
    assert "the job runs the new settings" in said
    assert "new code" not in said


def test_a_push_of_code_that_crashes_says_so(cloud, user, monkeypatch):
    """It runs again and again between two failures: "the job runs the new code" would be half of the truth."""
    user.up()
    user.write("train.py", "print('bug')\n")
    started = CloudMachines.start

    def fails_twice(self, worker, **words):
        started(self, worker, **words)
        worker.said.update(attempt=3, failures=2, failure_message="NameError: grads")

    monkeypatch.setattr(CloudMachines, "start", fails_twice)
    said = user.run("push")
    assert said.code == 0
    assert "the job fails with the new code: 2 of 5 attempts in a row brought no progress" in said.err
    assert "NameError: grads. Next: tpuctl logs" in said.err


def test_watch_after_a_done_job_and_down_names_the_model_and_not_up_alone(cloud, user):
    """Who is done wants the model; `up` would make a TPU."""
    finished(cloud, user)
    user.run("watch", timeout=3600)
    user.down()
    said = user.run("watch")
    assert said.code == 2
    assert "is done, and down: there is nothing to watch" in said.err
    assert "`tpuctl checkpoints fetch` copies the model" in said.err


def test_plan_says_why_it_uploads_the_same_code_after_down(cloud, user):
    """
    Before the first `up` the bucket has no code; after `down` nobody knows, so it is uploaded again.

    Code that was uploaded before another one may still be in the bucket: only what was uploaded last is known.
    """

    def changes():
        return user.run("plan", "--json").document["changes"]

    def why():
        return [one["message"] for one in changes() if (one["verb"], one["kind"]) == ("create", "bundle")]

    fresh = changes()
    assert why() == ["the bucket does not have it yet"]
    user.up()
    assert why() == []
    (code,) = [one["name"] for one in fresh if one["kind"] == "bundle"]
    user.write("train.py", "print('other')\n")
    assert why() == [f"the code that was uploaded last is {code}"]
    user.run("down", "--yes")
    assert why() == ["each `up` after a `down` uploads it"]


def test_status_after_down_says_that_the_checkpoint_is_still_there(cloud, user):
    """The machines that reported it are gone, the bucket keeps it; with the data it is gone too."""
    user.up()
    user.watch(900)
    assert user.run("status", "--json").document["checkpoint_step"]
    user.run("down", "--yes")
    # The bucket's newest one, which may be later than the last heartbeat.
    step = max(step for step, _ in cloud.machines.complete(cloud.buckets()[0]))
    assert user.run("status", "--json").document["checkpoint_step"] == step
    assert f"checkpoint   step {step}, in the bucket" in user.run("status").out.splitlines()
    user.run("down", "--delete-data", "--yes")
    assert user.run("status", "--json").document["checkpoint_step"] is None


def test_a_report_among_the_code_is_no_new_code(cloud, user):
    """Whoever looks at a report restarts nothing, whatever the page is called."""
    user.up()
    cloud.wait(300)
    assert user.run("report", "--output", str(user.folder / "src" / "r.html")).code == 0
    assert user.run("plan", "--detailed-exitcode").code == 0
    user.write("page.html", "<html></html>")
    assert user.run("plan", "--detailed-exitcode").code == 2
