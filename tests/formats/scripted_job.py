"""A job whose every write is a line of the test, in time that does not pass by itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.agent.context import AgentContext
from orchestrator.clock import VirtualClock
from tests.agent.agent_lab import running_lab

LOOK = 0.25
"""Seconds between two calls of the job's script."""


class ScriptedJob:
    """Act one job: *write* is called with the seconds since its start, four times a second."""

    def __init__(self, context: AgentContext, clock: VirtualClock) -> None:
        self.context, self.clock = context, clock
        self.folder = context.local.folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def commits(self, write: Callable[[float], None], seconds: float) -> Iterator[float]:
        """Yield when something was committed, in seconds after the start."""
        self.context.committer.begin(1, None)
        self.context.local.forget()
        began = looked = self.clock.now()
        while self.clock.now() - began < seconds:
            write(self.clock.now() - began)
            if self.clock.now() >= looked:
                if self.context.committer.commit():
                    yield self.clock.now() - began
                looked = self.clock.now() + (self.context.committer.pause or self.context.settings.poll)
            self.clock.advance(LOOK)

    def first_commit(self, write: Callable[[float], None], seconds: float = 60.0) -> tuple[float, int] | None:
        """Return when its first save was committed, and its step; None if none was in *seconds*."""
        at = next(self.commits(write, seconds), None)
        return None if at is None else (at, int(self.context.heartbeat.get("committed_step")))

    def last_commit(self) -> None:
        """Commit what the end of the job has left."""
        while self.context.committer.commit():
            continue

    def committed(self) -> dict[str, bytes]:
        """Return the files of the newest checkpoint."""
        newest = self.context.checkpoints.newest()
        assert newest is not None
        bucket, found = self.context.bucket, {}
        for name in bucket.list(f"checkpoints/{newest.step:08d}/"):
            held = bucket.read(name)
            assert held is not None
            found[name.rsplit("/", 1)[-1]] = held.data
        return {name: data for name, data in found.items() if (self.folder / name).exists()}


@contextmanager
def scripted_job(folder: Path) -> Iterator[ScriptedJob]:
    """Provide a job on a machine whose agent looks each 5 s."""
    clock = VirtualClock()
    with running_lab(folder) as lab:
        machine = lab.machine("m", CHECKPOINT_FORMAT="auto", HEARTBEAT_SECONDS=30)
        yield ScriptedJob(machine.context(clock), clock)
