"""A run of a program that nobody wrote for tpuctl: the file of `tpuctl init`, two machines taken away, done."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.process_lab import ProcessLab
from tests.recipes.kit import copy
from tests.recipes.run import RUN_TIMEOUT, leave, start_cloud

NOTICE_SECONDS = 120
"""Longer than any program here needs for its end; the machine is taken as soon as all is said."""


@dataclass(frozen=True)
class SurvivedRun:
    """What was observed: the last heartbeats of the three machines, the job's line of `status`, and all objects."""

    heartbeats: tuple[dict[str, Any], ...]
    worker: Mapping[str, Any]
    logs: tuple[str, ...]
    objects: tuple[str, ...]


def fill_in(lab: ProcessLab, name: str, **job: object) -> None:
    """Let `tpuctl init` write the file, and fill in settings of the job as a user does."""
    lab.name = name
    lab.tpuctl("init", "--name", name)
    path = lab.work / "tpuctl.yaml"
    text = path.read_text()
    for key, value in job.items():
        text, count = re.subn(
            rf"(?m)^  (?:# )?{key}: .*$(?:\n {{4}}.*$)*",
            lambda _, k=key, v=value: f"  {k}: {json.dumps(v)}",
            text,
        )
        if not count:
            # A setting that the short file leaves out is written below its section.
            text, count = re.subn(
                r"(?m)^job:$", lambda _, k=key, v=value: f"job:\n  {k}: {json.dumps(v)}", text
            )
        assert count == 1, f"{count} lines {key} in the file of init"
    path.write_text(text)


def committed(lab: ProcessLab, incarnation: int) -> int:
    """Return the newest step of an incarnation that is in the bucket, 0 for none."""
    heartbeats = lab.heartbeats(incarnation)
    return (
        heartbeats[0]["committed_step"] or 0
        if heartbeats and heartbeats[0]["incarnation"] == incarnation
        else 0
    )


def use_example(lab: ProcessLab, name: str) -> None:
    """Copy a recipe out of the repository, as a user does."""
    lab.name = name
    copy(name, lab.work)


def survive(
    lab: ProcessLab,
    *,
    settings: Mapping[str, object] | None = None,
    hurry: bool = False,
    timeout: float = RUN_TIMEOUT,
) -> SurvivedRun:
    """
    Bring up the user's folder; SIGKILL the first machine after a save, give notice to the second.

    With *hurry* the program waits for `lab.hurry` before its end. Nothing else holds it: it has to be slow
    enough to be met. *settings* of the job make a run short.
    """
    fast = ["--set", "watch.poll=1s", "--set", "vm=none"]
    fast += [word for key, value in (settings or {}).items() for word in ("--set", f"job.{key}={value}")]
    start_cloud(lab, NOTICE_SECONDS)
    lab.tpuctl("up", *fast, seconds=timeout)
    watch = lab.start("watch", *fast)

    first = lab.wait_for("a first save in the bucket", lambda: committed(lab, 1), timeout, 0.1)
    worker = lab.wait_for("step and loss in status", lambda: _reported(lab), timeout)
    first = max(first, committed(lab, 1))
    lab.tpuctl("local", "preempt", f"{lab.name}-tpu-g1", "--no-notice")

    lab.wait_for("a save of the second machine", lambda: _saved_more(lab, 2), timeout, 0.1)
    leave(lab, 2)
    if hurry:
        lab.hurry()
    done = lab.end(watch, seconds=timeout)
    assert "done:" in done.err
    heartbeats = tuple(lab.heartbeats(number)[0] for number in (1, 2, 3))
    assert [machine for machine in lab.machines() if machine["running"]] == []

    # What was in the bucket when the machine was killed is gone on from, and what a notice leaves behind too.
    assert heartbeats[1]["resumed_from"] >= first
    assert heartbeats[2]["resumed_from"] == heartbeats[1]["committed_step"]
    for heartbeat in heartbeats[1:]:
        # A program that does not find what was restored begins at step 0, and comes to the same end.
        assert heartbeat["began_step"] is None or heartbeat["began_step"] >= heartbeat["resumed_from"], (
            heartbeat
        )
        assert not heartbeat["committed_counted"], (
            f"each of these programs names the step of its saves: {heartbeats}"
        )
    assert heartbeats[2]["phase"] == "done"
    assert heartbeats[2]["committed_step"] >= heartbeats[1]["committed_step"]
    logs = tuple(lab.logs(number) for number in (1, 2, 3))
    return SurvivedRun(heartbeats, worker, logs, tuple(lab.objects("checkpoints/")))


def _saved_more(lab: ProcessLab, incarnation: int) -> bool:
    """Return whether a machine has committed a step of its own, beyond the one that it began with."""
    heartbeats = lab.heartbeats(incarnation)
    return bool(heartbeats) and (heartbeats[0]["committed_step"] or 0) > (heartbeats[0]["resumed_from"] or 0)


def _reported(lab: ProcessLab) -> Mapping[str, Any] | None:
    workers = lab.status()["workers"]
    known = workers and workers[0]["step"] is not None and workers[0]["loss"] is not None
    return workers[0] if known else None
