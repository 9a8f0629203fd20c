"""Decide what `status` shows; imports little, so that a watched deployment is shown at once."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.this_computer.quick_status import aged_status, published_on
from orchestrator.app.this_computer.state_folders import known_files
from orchestrator.config.find import find
from orchestrator.domain.status import DeploymentStatus
from orchestrator.errors import UsageError


@dataclass(frozen=True)
class StatusFlags:
    """The flags of `status`: *follow* repeats, *everything* is --all, *fresh* asks the cloud."""

    follow: bool = False
    everything: bool = False
    wide: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class StatusHere:
    """Show what a watcher of this computer has published; the cloud need not be asked."""

    status: DeploymentStatus


@dataclass(frozen=True)
class AllDeployments:
    """Show the table of all deployments that this computer knows."""


@dataclass(frozen=True)
class OneDeployment:
    """Ask the watcher elsewhere, or the cloud, about the chosen deployment; again and again with *follow*."""

    follow: bool


Shown = StatusHere | AllDeployments | OneDeployment


def what_to_show(choice: Choice, name: str | None, flags: StatusFlags) -> Shown:
    """Return what the flags mean here, from files of this computer only."""
    if flags.everything:
        return AllDeployments()
    # With --set the deployment differs from the published one.
    asks_cloud = flags.follow or flags.fresh or choice.settings
    found = None if asks_cloud else published_on(choice.cloud, choice.file, name)
    if found is not None:
        return StatusHere(aged_status(found))
    return AllDeployments() if name is None and means_all(choice) else OneDeployment(flags.follow)


def means_all(choice: Choice) -> bool:
    """Return whether to show all deployments: none is named, no file is here, and some are known."""
    if choice.file is not None or choice.settings:
        return False
    try:
        find(Path.cwd())
    except UsageError:
        return bool(known_files(choice.cloud))
    return False
