"""What the job finds in its environment, beside what job.env has."""

from __future__ import annotations

from typing import Dict

from orchestrator.agent.gang import Attempt
from orchestrator.agent.parts import Parts
from orchestrator.agent.venv import path_of
from orchestrator.contract.job_variables import expanded

DEFAULTS = {"PYTHONUNBUFFERED": "1"}
"""
What a job gets unless the deployment file says otherwise. Python holds back what it writes to a pipe: the
last lines of a job that is killed would be lost, and a job that prints would look stalled.
"""


def job_environ(parts: Parts, attempt: Attempt, resume: str) -> Dict[str, str]:
    """
    Return the environment of one start; *resume* is the restored checkpoint, empty for none.

    `job_variables` describes what a job may rely on.
    """
    settings = parts.settings
    step, every = attempt.resume_step, parts.pace.seconds()
    environ = dict(
        {**DEFAULTS, **parts.environ},
        PATH=path_of(settings.layout, parts.environ),
        TPUCTL_ROOT=str(settings.layout.root),
        TPUCTL_JOB=f"{settings.deployment}/{settings.incarnation}/{attempt.attempt}",
        TPUCTL_ATTEMPT=str(attempt.attempt),
        TPUCTL_RESUME_STEP="" if step is None else str(step),
        TPUCTL_RESUME=resume,
        TPUCTL_PROGRESS_FILE=str(settings.layout.progress),
        TPUCTL_CHECKPOINT_DIR=settings.checkpoints.folder,
        TPUCTL_DATA_DIR=str(settings.layout.data),
        TPUCTL_SAVE_EVERY_SECONDS="" if every is None else f"{every:.0f}",
        TPUCTL_SAVE_EVERY_FILE="" if every is None else str(parts.pace.file),
    )
    return expanded(environ)
