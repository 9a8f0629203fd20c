"""What holds the data: bucket, record, checkpoints, and the way on which code goes to the machines."""

import json
import sys
import time
from dataclasses import replace

import pytest

from orchestrator.contract.bucket.object_names import RECORD
from orchestrator.domain.checksum import with_checksum
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.errors import HostKeyError
from orchestrator.ssh.remote import Ssh
from tests.agent.agent_lab import running_lab
from tests.kit.cloud import PROJECT
from tests.kit.user import User
from tests.ssh.conftest import bundle_of, key, machine, relay, servers, settings  # noqa: F401 - fixtures

G1, G2 = "demo-tpu-g1", "demo-tpu-g2"


def test_s19_a_copy_into_a_dead_link_is_given_up_and_made_again(machine, settings, bundle_of, relay):  # noqa: F811
    """The link swallows everything after a while; seconds later the push says so, and the next one is whole."""
    bundle = bundle_of("new", ballast=1_000_000)
    _, hole = relay(machine, 300_000, "hole")
    ssh, began = Ssh(replace(settings, stall=0.5)), time.monotonic()
    (lost,) = ssh.push([hole], *bundle, "/nowhere")
    assert time.monotonic() - began < 60
    assert "no answer for 0.5 s" in lost.error
    assert machine.tree() == ""
    (sent,) = ssh.push([machine.host], *bundle, "/nowhere")
    assert (sent.error, machine.tree()) == ("", "new")


def test_s21_a_device_that_is_still_busy_is_tried_again(tmp_path):
    """The host was reused at once and somebody holds the chips: the machine's fault, not one of the job's."""
    command = (
        'echo x >>../../tries; if [ "$(wc -l <../../tries)" -lt 3 ]; then '
        'echo "RuntimeError: The TPU is already in use by process with pid 7"; exit 1; fi; '
        f"exec {sys.executable} train.py"
    )
    with running_lab(tmp_path) as lab:
        one = lab.machine(COMMAND=command, FAILURES=1, TARGET_STEPS=20).run_to_end()
        assert one.heartbeat()["phase"] == "done"
        assert [(at["failures"], at["excused"]) for at in lab.attempts()] == [(0, 0), (0, 1), (0, 2)]


def test_s22_a_recycled_address_is_another_machine(machine, servers, settings, tmp_path, key):  # noqa: F811
    """Somebody else's machine answers at our machine's address: its key is not the pinned one, nothing is sent."""
    ssh, place = Ssh(settings), machine.host
    ssh.run([place], "true", 20)
    machine.stop()
    other = servers.start("x", tmp_path / "other", key.public, place.port, place.address)
    with pytest.raises(HostKeyError):
        ssh.run([place], "true", 20)
    assert other.commands == []
    other.stop()


def test_s24_a_partial_checkpoint_is_never_the_newest(cloud):
    """One of four workers does not save: what the others wrote is listed as incomplete and not resumed."""
    user = User(cloud, tpu__type="v5litepod-16")
    user.up()
    cloud.wait(300)
    bucket = cloud.buckets()[0]
    ((step, _), *_) = sorted(cloud.machines.complete(bucket), reverse=True)
    cloud.machines.saves_nothing = lambda worker: worker.index == 3
    cloud.wait(300)
    newer = [name for name in cloud.objects("checkpoints/") if int(name.split("/")[1]) > step]
    assert newer, "nothing newer was begun"
    table = user.run("checkpoints", "--json").document["checkpoints"]
    assert [row["step"] for row in table if row["resumes"]] == [step]
    cloud.model.preempt(G1, notice=False)
    user.watch(600)
    assert {(w.incarnation, w.base) for w in cloud.machines.workers.values()} == {(2, step)}


def bucket_object(cloud, name, data=None):
    """Return an object of the deployment's bucket, or write it behind everybody's back."""
    (bucket,) = cloud.buckets()
    if data is not None:
        cloud.storage.objects.insert(bucket, name, data, {}, Preconditions())
    return cloud.storage.objects.read(cloud.storage.objects._objects[bucket][name])


def test_s27_a_bucket_that_is_refused_stops_the_loop_and_nothing_else(cloud, user):
    """Status 3 and what to do; the machines go on, and so does the loop once the permission is back."""
    user.up()
    before = cloud.mutations()
    cloud.later(100, lambda: cloud.change(denied_permissions=frozenset({"storage.objects.create"})))
    said = user.run("watch", interrupt=1800)
    assert said.code == 3
    assert "next:" in said.err
    cloud.change(denied_permissions=frozenset())
    cloud.wait(60)
    assert user.watch(300).code == 130
    assert cloud.mutations() == before


