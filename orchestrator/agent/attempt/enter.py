"""The job's folder and its variables, for a person who works on a machine by hand."""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Mapping

from orchestrator.agent.attempt.job import DEFAULTS
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.container import beside
from orchestrator.agent.machine.secrets import Secrets
from orchestrator.agent.machine.venv import path_of
from orchestrator.agent.rehearsal import for_job, trusted
from orchestrator.agent.settings import Settings
from orchestrator.contract.job_variables import expanded
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.redaction import Redactor


def enter(settings: Settings, environ: Mapping[str, str]) -> Dict[str, str]:
    """
    Go into the folder of the job's code, and return the job's variables, its secrets among them.

    What belongs to one attempt is left out: a program that is run by hand must not report the job's steps.
    Raises AgentError while the code is not here.
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


def program(settings: Settings, words: List[str], environ: Mapping[str, str]) -> List[str]:
    """Return what to become: a shell, or one that runs a line, in the container of a job that has an image."""
    if settings.image:
        return beside(settings, words[0] if words else None, environ)
    return ["bash", "-c", words[0]] if words else ["bash"]


def _secrets(environ: Mapping[str, str]) -> Dict[str, str]:
    own = trusted(environ)
    try:
        return Secrets(own, Metadata.from_environ(own), Redactor()).read()
    except AgentError as error:
        # Who looks into a machine may be looking for just that fault.
        print(f"tpuctl: the job's secrets are not set here: {error}", file=sys.stderr)
        return {}
