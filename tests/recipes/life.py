"""
A whole life of a recipe on the local cloud: up, SIGKILL of the machine, a notice with SIGTERM, done.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.stage import Stage
from tests.recipes.kit import copy, losses

RUN_SECONDS = 600.0
NOTICE_SECONDS = 8


def checkpoints_of(stage: Stage, node: str) -> Path:
    """Return the folder of checkpoints on the disk of the running machine of *node*."""
    machine = next(one for one in stage.machines() if f"-{node}-" in one["id"] and one["running"])
    return stage.cloud / "machines" / machine["id"] / "opt/tpuctl/checkpoints"


@dataclass(frozen=True)
class Life:
    """What the three incarnations left: their logs, the last heartbeats of the first two, and all objects."""

    logs: tuple[str, ...]
    beats: tuple[dict, ...]
    objects: tuple[str, ...]

    def losses(self) -> dict[int, str]:
        """Return the loss of each step, which is the same wherever a step was trained twice."""
        return losses("\n".join(self.logs))


def live(
    stage: Stage,
    name: str,
    *,
    kill_at: int,
    notice_at: int,
    settings: Mapping[str, object],
    early: Callable[[Stage], None] = lambda _stage: None,
    patience: float = RUN_SECONDS,
) -> Life:
    """
    Play a recipe's whole life.

    Bring a copy of it up, kill the machine when step *kill_at* is committed and *early* has done its harm,
    give notice at step *notice_at* of the second machine, and watch until it is done. *patience* is how long
    each of the three may take, in seconds.
    """
    stage.name = name
    copy(name, stage.work)
    fast = ["--set", "watch.poll=1s", "--set", "vm=none"]
    fast += [word for key, value in settings.items() for word in ("--set", f"job.{key}={value}")]
    # The Trainer alone waits 3 s before it saves; the real notice is 30 s.
    stage.tpuctl("local", "start", "--notice", str(NOTICE_SECONDS))
    stage.tpuctl("up", *fast, seconds=RUN_SECONDS)
    watch = stage.start("watch", *fast)

    def first_saved() -> bool:
        beats = stage.beats(1)
        return bool(beats) and (beats[0]["committed_step"] or 0) >= kill_at

    stage.wait_for(f"step {kill_at} in the bucket", first_saved, patience)
    early(stage)
    stage.tpuctl("local", "preempt", f"{name}-tpu-g1", "--no-notice")
    stage.wait_for(f"step {notice_at} of g2", lambda: stage.at(notice_at, incarnation=2), patience)
    stage.tpuctl("local", "preempt", f"{name}-tpu-g2")
    done = stage.end(watch, seconds=patience)
    assert "done:" in done.err
    assert [machine for machine in stage.machines() if machine["running"]] == []
    life = Life(
        tuple(stage.logs(incarnation) for incarnation in (1, 2, 3)),
        (stage.beats(1)[0], stage.beats(2)[0]),
        tuple(stage.objects("checkpoints/")),
    )
    for log in life.logs[1:]:
        # A machine that was replaced finds the environment of the first one.
        assert "venv: installing" not in log
        assert ": resume from step " in log
    assert life.beats[1]["notice"]
    return life
