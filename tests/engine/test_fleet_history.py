"""What tasks did, read from a bucket into which machines may write anything."""

import json

import pytest

from orchestrator.contract.bucket.limits import COLLECTED_BYTES
from orchestrator.domain.spec import JobSpec
from orchestrator.engine.fleet.history import FleetHistory, read_collected
from orchestrator.planning.fleet.tasks import Submission, TaskState
from tests.google.adapter_lab import a_bucket, a_lab

NODES = {"n-001", "n-002"}


@pytest.fixture
def store():
    """Return the store of an empty bucket."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    return lab.store()


def submission(tasks=3, **more):
    """Return a job of some tasks."""
    return Submission("sweep", tuple({} for _ in range(tasks)), JobSpec("x"), "b", "s", 1.0, **more)


def begin(store, task, start, node="n-001", **report):
    """Write what a task writes that begins; with a report also that."""
    store.write(f"jobs/sweep/starts/{task}.{start}.{node}", b"")
    if report:
        body = {"incarnation": start, "worker": 0, "workers": 1, "phase": "run", **report}
        name = f"jobs/sweep/tasks/{task}/.tpuctl/heartbeat/{start}/0"
        store.write(name, json.dumps(body).encode())


def test_starts_come_in_order_with_their_last_reports_and_ends(store):
    """Two lists of a job, and a report for each start."""
    begin(store, 0, 1, step=7, loss=0.5)
    begin(store, 0, 10, "n-002", step=9)
    begin(store, 0, 2)
    store.write("jobs/sweep/ends/0.failed", b"")
    store.write("jobs/sweep/ends/0.done", b"")
    (job,) = FleetHistory(store).read([submission()], NODES)
    assert [(s.number, s.node, s.heartbeat and s.heartbeat.step) for s in job.starts[0]] == [
        (1, "n-001", 7), (2, "n-001", None), (10, "n-002", 9),
    ]  # fmt: skip
    assert (job.ends[0].state, job.restarts(0), list(job.starts)) == (TaskState.DONE, 2, [0])
    assert job.last_heartbeat(0).step == 9


def test_a_start_of_several_slices_has_all_its_nodes(store):
    """Each has a mark; it is one start."""
    begin(store, 0, 1, "n-001", step=7)
    begin(store, 0, 1, "n-002")
    (job,) = FleetHistory(store).read([submission()], NODES)
    assert [(s.node, s.beside, s.heartbeat.step) for s in job.starts[0]] == [("n-001", ("n-002",), 7)]


def test_what_is_no_mark_of_ours_means_nothing(store):
    """Nodes of others, tasks that the job has not, and reports that speak for another start."""
    for name in ("7.1.n-001", "0.1.n-999", "0.0.n-001", "01.1.n-001", "0.1.n-001/x", "x", "0.1.N"):
        store.write(f"jobs/sweep/starts/{name}", b"")
    for name in ("9.done", "0.won", "-1.done"):
        store.write(f"jobs/sweep/ends/{name}", b"")
    begin(store, 1, 1, phase="run", step=3)
    store.write(
        "jobs/sweep/tasks/1/.tpuctl/heartbeat/1/0", b'{"incarnation": 2, "worker": 0, "phase": "run"}'
    )
    begin(store, 2, 1, message="x" * 70_000)
    (job,) = FleetHistory(store).read([submission()], NODES)
    assert (sorted(job.starts), job.ends) == ([1, 2], {})
    assert [one.heartbeat for starts in job.starts.values() for one in starts] == [None, None]


def test_a_start_that_is_over_is_read_once(store):
    """One that may go on is read at each look."""
    begin(store, 0, 1, step=1)
    begin(store, 0, 2, step=2)
    history, reads = FleetHistory(store), []
    inner = store.below

    def watched(prefix):
        reads.append(prefix)
        return inner(prefix)

    store.below = watched
    history.read([submission()], NODES)
    history.read([submission()], NODES)
    assert len(reads) == 3


def test_collected_files_are_the_newest_starts_and_bounded(store):
    """An older start that wakes up late changes nothing."""
    for name, data in {
        "0.2.0": b"new", "0.1.0": b"old", "1.1.1": b"csv", "1.1.7": b"no such file", "9.1.0": b"no such task",
        "2.1.0": b"x" * (COLLECTED_BYTES + 1), "2.x.0": b"",
    }.items():  # fmt: skip
        store.write(f"jobs/sweep/collected/{name}", data)
    found = read_collected(store, submission(collect=("metrics.json", "log.csv")))
    assert found == {0: {"metrics.json": b"new"}, 1: {"log.csv": b"csv"}}
