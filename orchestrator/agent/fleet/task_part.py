"""
Run one task on several machines: Slurm starts it on one of them, and the others follow.

The machine that Slurm started, worker 0 of all, writes each node's part of the task into that node's folder.
Every other machine reads it there, and runs the same agent with the same claim as long as worker 0 reports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from dataclasses import asdict, dataclass, replace
from typing import Dict, List, Mapping, Optional, Tuple

from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.machine_clock import SYSTEM_CLOCK
from orchestrator.agent.settings import Settings, read_settings
from orchestrator.agent.side_threads import say
from orchestrator.agent.telemetry.heartbeat import heartbeat_name
from orchestrator.contract.bucket.object_names import JOBS, NODES, SUBMISSIONS, TASK_PART, TASKS
from orchestrator.contract.clock import Clock
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError, PreconditionError
from orchestrator.contract.node_list import node_list
from orchestrator.contract.phase import AT_REST, WELL
from orchestrator.contract.replacing import write_atomically

VARIABLE = "TPUCTL_TASK_PART"
NODE_FOLDER = "TPUCTL_NODE_FOLDER"
"""Set on machines that follow: the part, and their node's folder in the bucket."""
MEGASCALE_PORT = "8081"
"""Port of libtpu's coordinator of slices, as in Ray (ray.util.tpu) and GKE."""
SILENT = 30.0
"""Seconds (or four heartbeats, if that is longer) after which worker 0 of a task counts as lost."""
FOLLOW = 2.0
"""Seconds at most between two checks for a task: a gang waits for its last machine to find it."""
_KEYS = {"start": "incarnation"}
"""Fields that have another key in the stored part."""
STUCK = 120.0
"""Seconds after which an agent that was asked to end is killed; the next start clears what its job left."""


@dataclass(frozen=True)
class TaskPart:
    """
    One node's part of a task: slice number *slice* of *slices*, from 0.

    *start* is the number of the task's start, claimed at *at*, *coordinator* the address of worker 0 of all.
    """

    job: str
    task: str
    start: int
    slice: int
    slices: int
    coordinator: str
    heartbeat: float
    at: float

    def stored(self) -> str:
        """Return the part as the node's folder holds it."""
        return json.dumps({_KEYS.get(name, name): value for name, value in asdict(self).items()})

    def variables(self, environ: Mapping[str, str]) -> Dict[str, str]:
        """Return the environment variables for agent and job on this machine of the node."""
        hosts = environ.get("TPUCTL_WORKER_HOSTS", "")
        own, count = int(environ.get("TPUCTL_WORKER_ID") or 0), int(environ.get("TPUCTL_WORKERS") or 1)
        found = {
            "TPUCTL_INCARNATION": str(self.start),
            "TPUCTL_WORKER_ID": str(self.slice * count + own),
            "TPUCTL_WORKERS": str(self.slices * count),
        }
        if self.slices == 1:
            # libtpu reads the metadata server, as on any other TPU.
            return found
        return {
            **found,
            "MEGASCALE_COORDINATOR_ADDRESS": self.coordinator,
            "MEGASCALE_NUM_SLICES": str(self.slices),
            "MEGASCALE_SLICE_ID": str(self.slice),
            "MEGASCALE_PORT": MEGASCALE_PORT,
            "TPU_WORKER_ID": str(own),
            "TPU_WORKER_HOSTNAMES": hosts,
        }


def bucket_of(environ: Mapping[str, str], prefix: str) -> JobBucket:
    """Return the part of the fleet's bucket below *prefix*."""
    return JobBucket.from_environ(
        environ["TPUCTL_BUCKET"], dict(environ, TPUCTL_PREFIX=prefix), Metadata.from_environ(environ)
    )


def nodes_of(environ: Mapping[str, str]) -> List[str]:
    """Return the nodes that Slurm has given to a task: first the one on which it has started it."""
    mine = environ.get("SLURMD_NODENAME", "")
    return [mine, *(name for name in node_list(environ.get("SLURM_JOB_NODELIST", "")) if name != mine)]


def give_out(environ: Mapping[str, str], settings: Settings, start: int, at: float) -> TaskPart:
    """
    Write the parts for all machines of the task; return that of this machine, which Slurm has started.

    Raise AgentError if a later start already has one of the nodes: then this one is over.
    """
    mine, *others = nodes_of(environ)
    job, task = environ["TPUCTL_JOB_PREFIX"][len(JOBS) :].rstrip("/"), environ["TPUCTL_TASK"]
    first = environ.get("TPUCTL_WORKER_HOSTS", "").partition(",")[0]
    own = TaskPart(job, task, start, 0, len(others) + 1, first, settings.heartbeat_interval, at)
    if others or int(environ.get("TPUCTL_WORKERS") or 1) > 1:
        for number, name in enumerate([mine, *others]):
            _write(bucket_of(environ, f"{NODES}{name}/"), name, replace(own, slice=number))
    return own


def _write(bucket: JobBucket, node: str, part: TaskPart) -> None:
    held = bucket.read(TASK_PART)
    before = _part(held.data) if held is not None else None
    # A machine that was cut off may resume here after Slurm has given its nodes to another start.
    if before is not None and before.at > part.at:
        raise AgentError(f"{node} has begun with {before.job}/{before.task} since")
    data = part.stored().encode()
    try:
        bucket.write(TASK_PART, data, held.generation if held is not None else 0)
    except PreconditionError as error:
        # The write may have succeeded and only its answer was lost.
        held = bucket.read(TASK_PART)
        if held is None or held.data != data:
            raise AgentError(f"another task has begun on {node} at this moment") from error


