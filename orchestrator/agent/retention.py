"""Remove old checkpoints from the bucket: manifests first, then files, never the last complete ones."""

from __future__ import annotations

from orchestrator.agent.catalogue import Catalogue
from orchestrator.agent.gang import Gang
from orchestrator.agent.settings import Settings
from orchestrator.agent.storage import Bucket
from orchestrator.agent.threads import say
from orchestrator.contract.completeness import disposable
from orchestrator.contract.manifest import parse_name


def retain(settings: Settings, bucket: Bucket, catalogue: Catalogue, gang: Gang) -> None:
    """
    Keep the newest complete checkpoints and whatever is newer than the oldest kept one. Worker 0 calls this.

    Does nothing for checkpoints that the framework keeps itself, nor when a newer incarnation exists.
    """
    if settings.checkpoints.in_bucket:
        return
    complete = list(catalogue.complete())
    old = disposable(complete, settings.checkpoints.keep)
    if not old:
        return
    doomed = [(step, bucket.list(folder)) for step, folder in catalogue.steps() if step <= old[0]]
    # The look comes after the choice: who sleeps in between must not delete what its replacement has made.
    if gang.newer_incarnation() is not None:
        return
    for step, names in doomed:
        for name in sorted(names, key=lambda one: (parse_name(one) is None, one)):
            bucket.delete(name)
        say(f"removed the checkpoint of step {step}: newer complete ones exist")
