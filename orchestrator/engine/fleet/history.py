"""Read what the tasks of a fleet did from objects that machines write; each object is validated."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from orchestrator import threads
from orchestrator.contract.bucket.limits import COLLECTED_BYTES, HEARTBEATS, MAX_INT
from orchestrator.contract.bucket.object_names import COLLECTED, HEARTBEAT, JOBS, STARTS
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.ports import Store
from orchestrator.engine.bucket.heartbeats import parse_heartbeat
from orchestrator.engine.fleet.job_store import end_marks
from orchestrator.planning.fleet.tasks import Submission, task_folder
from orchestrator.planning.fleet.use import JobHistory, TaskStart

AT_ONCE = 16
MAX_STARTS = 200_000
MAX_OF_A_TASK = 1000
"""Newest starts of one task to read; a task that fails more often is given up long before."""
_START = re.compile(r"(0|[1-9]\d{0,4})\.([1-9]\d{0,8})\.([a-z][-a-z0-9]{0,62})")
_COLLECTED = re.compile(r"(0|[1-9]\d{0,4})\.([1-9]\d{0,8})\.(\d)")


class FleetHistory:
    """Read the history repeatedly; objects that can no longer change are read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._final: dict[tuple[str, int, int], Heartbeat | None] = {}

    def read(self, submissions: Iterable[Submission], nodes: Collection[str]) -> tuple[JobHistory, ...]:
        """Return the history of each job; only starts on *nodes*, the fleet's own, are counted."""
        with threads.pool(AT_ONCE) as pool:
            jobs = list(pool.map(lambda submission: self._marks(submission, nodes), submissions))
            wanted = [(job, start) for job in jobs for starts in job.starts.values() for start in starts]
            heartbeats = dict(
                zip(
                    ((job.submission.name, start.task, start.number) for job, start in wanted),
                    pool.map(lambda one: self._heartbeat(*one), wanted),
                    strict=True,
                )
            )
        return tuple(
            replace(
                job,
                starts={
                    task: tuple(
                        replace(one, heartbeat=heartbeats[job.submission.name, task, one.number])
                        for one in starts
                    )
                    for task, starts in job.starts.items()
                },
            )
            for job in jobs
        )

    def _marks(self, submission: Submission, nodes: Collection[str]) -> JobHistory:
        """Return a job with the starts and ends of its tasks, from two lists of the bucket."""
        prefix, tasks = f"{JOBS}{submission.name}/{STARTS}", len(submission.parameters)
        found: dict[int, dict[int, TaskStart]] = defaultdict(dict)
        for one in self._store.list(prefix, MAX_STARTS):
            name = _START.fullmatch(one.name[len(prefix) :])
            if name is None or int(name[1]) >= tasks or name[3] not in nodes:
                continue
            task, number = int(name[1]), int(name[2])
            held = found[task].setdefault(number, TaskStart(task, number, name[3], one.updated))
            if held.node != name[3]:
                found[task][number] = replace(held, beside=(*held.beside, name[3]))
        marks = end_marks(self._store, submission.name)
        ends = {number: end for number, end in marks.items() if number < tasks}
        starts = {
            task: tuple(mine[number] for number in sorted(mine)[-MAX_OF_A_TASK:])
            for task, mine in found.items()
        }
        return JobHistory(submission, starts, ends)

    def _heartbeat(self, job: JobHistory, start: TaskStart) -> Heartbeat | None:
        """Return the last valid heartbeat of a start, or None."""
        key = (job.submission.name, start.task, start.number)
        if key in self._final:
            return self._final[key]
        # The numbers of start and worker in the report must match the object's name.
        store = self._store.below(task_folder(job.submission.name, start.task))
        found = store.read(f"{HEARTBEAT}{start.number}/0", limit=HEARTBEATS.each + 1)
        heartbeat = None
        if found is not None:
            try:
                heartbeat = parse_heartbeat(found)
            except (ValueError, TypeError, KeyError, OverflowError):
                heartbeat = None
        newest = job.starts[start.task][-1].number
        if start.task in job.ends or start.number < newest:
            self._final[key] = heartbeat
        return heartbeat


def read_collected(store: Store, submission: Submission) -> dict[int, dict[str, bytes]]:
    """Return the files that tasks left for the results table, by task and name; the newest start wins."""
    prefix, newest = f"{JOBS}{submission.name}/{COLLECTED}", dict[tuple[int, int], tuple[int, str]]()
    for one in store.list(prefix, MAX_STARTS):
        name = _COLLECTED.fullmatch(one.name[len(prefix) :])
        if name is None or one.size > COLLECTED_BYTES or int(name[1]) >= len(submission.parameters):
            continue
        key, number = (int(name[1]), int(name[3])), int(name[2])
        if number <= MAX_INT and key[1] < len(submission.collect) and number > newest.get(key, (0, ""))[0]:
            newest[key] = (number, one.name)
    with threads.pool(AT_ONCE) as pool:
        bodies = pool.map(
            lambda name: store.read(name, limit=COLLECTED_BYTES), (n for _, n in newest.values())
        )
        found: dict[int, dict[str, bytes]] = defaultdict(dict)
        for (task, index), body in zip(newest, bodies, strict=True):
            if body is not None:
                found[task][submission.collect[index]] = body.data
    return dict(found)
