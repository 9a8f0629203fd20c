"""Give a person who works on the machine a shell in the source folder, with the job's variables."""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Mapping

from orchestrator.agent.attempt.job_process import DEFAULTS
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.container import beside
from orchestrator.agent.machine.emulator_guard import for_job, trusted
from orchestrator.agent.machine.job_secrets import JobSecrets
from orchestrator.agent.machine.venv import path_of
from orchestrator.agent.settings import Settings
from orchestrator.contract.job_variables import expanded
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.secrets.redaction import Redactor


def enter_job_folder(settings: Settings, environ: Mapping[str, str]) -> Dict[str, str]:
    """
    Change to the source folder and return the job's variables, secrets included.

    Variables of an attempt are left out, so that a command run by hand does not report steps of the job.
    Raise AgentError while there is no code on the machine.
    """
    layout = settings.layout
    try:
        os.chdir(str(layout.current))
    except OSError as error:
        raise AgentError("the job's code is not on this machine yet; --home opens the home folder") from error
    found = dict(
        {**DEFAULTS, **environ},
        PATH=path_of(layout, environ),
        TPUCTL_ROOT=str(layout.root),
        TPUCTL_CHECKPOINT_DIR=settings.checkpoints.folder,
        TPUCTL_DATA_DIR=str(layout.data),
    )
    return {**for_job(expanded(found)), **_secrets(environ)}


def shell_argv(settings: Settings, words: List[str], environ: Mapping[str, str]) -> List[str]:
    """Return the command to run: a shell, or a shell that runs a line, inside the container of `job.image`."""
    if settings.image:
        return beside(settings, words[0] if words else None, environ)
    return ["bash", "-c", words[0]] if words else ["bash"]


def _secrets(environ: Mapping[str, str]) -> Dict[str, str]:
    own = trusted(environ)
    try:
        return JobSecrets(own, Metadata.from_environ(own), Redactor()).read()
    except AgentError as error:
        # Not fatal: the user may be here to investigate exactly this failure.
        print(f"tpuctl: the job's secrets are not set here: {error}", file=sys.stderr)
        return {}
