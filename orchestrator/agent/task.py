"""
One task of a fleet's job: claimed in the bucket, run as any job is, and ended by a mark that stays.

The queue may forget a task, or start it twice. So each start takes the next number of the task's incarnations,
which fences all earlier ones, and a task that has its mark is never run again.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Tuple

from orchestrator.agent.attempt.bundle import fetch
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.layout import Layout, read_json
from orchestrator.agent.machine.processes import clear
from orchestrator.agent.settings import Settings, read_settings
from orchestrator.agent.threads import say
from orchestrator.contract.limits import COLLECTED_BYTES
from orchestrator.contract.machine_errors import AgentError, PreconditionError
from orchestrator.contract.object_names import COLLECTED, ENDS, GANG, STARTS

AGAIN = 75
"""Status by which the queue is asked to start the task once more (RequeueExit of slurm.conf)."""
_STATUS = {"done": 0, "unclaimed": 0, "failed": 1}
"""Status of a task by the phase of its last report; without one of these it has not ended."""


def run_task(environ: Mapping[str, str], run: Callable[[Mapping[str, str]], int]) -> int:
    """
    Run the task that the environment names and return the status for the queue.

    TPUCTL_PREFIX is the task's folder in the bucket, TPUCTL_JOB_PREFIX that of its job, where code and marks
    lie. *run* is the agent's own `run`. Raises AgentError for an environment that is wrong.
    """
    number, whole = environ["TPUCTL_TASK"], environ["TPUCTL_JOB_PREFIX"]
    settings = read_settings(dict(environ, TPUCTL_INCARNATION="0"))
    job, own = (_bucket(settings, environ, prefix) for prefix in (whole, environ["TPUCTL_PREFIX"]))
    _end_the_others(settings.layout)
    try:
        ended = [name.rpartition(".")[2] for name in job.list(f"{ENDS}{number}.")]
        if ended:
            say(f"task {number} has ended before: {ended[0]}")
            return min(_STATUS.get(phase, 0) for phase in ended)
        incarnation = claim(own, environ)
        # For people: one list of these tells what ran when and where.
        job.write(f"{STARTS}{number}.{incarnation}.{environ.get('SLURMD_NODENAME', '')}", b"", None)
        _fresh(settings.layout)
        fetch(settings.layout, job, settings.bundle)
    except (AgentError, OSError) as error:
        say(f"task {number} cannot begin yet: {error}")
        return AGAIN
    before = _files(settings, environ)
    run(dict(environ, TPUCTL_INCARNATION=str(incarnation)))
    phase = str(read_json(settings.layout.status).get("phase", ""))
    if phase not in _STATUS:
        return AGAIN
    try:
        _collect(job, f"{COLLECTED}{number}.{incarnation}.", _files(settings, environ), before)
        _mark(job, number, phase, incarnation)
    except (AgentError, OSError) as error:
        say(f"task {number} is {phase}, which could not be recorded: {error}")
        # The next start finds its checkpoints, and says the same.
        return AGAIN
    return _STATUS[phase]


def claim(bucket: JobBucket, environ: Mapping[str, str]) -> int:
    """Take the next number among the task's incarnations, which no other start can have; return it."""
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
        # In the folder of the incarnation's attempts: whoever is older looks there before each commit.
        name = f"{GANG}{number}/claim.json"
        try:
            bucket.write(name, mine, 0)
        except PreconditionError:
            held = bucket.read(name)
            if held is None or held.data != mine:
                continue
        return number


def _bucket(settings: Settings, environ: Mapping[str, str], prefix: str) -> JobBucket:
    return JobBucket.from_environ(
        settings.bucket, dict(environ, TPUCTL_PREFIX=prefix), Metadata.from_environ(environ)
    )


def _end_the_others(layout: Layout) -> None:
    """Kill what tasks before have left: this machine has one task at a time, and its TPU one process."""
    if layout.root.parent.is_dir():
        for root in layout.root.parent.iterdir():
            if root != layout.root:
                clear(root, None)


def _fresh(layout: Layout) -> None:
    """Forget the task before, but neither the job's code nor what its setup has made."""
    layout.make()
    for folder in (layout.checkpoints, layout.quarantine, layout.log.parent):
        shutil.rmtree(str(folder), ignore_errors=True)
    for path in layout.status.parent.iterdir():
        if path.is_file() and not path.name.startswith("setup-"):
            path.unlink()
    layout.make()


_Files = List[List[Tuple[Path, Tuple[int, int, int]]]]
"""For each file to collect the places where it is, with what changes when it is written."""


def _files(settings: Settings, environ: Mapping[str, str]) -> _Files:
    """Look where files of TPUCTL_COLLECT may be: in the folder where the job runs, then beside its checkpoints."""
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
    """Copy the small files of a task; one that this start has not written is another task's, or the code's."""
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


def _mark(job: JobBucket, number: str, phase: str, incarnation: int) -> None:
    body: Dict[str, object] = {"phase": phase, "incarnation": incarnation, "at": time.time()}
    try:
        job.write(f"{ENDS}{number}.{phase}", json.dumps(body).encode(), 0)
    except PreconditionError:
        return  # Said before, by this start or by one that was fenced only after its last commit.
