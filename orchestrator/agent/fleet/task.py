"""
Run one task of a fleet's job: claim it in the bucket, run it like any job, mark its end for good.

Slurm may forget a task or start it twice. So each start takes the task's next number, which fences all
earlier ones, and a task that has its end mark never runs again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Dict, List, Mapping, Optional, Tuple, Union

from orchestrator.agent.attempt.install_bundle import fetch
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.fleet.task_part import (
    NODE_FOLDER,
    Worker0,
    bucket_of,
    give_out,
    given,
    leave_with,
    nodes_of,
)
from orchestrator.agent.layout import Layout, read_json
from orchestrator.agent.machine.processes import clear_all, start_time
from orchestrator.agent.settings import Settings, read_settings
from orchestrator.agent.side_threads import say
from orchestrator.contract.backoff import Backoff, retried
from orchestrator.contract.bucket.limits import COLLECTED_BYTES
from orchestrator.contract.bucket.object_names import COLLECTED, ENDS, GANG, STARTS
from orchestrator.contract.machine_errors import AgentError, PreconditionError
from orchestrator.contract.phase import WELL, Phase
from orchestrator.contract.replacing import write_atomically

AGAIN = 75
"""Exit status that makes Slurm requeue the task (RequeueExit in slurm.conf)."""
START = "start.json"
"""File beside the state that names the start to which it belongs."""
LEAVES = 20.0
"""Seconds for the previous task on this machine to save before it is killed."""
BUCKET_TIMEOUT = 60.0
"""
Seconds for which a task goes on without the bucket. With the end of its job that is well below SlurmdTimeout of
slurm.sh, after which Slurm starts the task of a machine that has fallen silent elsewhere.
"""
_STATUS: Dict[str, int] = {**dict.fromkeys(WELL, 0), Phase.FAILED: 1}
"""Exit status of a task by the phase of its last heartbeat; without one of these it has not ended."""


def run_task(environ: Mapping[str, str], run: Callable[[Mapping[str, str]], int]) -> int:
    """
    Run the task that the environment names; return its exit status for Slurm.

    TPUCTL_PREFIX is the task's folder in the bucket, TPUCTL_JOB_PREFIX that of its job, which holds code and
    marks. *run* is the agent's own `run`. On a machine that follows, worker 0 claims the task and marks its
    end. Raise AgentError for a wrong environment.
    """
    start = start_task(environ)
    if isinstance(start, int):
        return start
    run(start.environ)
    return end_task(start)


_Files = List[List[Tuple[Path, Tuple[int, int, int]]]]
"""For each file to collect: its possible places, each with values that change when it is written."""


@dataclass(frozen=True)
class ClaimedStart:
    """
    A start that may run: the number of its *task*, and its own *number*, which it has claimed.

    *before* are the files to collect that existed before. The open *lock* keeps other tasks off the machine.
    """

    task: str
    number: int
    follows: bool
    settings: Settings
    environ: Mapping[str, str]
    job: JobBucket
    before: _Files
    lock: IO[str]


def start_task(environ: Mapping[str, str]) -> Union[ClaimedStart, int]:
    """Claim the task and fetch its code; return the exit status instead if it must not run now."""
    task = environ["TPUCTL_TASK"]
    settings = read_settings(dict(environ, TPUCTL_INCARNATION="0"))
    job, own = (bucket_of(environ, environ[key]) for key in ("TPUCTL_JOB_PREFIX", "TPUCTL_PREFIX"))
    part = given(environ)
    lock = _alone(settings.layout, patient=part is None)
    if lock is None:
        return AGAIN
    _end_the_others(settings.layout)
    try:
        if part is None:
            ended = [name.rpartition(".")[2] for name in job.list(f"{ENDS}{task}.")]
            if ended:
                say(f"task {task} has ended before: {ended[0]}")
                return min(_STATUS.get(phase, 0) for phase in ended)
            at = time.time()
            number = claim_number(own, environ)
            part, follows = give_out(environ, settings, number, at), False
            # For people: a list of these objects shows what ran when and where, and so what it has cost.
            for node in nodes_of(environ):
                job.write(f"{STARTS}{task}.{number}.{node}", b"", None)
        else:
            number, follows = part.start, True
        _prepare(settings.layout, {"task": task, "incarnation": number})
        fetch(settings.layout, job, settings.bundle)
    except (AgentError, OSError) as error:
        say(f"task {task} cannot start yet: {error}")
        return AGAIN
    if follows:
        leave_with(Worker0(environ, environ[NODE_FOLDER]), part, settings.poll)
    before = _files(settings, environ)
    own_environ = {"TPUCTL_BUCKET_TIMEOUT_SECONDS": str(BUCKET_TIMEOUT), **environ, **part.variables(environ)}
    return ClaimedStart(task, number, follows, settings, own_environ, job, before, lock)


def end_task(start: ClaimedStart) -> int:
    """Mark the task's end from its agent's last heartbeat; return the status, AGAIN without an end."""
    phase = str(read_json(start.settings.layout.status).get("phase", ""))
    if start.follows:
        return _STATUS.get(phase, AGAIN)
    if phase not in _STATUS:
        return AGAIN
    try:
        now = _files(start.settings, start.environ)
        _collect(start.job, f"{COLLECTED}{start.task}.{start.number}.", now, start.before)
        _mark(start.job, start.task, phase, start.number)
    except (AgentError, OSError) as error:
        say(f"task {start.task} is {phase}, which could not be recorded: {error}")
        # The next start finds the checkpoints and reports the same.
        return AGAIN
    return _STATUS[phase]


def claim_number(bucket: JobBucket, environ: Mapping[str, str]) -> int:
    """Claim the number of the task's next start, which no other start can have; return it."""
    mine = json.dumps(
        {
            "id": uuid.uuid4().hex,
            "node": environ.get("SLURMD_NODENAME", ""),
            "restart": environ.get("SLURM_RESTART_COUNT", "0"),
            "at": time.time(),
        }
    ).encode()
    folders = (one.rstrip("/").rpartition("/")[2] for one in bucket.level(GANG)[1])
    number = max((int(one) for one in folders if one.isdecimal()), default=0)
    while True:
        number += 1
        # In the start's folder of attempts, where older starts look before each commit.
        name = f"{GANG}{number}/claim.json"
        try:
            bucket.write(name, mine, 0)
        except PreconditionError:
            held = bucket.read(name)
            if held is None or held.data != mine:
                continue
        return number