def given(environ: Mapping[str, str]) -> Optional[TaskPart]:
    """Return the part that this process was started for, None if Slurm started it."""
    return _part(environ[VARIABLE].encode()) if environ.get(VARIABLE) else None


def _part(data: bytes) -> Optional[TaskPart]:
    value = json_value(data) or {}
    try:
        return TaskPart(**{name: value[_KEYS.get(name, name)] for name in TaskPart.__dataclass_fields__})
    except KeyError:
        return None


class Worker0:
    """Observes, from another machine of the task, whether worker 0 still works on it."""

    def __init__(self, environ: Mapping[str, str], node: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._environ, self._clock = environ, clock
        self._node = bucket_of(environ, node)
        self._newest: Tuple[Optional[TaskPart], int] = (None, 0)
        self._since = clock.monotonic()
        self._task = ("", self._node)

    def observe(self) -> Tuple[Optional[TaskPart], str]:
        """Return the node's part, and why worker 0 does not work on it, "" while it does."""
        held = self._node.read(TASK_PART)
        part = _part(held.data) if held is not None else None
        if part is None:
            return None, "there is none"
        folder = f"{JOBS}{part.job}/{TASKS}{part.task}/"
        if self._task[0] != folder:
            self._task = (folder, bucket_of(self._environ, folder))
        heartbeat = self._task[1].read(heartbeat_name(part.start, 0))
        now = (part, heartbeat.generation if heartbeat is not None else 0)
        # Generations instead of times, because the clocks of two machines may differ.
        if now != self._newest:
            self._newest, self._since = now, self._clock.monotonic()
        said = (json_value(heartbeat.data) or {}) if heartbeat is not None else {}
        if said.get("phase") in AT_REST:
            return part, str(said["phase"])
        if said.get("notice"):
            return part, "asked to stop"
        silent = self._clock.monotonic() - self._since > max(SILENT, 4 * part.heartbeat)
        return part, "silent" if silent else ""


def leave_with(worker0: Worker0, part: TaskPart, poll: float, clock: Clock = SYSTEM_CLOCK) -> None:
    """Stop this agent in a thread, as Slurm stops worker 0, once worker 0 has stopped."""

    def watch() -> None:
        while True:
            clock.wait(poll)
            try:
                now, message = worker0.observe()
            except (AgentError, OSError) as error:
                say(f"looking for worker 0: {error}")
                continue
            # After a successful end of worker 0 the others end by themselves, and may still upload files.
            if now != part or (message and message not in WELL):
                say(f"leaving {part.job}/{part.task}: worker 0: {message or 'another task'}")
                os.kill(os.getpid(), signal.SIGTERM)
                # Usually the process ends meanwhile, and this thread with it.
                clock.wait(STUCK)
                os._exit(1)

    threading.Thread(target=watch, name="worker 0", daemon=True).start()


def follow(environ: Mapping[str, str], clock: Clock = SYSTEM_CLOCK) -> int:
    """Run this machine's part of each task of its node. Never returns."""
    settings = read_settings(environ)
    worker0, own = Worker0(environ, environ["TPUCTL_PREFIX"]), int(environ.get("TPUCTL_WORKER_ID") or 0)
    done: Optional[TaskPart] = None
    while True:
        try:
            part, message = worker0.observe()
            # Worker 0 of all is started by Slurm. A part that is done is not run again: worker 0 may report
            # its own end later than this machine.
            if part is not None and not message and part != done and (part.slice, own) != (0, 0):
                done = part if _run(environ, settings, part) == 0 else None
        except (AgentError, OSError) as error:
            say(f"looking for a task to follow: {error}")
        # Runs as long as the machine; a signal ends it.
        clock.wait(min(FOLLOW, settings.poll))


def _run(environ: Mapping[str, str], settings: Settings, part: TaskPart) -> int:
    """Run Slurm's script for worker 0 with the environment that Slurm gives it there; return its exit status."""
    held = bucket_of(environ, "").read(f"{SUBMISSIONS}{part.job}.json")
    stored = (json_value(held.data) or {}).get("order", {}) if held is not None else {}
    if not isinstance(stored, dict) or not isinstance(stored.get("script"), str):
        raise AgentError(f"the job {part.job} cannot be read")
    # In the folder where Slurm keeps its copies, as the script derives the machine's folder from its path.
    script = settings.layout.root / "slurm" / "spool" / "share" / "slurm_script"
    script.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(script, stored["script"])
    ended = subprocess.run(
        ["bash", str(script)], check=False, stdin=subprocess.DEVNULL,
        # A session of its own: a task survives a restart of this node's agent, as one started by Slurm does.
        start_new_session=True,
        env={
            "PATH": environ["PATH"], "HOME": environ.get("HOME", "/root"),
            "SLURM_ARRAY_TASK_ID": part.task, VARIABLE: part.stored(),
            NODE_FOLDER: environ["TPUCTL_PREFIX"],
        },
    )  # fmt: skip
    return ended.returncode
