"""Collect what a rehearsal observes during a run: steps, checkpoints, log lines, and outages."""

import contextlib
import re
import time
from dataclasses import replace
from pathlib import Path

from orchestrator.advice.rehearsal.run import Moment, ObservedRun, RunCheckpoint, Shown, Trigger
from orchestrator.app.rehearsal.checkpoint_digests import read_digests
from orchestrator.app.rehearsal.sandbox import Sandbox
from orchestrator.contract.agent_lines import is_agent_line
from orchestrator.contract.formats.base import Format, SaveState
from orchestrator.contract.formats.choose import format_of
from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Present, Unknown
from orchestrator.domain.plan import Outcome
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.engine.bucket.heartbeats import Heartbeats
from orchestrator.engine.bucket.job_logs import JobLogReader
from orchestrator.errors import TpuctlError, TransientError
from orchestrator.report.curve_points import losses

POLL_SECONDS = 1.0
"""Seconds between two reads of heartbeats and checkpoints."""
GONE = 60.0
"""Seconds without an answer of the bucket after which the rehearsal fails."""
TAIL = 20


class RunEvidence:
    """Collects evidence repeatedly, and keeps that of machines which no longer exist."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._heartbeats = Heartbeats(sandbox.session.cloud.store)
        self._observed = self._answered = time.monotonic()
        self._stored: dict[tuple[int, int | None], float] = {}
        self._log = JobLogReader(sandbox.session.cloud.store)
        self._lines: list[tuple[int, int, str]] = []
        self.heartbeats: tuple[Heartbeat, ...] = ()
        self.checkpoints: list[RunCheckpoint] = []
        self.written: list[RunCheckpoint] = []
        self.steps: set[int] = set()
        self.observations = 0

    def observe(self, *, at_once: bool = False) -> None:
        """
        Observe once, unless the last observation is less than POLL_SECONDS ago.

        Raise TpuctlError for a lasting outage.
        """
        now = time.monotonic()
        if self.observations and not at_once and now - self._observed < POLL_SECONDS:
            return
        self._observed, self.observations = now, self.observations + 1
        self._sandbox.must_have_cloud()
        found = self._heartbeats.read(None)
        try:
            # A cloud busy with starting machines may not answer for a moment; only GONE seconds are an error.
            if isinstance(found, Unknown):
                raise TransientError(found.message)
            if isinstance(found, Present):
                self._note_heartbeats(found.value)
            self._note_checkpoints()
        except TpuctlError as error:
            self._lost_contact(error)
            return
        self._answered = now

    def _lost_contact(self, error: TpuctlError) -> None:
        away = time.monotonic() - self._answered
        if away >= GONE:
            raise TransientError(
                f"the local cloud has not answered for {away:.0f} s: {error.message}",
                hint="run `tpuctl rehearse` again; if it happens again, see `tpuctl doctor`",
                changed="the deployment itself was not touched",
            ) from error

    def _note_heartbeats(self, heartbeats: tuple[Heartbeat, ...]) -> None:
        self.heartbeats = heartbeats
        self.steps |= {b.step for b in heartbeats if b.step is not None and b.phase is not Phase.RESTORE}

    def _note_checkpoints(self) -> None:
        session = self._sandbox.session
        newest = max((b.incarnation for b in self.heartbeats), default=1)
        for one in reversed(read_checkpoints(session.cloud.store, session.spec.job.checkpoint)):
            key = (one.step, one.incarnation)
            # By time, not by step: a job that ignores its checkpoint saves the same steps again.
            if one.complete and self._stored.get(key) != one.saved_at:
                self._stored[key] = one.saved_at
                _add(self.checkpoints, RunCheckpoint(one.step, one.incarnation or newest))
        for made in [*self.checkpoints, *self._on_disk()]:
            _add(self.written, made)

    def _on_disk(self) -> list[RunCheckpoint]:
        """
        Return the checkpoints on the newest machines' disks since the job's start there.

        A job that restarts its count saves below the restored step, which is never committed.
        """
        spec = self._sandbox.session.spec.job.checkpoint
        newest = max((b.incarnation for b in self.heartbeats), default=0)
        started = [b.timings.get("spawned") for b in self.heartbeats if b.incarnation == newest]
        # In the bucket every save is a commit; only a disk can hold one that was not committed.
        if spec.dir != "local" or not started or started[0] is None:
            return []
        steps: list[int] = []
        for folder in self._sandbox.cloud.glob("machines/*/opt/tpuctl/checkpoints"):
            with contextlib.suppress(OSError):
                steps += _saved_since(started[0], folder, format_of(spec.format, spec.marker))
        return [RunCheckpoint(step, newest) for step in steps]

    def shown(self, heartbeats: list[Heartbeat], moment: Moment) -> Shown:
        """Return the evidence of one machine; *heartbeats* are the last heartbeats of its workers."""
        slowest = min(heartbeats, key=newest_step)
        step = newest_step(slowest)
        incarnation = slowest.incarnation
        committed = max(b.committed_step or 0 for b in heartbeats)
        began = max(
            b.timings.get(mark, 0.0) for b in heartbeats for mark in ("boot", "setup_done", "spawned")
        )
        return Shown(
            step=None if step < 0 else step,
            checkpoints=len({s.step for s in self.checkpoints if s.incarnation == incarnation}),
            saved=max([committed, *(s.step for s in self.checkpoints)]),
            seconds=time.time() - began if began else 0.0,
            line=moment.trigger is Trigger.LOG and self._said(moment.pattern, incarnation),
        )

    def _said(self, pattern: str, incarnation: int) -> bool:
        with contextlib.suppress(TpuctlError):
            self._lines += self._log.new_lines()
        return any(
            number == incarnation and not is_agent_line(line) and re.search(pattern, line)
            for number, _, line in self._lines
        )

    def run(self, outcome: Outcome | None, message: str) -> ObservedRun:
        """Return the run as observed, after its end."""
        self.observe(at_once=True)
        session = self._sandbox.session
        store = session.cloud.store
        self._lines += self._log.new_lines()
        self._lines += self._log.unfinished()
        curves = losses((), self.heartbeats, ((number, line) for number, _, line in self._lines))
        # Before the cloud is removed, after which nothing of the run can be read.
        run = ObservedRun(
            outcome=outcome,
            message=message,
            heartbeats=self.heartbeats,
            checkpoints=tuple(self.checkpoints),
            written=tuple(self.written),
            steps=frozenset(self.steps),
            losses={number: tuple(points) for number, points in curves.items()},
            digests=read_digests(store, read_checkpoints(store, session.spec.job.checkpoint)),
            torn=sum("torn-" in line for _, _, line in self._lines),
        )
        return replace(run, log=self._tail(run.failed))

    def _tail(self, heartbeat: Heartbeat | None) -> tuple[str, ...]:
        """Return the end of the job's output on the machine that failed, else on the last one."""
        last = max(((number, worker) for number, worker, _ in self._lines), default=(0, 0))
        where = last if heartbeat is None else (heartbeat.incarnation, heartbeat.worker)
        return last_output([line for number, worker, line in self._lines if (number, worker) == where])


