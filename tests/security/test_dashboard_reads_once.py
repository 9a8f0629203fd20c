"""The dashboard looks again every few seconds: what machines have written is read once, not each time."""

import json
from types import SimpleNamespace

import pytest

from orchestrator.app import report
from orchestrator.domain.ports import StoredObject
from tests.planning.planning_kit import a_spec


class CountingBucket:
    """A bucket in memory that counts the bytes that leave it."""

    def __init__(self, **held):
        self.held, self.bytes_read = held, 0

    def list(self, prefix, most=0):
        """List without data."""
        return [
            StoredObject(n, len(d), 1, 1.0e9) for n, d in sorted(self.held.items()) if n.startswith(prefix)
        ]

    def read(self, name, offset=0, limit=1 << 30):
        """Return an object, or a part of it."""
        data = self.held.get(name)
        if data is None:
            return None
        part = data[offset : offset + limit]
        self.bytes_read += len(part)
        return StoredObject(name, len(data), 1, 1.0e9, part)


def test_log_and_reports_leave_the_bucket_once():
    """A log without a step is read for the curve; a machine may make it as long as it likes."""
    heartbeat = json.dumps({"incarnation": 1, "worker": 0, "workers": 1, "phase": "run"}).encode()
    name = "logs/g1/w0/000001.log"
    bucket = CountingBucket(
        **{name: b"step 1 loss 0.5\n" + b"x" * 99 + b"\n", ".tpuctl/heartbeat/1/0": heartbeat}
    )
    session, memory = SimpleNamespace(store=bucket, spec=a_spec()), report.ReportCache(bucket)

    def read():
        heartbeats = memory.heartbeats.read(None).value
        memory.tail.read()
        return report._losses(session, heartbeats, memory, ())

    first, all_of_it = read(), bucket.bytes_read
    assert first == {1: [(1, 0.5)]}
    assert read() == first
    assert bucket.bytes_read == all_of_it

    bucket.held[name] += b"step 2 loss 0.25\n"
    assert read() == {1: [(1, 0.5), (2, 0.25)]}
    assert bucket.bytes_read == all_of_it + 2 * len(b"step 2 loss 0.25\n"), (
        "for the curve, and for the last lines"
    )


@pytest.mark.parametrize(("phase", "step"), [("restore", 70), ("run", None)], ids=["lost", "newest"])
def test_the_log_is_read_for_a_lost_machine_without_a_reported_step(phase, step):
    """Its job trained before the next report; the log of the newest machine is not needed for the figures."""
    heartbeat = {"incarnation": 1, "worker": 0, "workers": 1, "phase": phase}
    held = {".tpuctl/heartbeat/1/0": heartbeat, "logs/g1/w0/000001.log": None}
    if step is not None:
        held[".tpuctl/heartbeat/2/0"] = {**heartbeat, "incarnation": 2, "phase": "run", "step": 100}
    bucket = CountingBucket(
        **{n: b"step 70 loss 0.5\n" if b is None else json.dumps(b).encode() for n, b in held.items()}
    )
    session, memory = SimpleNamespace(store=bucket, spec=a_spec()), report.ReportCache(bucket)
    heartbeats = memory.heartbeats.read(None).value
    found = report._with_printed_steps(session, heartbeats, memory, ())
    assert found[0].step == step
