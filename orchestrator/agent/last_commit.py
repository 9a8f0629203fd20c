"""The last commit of a job that is over: patient when the machine stays, bounded when it goes."""

from __future__ import annotations

import threading

from orchestrator.agent.parts import Parts
from orchestrator.agent.threads import say
from orchestrator.contract.machine_errors import AgentError, FencedError, FinalError

LAST_COMMIT = 25.0
LAST_TRIES = 4


def last_commit(parts: Parts, at_end: bool = False) -> str:
    """
    Commit everything that the job has finished, waiting for the bucket as long as it takes.

    With *at_end* the job itself is finished, so that outputs are whole now. Return what could not be
    committed, empty when all is. Raises Interrupted.
    """
    trouble = ""
    for _try in range(LAST_TRIES):
        try:
            while parts.patiently("last commit", parts.committer.commit):
                continue
            if at_end and parts.format.at_end:
                parts.patiently("commit the outputs", parts.committer.commit_outputs)
        except FencedError:
            return ""
        except FinalError as error:
            # The job is over, so a folder that changed a moment ago is at rest now.
            trouble = str(error)
            say(f"last commit: {trouble}")
        else:
            return ""
    return trouble


def commit_in_time(parts: Parts) -> None:
    """Try the last commit for as long as a machine that is being taken away may have."""

    def commit() -> None:
        try:
            while parts.committer.commit():
                continue
        except (AgentError, OSError) as error:
            parts.status.trouble("last commit", str(error))

    thread = threading.Thread(target=commit, name="last-commit", daemon=True)
    thread.start()
    thread.join(LAST_COMMIT)
    if thread.is_alive():
        parts.status.trouble("last commit", f"not finished within {LAST_COMMIT:g} s")
