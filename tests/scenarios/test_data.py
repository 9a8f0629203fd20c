"""What holds the data: bucket, record, checkpoints, and the way on which code goes to the machines."""

import json
import sys
import time
from dataclasses import replace

import pytest

from orchestrator.contract.object_names import RECORD
from orchestrator.domain.checksum import sealed
from orchestrator.emulator.state.storage.values import Preconditions
from orchestrator.errors import HostKeyError
from orchestrator.ssh.fleet import Ssh
from tests.agent.agent_lab import running_lab
from tests.scenarios.desk import Desk
from tests.scenarios.town import PROJECT
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


def test_s24_a_partial_checkpoint_is_never_the_newest(town):
    """One of four workers does not save: what the others wrote is listed as incomplete and not resumed."""
    desk = Desk(town, tpu__type="v5litepod-16")
    desk.up()
    town.wait(300)
    bucket = town.buckets()[0]
    ((step, _), *_) = sorted(town.crew.complete(bucket), reverse=True)
    town.crew.mute = lambda worker: worker.index == 3
    town.wait(300)
    newer = [name for name in town.objects("checkpoints/") if int(name.split("/")[1]) > step]
    assert newer, "nothing newer was begun"
    table = desk.run("checkpoints", "--json").document["checkpoints"]
    assert [row["step"] for row in table if row["resumes"]] == [step]
    town.cloud.preempt(G1, notice=False)
    desk.watch(600)
    assert {(w.incarnation, w.base) for w in town.crew.workers.values()} == {(2, step)}


def bucket_object(town, name, data=None):
    """Return an object of the deployment's bucket, or write it behind everybody's back."""
    (bucket,) = town.buckets()
    if data is not None:
        town.storage.objects.insert(bucket, name, data, {}, Preconditions())
    return town.storage.objects.read(town.storage.objects._objects[bucket][name])


def test_s27_a_bucket_that_is_refused_stops_the_loop_and_nothing_else(town, desk):
    """Status 3 and what to do; the machines go on, and so does the loop once the permission is back."""
    desk.up()
    before = town.mutations()
    town.later(100, lambda: town.change(denied_permissions=frozenset({"storage.objects.create"})))
    said = desk.run("watch", interrupt=1800)
    assert said.code == 3
    assert "next:" in said.err
    town.change(denied_permissions=frozenset())
    town.wait(60)
    assert desk.watch(300).code == 130
    assert town.mutations() == before


def test_s27_a_bucket_that_takes_nothing_is_waited_for(town, desk):
    """Ten minutes of 429: nobody acts without a lease, nothing is lost, and then a lost node is replaced."""
    desk.up()
    before = town.mutations()

    def fill():
        town.distort = lambda method, response: (
            replace(response, status=429) if method == "storage.objects.insert" else response
        )

    town.later(100, fill)
    town.later(160, lambda: town.cloud.preempt(G1, notice=False))
    town.later(600, lambda: town.mutations() == before or town.judge.blame("changed without a lease"))
    town.later(700, lambda: setattr(town, "distort", lambda method, response: response))
    assert desk.watch(1800).code == 130
    assert town.nodes() == {G2: "READY"}


def test_s27_a_record_that_somebody_else_wrote_is_not_written_over(town, desk):
    """The precondition fails (412): status 6, and the other's record stays."""
    desk.up()
    town.cloud.preempt(G1, notice=False)
    marked = []

    def write():
        other = rewritten(bucket_object(town, RECORD), writer="somebody else")
        marked.append(bucket_object(town, RECORD, other))

    said = desk.watch(900, meanwhile={"tpu.nodes.create": write})
    assert said.code == 6
    assert "another tpuctl changed this deployment's record" in said.err
    assert bucket_object(town, RECORD) == marked[0]


def test_s27_a_bucket_deleted_by_hand_is_not_papered_over(town, desk):
    """Said in plain words; no empty bucket takes its place, and no machine is made or deleted."""
    desk.up()
    before = town.mutations()
    (bucket,) = town.buckets()

    def delete():
        town.storage.objects._objects.pop(bucket), town.storage.objects._names.pop(bucket)
        town.storage.buckets._buckets.pop(bucket)
        town.judge.newest.clear()

    town.later(200, delete)
    said = desk.run("watch")
    assert said.code == 1
    assert "the bucket with checkpoints, code and logs is gone" in said.err
    assert town.mutations() == before
    assert town.buckets() == []


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
    return json.dumps(sealed(body), sort_keys=True).encode()


def record_files(desk):
    """Return the copies of the record on a computer."""
    return list(desk.state.glob(f"gcp/{PROJECT}/demo/record.json"))


def test_s29_a_record_of_an_older_version_is_taken_over(town, desk):
    """What it does not know is filled in: the loop and the next `up` leave all as it is."""
    desk.up()
    old = rewritten(bucket_object(town, RECORD), fields=OLD_FIELDS)
    bucket_object(town, RECORD, old)
    for copy in record_files(desk):
        copy.write_bytes(old)
    before = town.mutations()
    assert desk.watch(900).code == 130
    desk.up()
    assert [call for call in town.mutations()[len(before) :] if "nodes" in call[0]] == []
    assert town.nodes() == {G1: "READY"}
    assert sum(town.crew.starts.values()) == 1


def test_s29_a_record_of_a_newer_version_is_left_to_it(town, desk):
    """Refused before any call, by `up` and by `watch`; nothing is written over it."""
    desk.up()
    held = bucket_object(town, RECORD)
    newer = bucket_object(town, RECORD, rewritten(held, schema=2))
    before = town.mutations()
    for word in ("up", "watch"):
        said = desk.run(word)
        assert said.code == 1
        assert "use the tpuctl that wrote it, or a newer one" in said.err
    assert bucket_object(town, RECORD) == newer
    assert town.mutations() == before
    bucket_object(town, RECORD, held)


def test_s27_what_was_written_while_a_command_waited_for_its_lease_is_read_again(town, desk):
    """`push` looks at the record before it holds the lease; the last write of whoever held it is no conflict."""
    desk.up()
    desk.write("train.py", "print('new')\n")
    written = []

    def write():
        written.append(bucket_object(town, RECORD, bucket_object(town, RECORD)))

    said = desk.run("push", meanwhile={"storage.objects.insert .tpuctl/lease": write})
    assert written
    assert (said.code, said.err) == (0, said.err)
    assert bucket_object(town, RECORD) != written[0]