def last_output(lines: list[str]) -> tuple[str, ...]:
    """Return the last lines that the job printed since its last start, without the agent's own."""
    found: list[str] = []
    for line in reversed(lines):
        ours = is_agent_line(line)
        if (ours and found) or len(found) == TAIL:
            break
        if not ours:
            found.append(line)
    return tuple(reversed(found))


def newest_step(heartbeat: Heartbeat) -> int:
    """Return the newest step that a worker reported or committed, -1 for none."""
    return max((n for n in (heartbeat.step, heartbeat.committed_step) if n is not None), default=-1)


def _add(checkpoints: list[RunCheckpoint], one: RunCheckpoint) -> None:
    if one not in checkpoints:
        checkpoints.append(one)


def _saved_since(moment: float, folder: Path, format_: Format) -> list[int]:
    """
    Return the steps of complete checkpoints in *folder* that changed after *moment*. Raise OSError.

    A save that is replaced in place shows its step only in its content.
    """
    changed = [u for u in format_.find(folder) if _changed(folder, u.folder, u.files) > moment]
    judged = [(save, format_.judge(folder, save)) for save in changed]
    steps = [u.step if j.step is None else j.step for u, j in judged if j.state is SaveState.COMPLETE]
    return [step for step in steps if step >= 0]


def _changed(folder: Path, below: str, files: "tuple[str, ...] | None") -> float:
    """Return the latest modification time of a save's files in seconds since the epoch. Raise OSError."""
    if files is None:
        inside = [one for one in (folder / below).rglob("*") if not one.is_dir()]
        return max((one.stat().st_mtime for one in inside), default=0.0)
    return max((folder / below / name).stat().st_mtime for name in files)
