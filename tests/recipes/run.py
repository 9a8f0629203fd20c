"""A whole run of a recipe on the local cloud: up, SIGKILL of the machine, a notice with SIGTERM, done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.emulator.start_options import load_options
from tests.e2e.process_lab import ProcessLab
from tests.recipes.kit import copy, held, hold, hold_at, losses

RUN_TIMEOUT = 600.0
NOTICE_SECONDS = 120


def checkpoints_of(lab: ProcessLab, node: str) -> Path:
    """Return the folder of checkpoints on the disk of the running machine of *node*."""
    machine = next(one for one in lab.machines() if f"-{node}-" in one["id"] and one["running"])
    return lab.cloud / "machines" / machine["id"] / "opt/tpuctl/checkpoints"


@dataclass(frozen=True)
class RecipeRun:
    """What the three incarnations left: their logs, the last heartbeats of the first two, and all objects."""

    logs: tuple[str, ...]
    heartbeats: tuple[dict, ...]
    objects: tuple[str, ...]

    def losses(self) -> dict[int, str]:
        """Return the loss of each step, which is the same wherever a step was trained twice."""
        return losses("\n".join(self.logs))


def start_cloud(lab: ProcessLab, notice: int) -> None:
    """Start the local cloud with a notice of so many seconds; machines keep the Python they were given."""
    python = load_options(lab.cloud).python
    words = ("--python", python) if python else ()
    lab.tpuctl("local", "start", "--notice", str(notice), *words)


def leave(lab: ProcessLab, incarnation: int, workers: int = 1) -> None:
    """Give notice, and take the machines when all have said their last, so that none is too slow for it."""
    node = f"{lab.name}-tpu-g{incarnation}"
    lab.tpuctl("local", "preempt", node)

    def stopped() -> bool:
        return [heartbeat["phase"] for heartbeat in lab.heartbeats(incarnation)] == ["stopped"] * workers

    lab.wait_for(f"the end of {node}", stopped, RUN_TIMEOUT)
    # The watcher may have deleted the node already.
    lab.tpuctl("local", "preempt", node, "--no-notice", expect=None)


def run_recipe(
    lab: ProcessLab,
    name: str,
    *,
    saved: int,
    kill_at: int | None = None,
    notice_at: int,
    settings: Mapping[str, object],
    early: Callable[[ProcessLab], None] = lambda _lab: None,
    timeout: float = RUN_TIMEOUT,
) -> RecipeRun:
    """
    Run a recipe from `up` to its end.

    Bring a copy of it up, hold the job at step *kill_at*, kill the machine when step *saved* is committed and
    *early* has done its harm, give notice at step *notice_at* of the second machine, where the job is held
    too, and watch until it is done. *timeout* is how long each of the three may take, in seconds.

    Without *kill_at* nothing holds the job: a recipe that spawns its processes has to be slow itself.
    """
    lab.name = name
    copy(name, lab.work)
    gate = lab.folder / "held-at"
    if kill_at is not None:
        hold(lab.work)
        hold_at(gate, kill_at)
        settings = {**{k: held(str(v)) for k, v in settings.items()}, "env.HELD_AT": gate}
    fast = ["--set", "watch.poll=1s", "--set", "vm=none"]
    fast += [word for key, value in settings.items() for word in ("--set", f"job.{key}={value}")]
    start_cloud(lab, NOTICE_SECONDS)
    lab.tpuctl("up", *fast, seconds=RUN_TIMEOUT)
    watch = lab.start("watch", *fast)

    def first_saved() -> bool:
        heartbeats = lab.heartbeats(1)
        return bool(heartbeats) and (heartbeats[0]["committed_step"] or 0) >= saved

    lab.wait_for(f"step {saved} in the bucket", first_saved, timeout)
    early(lab)
    lab.tpuctl("local", "preempt", f"{name}-tpu-g1", "--no-notice")
    if kill_at is not None:
        hold_at(gate, notice_at)
    lab.wait_for(f"step {notice_at} of g2", lambda: lab.at(notice_at, incarnation=2), timeout)
    leave(lab, 2)
    gate.unlink(missing_ok=True)
    done = lab.end(watch, seconds=timeout)
    assert "done:" in done.err
    assert [machine for machine in lab.machines() if machine["running"]] == []
    run = RecipeRun(
        tuple(lab.logs(incarnation) for incarnation in (1, 2, 3)),
        (lab.heartbeats(1)[0], lab.heartbeats(2)[0]),
        tuple(lab.objects("checkpoints/")),
    )
    for log in run.logs[1:]:
        # A machine that was replaced finds the environment of the first one.
        assert "venv: installing" not in log
        assert ": resume from step " in log
    assert run.heartbeats[1]["notice"]
    return run