def _alone(layout: Layout, *, patient: bool) -> Optional[IO[str]]:
    """
    Return the machine's task lock, held while the file is open; None if another task keeps it.

    *patient* asks the holder to stop, since Slurm has given this machine to us.
    """
    tasks = layout.root.parent
    tasks.mkdir(parents=True, exist_ok=True)
    lock = (tasks / "lock").open("a+")
    asked_at: Optional[float] = None

    def take() -> IO[str]:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(f"{os.getpid()} {start_time(os.getpid())}")
        lock.flush()
        return lock

    def end_the_holder(_held: BaseException) -> None:
        nonlocal asked_at
        lock.seek(0)
        pid, _, started = lock.read().partition(" ")
        now = time.monotonic()
        # The file may still have the former holder's text, and its process id may be reused.
        alive = pid.isdecimal() and start_time(int(pid)) == started
        if alive and (asked_at is None or now - asked_at > LEAVES):
            say(f"process {pid} has another task on this machine, which is over")
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM if asked_at is None else signal.SIGKILL)
            asked_at = now if asked_at is None else asked_at

    with contextlib.suppress(BlockingIOError):
        # The holder is another process, so this wait is real time.
        return retried(
            take, (BlockingIOError,), Backoff(0.1, 0.1), now=time.monotonic, wait=time.sleep,
            tries=math.inf if patient else 1, failed=end_the_holder,
        )  # fmt: skip
    return None


def _end_the_others(layout: Layout) -> None:
    """Kill processes of earlier tasks: a machine runs one task at a time, and its TPU one process."""
    if layout.root.parent.is_dir():
        # At once: one after the other took a tenth of a second for each job that this machine ever had.
        others = [root for root in layout.root.parent.iterdir() if root.is_dir() and root != layout.root]
        if others:
            clear_all(others)


def _prepare(layout: Layout, start: Mapping[str, Union[str, int]]) -> None:
    """
    Delete the state of the previous task, but keep the job's code and what its setup installed.

    The state of this very *start* stays: its agent was killed, and only its record says what is committed.
    """
    if read_json(layout.status.with_name(START)) == start:
        return
    layout.make()
    for folder in (layout.checkpoints, layout.quarantine, layout.log.parent):
        shutil.rmtree(str(folder), ignore_errors=True)
    for path in layout.status.parent.iterdir():
        # State of setup and data stays, together with what it describes.
        if path.is_file() and not path.name.startswith(("setup-", "cache-", "data.json")):
            path.unlink()
    layout.make()
    write_atomically(layout.status.with_name(START), json.dumps(start))


def _files(settings: Settings, environ: Mapping[str, str]) -> _Files:
    """Return the possible places of TPUCTL_COLLECT's files: the source folder, then its checkpoint folder."""
    folders = [settings.layout.current]
    if not settings.checkpoints.in_bucket:
        folders.append(Path(settings.checkpoints.folder))
    found: _Files = []
    for name in filter(None, environ.get("TPUCTL_COLLECT", "").split(":")):
        found.append([])
        for folder in folders:
            path = folder / name
            if path.is_file():
                stat = path.stat()
                found[-1].append((path, (stat.st_ino, stat.st_mtime_ns, stat.st_size)))
    return found


def _collect(job: JobBucket, prefix: str, now: _Files, before: _Files) -> None:
    """Upload the task's result files, skipping those that this start has not written."""
    for index, places in enumerate(now):
        path = next((one[0] for one in places if one not in before[index]), None)
        if path is None:
            continue
        with path.open("rb") as file:
            data = file.read(COLLECTED_BYTES + 1)
        if len(data) > COLLECTED_BYTES:
            say(f"{path.name} is not collected: it has more than {COLLECTED_BYTES} bytes")
        else:
            job.write(f"{prefix}{index}", data, None)


def _mark(job: JobBucket, task: str, phase: str, number: int) -> None:
    body: Dict[str, object] = {"phase": phase, "incarnation": number, "at": time.time()}
    try:
        job.write(f"{ENDS}{task}.{phase}", json.dumps(body).encode(), 0)
    except PreconditionError:
        return  # Already uploaded by this start, or by one that was fenced only after its last commit.
