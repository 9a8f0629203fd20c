"""
A deployment belongs to the project and the login that brought it up: another one is refused by name.

The wrong active project would make a second deployment of the same name, billed beside the first.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.state_folders import RECORD_KEY
from orchestrator.errors import UsageError
from orchestrator.private_folders import private_folder

if TYPE_CHECKING:
    from orchestrator.app.session import Session

ACCOUNT = "account"
"""Beside the record: the login that brought the deployment up, where it is known."""


def check_place(session: "Session") -> None:
    """Raise UsageError when this computer knows the deployment under another project or another login."""
    if session.choice.account_override:
        return
    name, project = session.spec.name, session.project
    for other in _elsewhere(session):
        raise UsageError(
            f"{name} is up in project {other}; this command would act in project {project}",
            hint=f"add --set project={other}; or --account-override, if you mean a second one in {project}",
            changed="nothing was changed",
            code="TPU-139",
        )
    before, now = _kept_account(session.folder), login_of(session.choice.cloud)
    if before and now and before != now:
        raise UsageError(
            f"{name} was brought up by {before}; you are logged in as {now}",
            hint="log in as before: gcloud auth application-default login; or add --account-override",
            changed="nothing was changed",
            code="TPU-139",
        )


def check_record(session: "Session") -> None:
    """
    Ask before a record is believed that this computer has not written.

    Raise UsageError when nobody is there to answer.
    """
    records, reporter = session.records, session.reporter
    if records.unproven:
        reporter.say(
            f"this computer has no copy of {session.spec.name}'s record and takes the one in the bucket as "
            "it is: it was written under another key, or none",
            style="warning",
        )
    if records.doubt and not session.choice.account_override:
        if not reporter.can_ask():
            key = session.folder.parent.parent / RECORD_KEY
            raise UsageError(
                records.doubt,
                hint=f"if that was you on another computer, add --account-override (and copy {key} there, so "
                "that it is not asked again); if not, a machine may have forged it: run tpuctl down",
                changed="nothing was changed",
                code="TPU-139",
            )
        reporter.say(f"{records.doubt}. If that was not you, a machine may have forged it.")
        reporter.ask("Was it you, on another computer?")
    records.believe()


def own_agent(session: "Session") -> None:
    """Let the record name an agent that this computer has built: what it names runs as root on the next machine."""
    from dataclasses import replace

    from orchestrator.engine.artifacts import agent_file, is_whole
    from orchestrator.scripts import agent_zipapp

    named = session.records.current.job.agent
    if not named or is_whole(agent_file(session.bundles, named), named):
        return
    private_folder(session.bundles)
    fresh = session.bundles / "agent.new"
    digest = agent_zipapp.build(fresh)
    fresh.replace(agent_file(session.bundles, digest))
    if digest != named:
        session.records.update_later(lambda record: replace(record, job=replace(record.job, agent=digest)))


def keep_account(session: "Session") -> None:
    """Remember who brings the deployment up."""
    from orchestrator.engine.atomic_files import write_atomically

    account = login_of(session.choice.cloud)
    if account:
        write_atomically(session.folder / ACCOUNT, account.encode())


def login_of(cloud: str) -> str:
    """Return the e-mail of the login, empty where it is not known; a rehearsal has none."""
    if cloud == "local":
        return ""
    from orchestrator.app.login import account_here

    return account_here()


def _kept_account(folder: Path) -> str:
    try:
        return (folder / ACCOUNT).read_text().strip()
    except OSError:
        return ""


def _elsewhere(session: "Session") -> list[str]:
    """Return the other projects in which a deployment of this name is billed, as far as this computer knows."""
    from orchestrator.app.expired import billed
    from orchestrator.app.state_folders import kept_files
    from orchestrator.engine.record_format import decode
    from orchestrator.errors import TpuctlError

    found = []
    for kept in kept_files(session.choice.cloud):
        project = kept.parent.parent.name
        if kept.parent.name != session.spec.name or project == session.project:
            continue
        try:
            record = decode((kept.parent / "record.json").read_bytes(), session.spec.name)
        except (OSError, TpuctlError):
            continue
        found += [project] if billed(record) else []
    return found