def test_s27_a_bucket_that_takes_nothing_is_waited_for(cloud, user):
    """Ten minutes of 429: nobody acts without a lease, nothing is lost, and then a lost node is replaced."""
    user.up()
    before = cloud.mutations()

    def fill():
        cloud.distort = lambda method, response: (
            replace(response, status=429) if method == "storage.objects.insert" else response
        )

    cloud.later(100, fill)
    cloud.later(160, lambda: cloud.model.preempt(G1, notice=False))
    cloud.later(600, lambda: cloud.mutations() == before or cloud.checks.blame("changed without a lease"))
    cloud.later(700, lambda: setattr(cloud, "distort", lambda method, response: response))
    assert user.watch(1800).code == 130
    assert cloud.nodes() == {G2: "READY"}


def test_s27_a_record_that_another_process_wrote_is_not_written_over(cloud, user):
    """The precondition fails (412): status 6, and the other's record stays."""
    user.up()
    cloud.model.preempt(G1, notice=False)
    claims = []

    def write():
        other = rewritten(bucket_object(cloud, RECORD), writer="somebody else")
        claims.append(bucket_object(cloud, RECORD, other))

    said = user.watch(900, meanwhile={"tpu.nodes.create": write})
    assert said.code == 6
    assert "another tpuctl changed this deployment's record" in said.err
    assert bucket_object(cloud, RECORD) == claims[0]


def test_s27_a_bucket_deleted_by_hand_is_not_papered_over(cloud, user):
    """Said in plain words; no empty bucket takes its place, and no machine is made or deleted."""
    user.up()
    before = cloud.mutations()
    (bucket,) = cloud.buckets()

    def delete():
        cloud.storage.objects._objects.pop(bucket), cloud.storage.objects._names.pop(bucket)
        cloud.storage.buckets._buckets.pop(bucket)
        cloud.checks.newest.clear()

    cloud.later(200, delete)
    said = user.run("watch")
    assert said.code == 1
    assert "the bucket with checkpoints, code and logs is gone" in said.err
    assert cloud.mutations() == before
    assert cloud.buckets() == []


OLD_FIELDS = (
    "serial", "started_at", "incarnation", "zone", "accepted", "requested_at", "zones_used", "vm_accepted",
    "bucket_seen", "bundle", "agent", "uploaded", "pushed", "preemptions", "operations", "refusals",
    "sightings", "spans", "outcome", "reason",
)  # fmt: skip


def rewritten(data, schema=1, fields=None, writer=""):
    """Return a record as a version with fewer fields, with another schema, or another process wrote it."""
    body = json.loads(data)
    body["schema"], body["writer"] = schema, writer or body["writer"]
    body["history"] = {k: v for k, v in body["history"].items() if fields is None or k in fields}
    del body["checksum"]
    return json.dumps(with_checksum(body), sort_keys=True).encode()


def record_files(user):
    """Return the copies of the record on a computer."""
    return list(user.state.glob(f"gcp/{PROJECT}/demo/record.json"))


def test_s29_a_record_of_an_older_version_is_read(cloud, user):
    """What it does not know is filled in: the loop and the next `up` leave all as it is."""
    user.up()
    old = rewritten(bucket_object(cloud, RECORD), fields=OLD_FIELDS)
    bucket_object(cloud, RECORD, old)
    for copy in record_files(user):
        copy.write_bytes(old)
    before = cloud.mutations()
    assert user.watch(900).code == 130
    user.up()
    assert [call for call in cloud.mutations()[len(before) :] if "nodes" in call[0]] == []
    assert cloud.nodes() == {G1: "READY"}
    assert sum(cloud.machines.starts.values()) == 1


def test_s29_a_record_of_a_newer_version_is_not_written_over(cloud, user):
    """Refused before any call, by `up` and by `watch`; nothing is written over it."""
    user.up()
    held = bucket_object(cloud, RECORD)
    newer = bucket_object(cloud, RECORD, rewritten(held, schema=2))
    before = cloud.mutations()
    for word in ("up", "watch"):
        said = user.run(word)
        assert said.code == 1
        assert "use the tpuctl that wrote it, or a newer one" in said.err
    assert bucket_object(cloud, RECORD) == newer
    assert cloud.mutations() == before
    bucket_object(cloud, RECORD, held)


def test_s27_what_was_written_while_a_command_waited_for_its_lease_is_read_again(cloud, user):
    """`push` looks at the record before it holds the lease; the last write of whoever held it is no conflict."""
    user.up()
    user.write("train.py", "print('new')\n")
    written = []

    def write():
        written.append(bucket_object(cloud, RECORD, bucket_object(cloud, RECORD)))

    said = user.run("push", meanwhile={"storage.objects.insert .tpuctl/lease": write})
    assert written
    assert (said.code, said.err) == (0, said.err)
    assert bucket_object(cloud, RECORD) != written[0]
