"""The verdicts on docs/rehearsal.md are what the program prints."""

import os
import re
from pathlib import Path

from orchestrator.advice.rehearsal.run import Fault, InjectedFault, ObservedRun, RunCheckpoint
from orchestrator.advice.rehearsal.same_bytes import FileDigest
from orchestrator.advice.rehearsal.verdict import judge, judge_crash
from orchestrator.cli.views.verdict import retained_lines, verdict_lines
from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Outcome
from tests.cli.cli_kit import ROOT

PAGE = ROOT / "docs" / "rehearsal.md"
BLOCK = re.compile(r"```text\n(.*?)\n```", re.DOTALL)
T = 1_800_000_000.0
CLOUD = Path("/tmp/tpuctl-rehearsal-k2x7/cloud")


def heartbeat(incarnation, step, resumed_from=None, at=0.0, setup=None, **more):
    """Return the last heartbeat of a machine that came *at* seconds."""
    marks = {"boot": T + at, "restore_began": T + at + 0.5, "restored": T + at + 0.9}
    if setup is not None:
        marks |= {"setup_began": T + at + 0.5, "setup_done": T + at + 0.5 + setup}
    start = T + at + 1.0 + (setup or 0.0)
    marks |= {"spawned": start, "first_step": start + 3.2}
    known = {
        "phase": Phase.DONE,
        "updated": start + 30,
        "timings": marks,
        "began_step": (resumed_from or 0) + 1,
    }
    return Heartbeat(incarnation, 0, step=step, resumed_from=resumed_from, **{**known, **more})


def observed_run(heartbeats, saves, faults=(), digests=0, outcome=Outcome.DONE, **more):
    """Return a run; *digests* describes the bytes of its last checkpoint."""
    saved = tuple(RunCheckpoint(step, incarnation) for step, incarnation in saves)
    last = {saved[-1].step: {"w0/model.npz": FileDigest(f"{digests:064d}")}} if saved else {}
    steps = frozenset(b.step for b in heartbeats if b.step is not None)
    known = {"checkpoints": saved, "written": saved, "digests": last, "steps": steps, **more}
    return ObservedRun(outcome, heartbeats=tuple(heartbeats), faults=tuple(faults), **known)


def passed():
    """A job that reports steps and losses, struck twice."""
    reported = {"progress_from": "file", "loss": 2.24066}
    faults = (
        InjectedFault(Fault.NOTICE, 1, T + 20, 104, 75),
        InjectedFault(Fault.NO_NOTICE, 2, T + 80, 203, 200),
    )
    heartbeats = [
        heartbeat(1, 104, setup=9.4, **reported),
        heartbeat(2, 203, 104, at=26, setup=9.1, **reported),
        heartbeat(3, 400, 200, at=87, setup=9.2, **reported),
    ]
    broken = observed_run(heartbeats, [(75, 1), (104, 1), (200, 2), (400, 3)], faults)
    whole = observed_run([heartbeat(1, 400, setup=9.3, **reported)], [(400, 1)])
    return verdict_lines(judge(broken, whole))


def anew():
    """A job that says nothing and saves 30, 40 after a resume at 60."""
    reported = {"progress_from": "commits"}
    written = [(10, 1), (60, 1), (30, 2), (40, 2)]
    broken = observed_run(
        [heartbeat(1, 60, **reported), heartbeat(2, 60, 60, at=26, **reported)],
        written,
        [InjectedFault(Fault.NO_NOTICE, 1, T + 20, 60, 60)],
    )
    return verdict_lines(judge(broken, None))


def silent():
    """A job that saves where nobody looks."""
    heartbeats = [Heartbeat(n, 0, Phase.DONE, T + 30 * n, timings={"boot": T + 26.0 * n}) for n in (1, 2)]
    broken = observed_run(heartbeats, [], [InjectedFault(Fault.NOTICE, 1, T + 20, None, None)])
    return verdict_lines(judge(broken, None))


def crash():
    """A job whose data are not there."""
    log = (
        "loading data",
        "Traceback (most recent call last):",
        '  File "train.py", line 2, in <module>',
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'",
    )
    failed = Heartbeat(1, 0, Phase.FAILED, T, exit_code=1)
    found = judge_crash(observed_run([failed], [], outcome=Outcome.FAILED, log=log))
    return [*verdict_lines(found), *retained_lines(CLOUD, Path("/home/me/my-model"))]


def test_the_verdicts_of_the_page_are_those_of_the_program():
    """TPUCTL_UPDATE_GOLDEN=1 writes them again."""
    wanted = ["\n".join(made()).strip("\n") for made in (passed, anew, silent, crash)]
    text = PAGE.read_text()
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        fresh = iter(wanted)
        text = BLOCK.sub(lambda _: f"```text\n{next(fresh)}\n```", text)
        PAGE.write_text(text)
    assert BLOCK.findall(text) == wanted
