"""
Refuse to act on a deployment from another project or login than the one that brought it up.

With the wrong active project, `up` would create a second deployment of the same name, billed beside the
first.
"""

from dataclasses import replace
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.this_computer.known import billed_elsewhere
from orchestrator.app.this_computer.login_here import account_here
from orchestrator.app.this_computer.state_folders import RECORD_KEY
from orchestrator.engine.reconcile.artifacts import agent_file, is_whole
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.errors import UsageError
from orchestrator.private_folders import private_folder
from orchestrator.scripts import agent_zipapp

ACCOUNT = "account"
"""File beside the record with the login that brought the deployment up, if known."""


def check_project_and_login(choice: Choice, name: str, project: str, folder: Path) -> None:
    """Raise UsageError if this computer knows the deployment under another project or login."""
    if choice.account_override:
        return
    for other in billed_elsewhere(choice.cloud, name, project):
        raise UsageError(
            f"{name} is up in project {other}; this command would act in project {project}",
            hint=f"add --set project={other}; or --account-override, if you mean a second one in {project}",
            changed="nothing was changed",
            code="TPU-139",
        )
    before, now = _account_before(folder), login_of(choice.cloud)
    # Only known logins can differ; an unknown one is accepted.
    if before and now and before != now:
        raise UsageError(
            f"{name} was brought up by {before}; you are logged in as {now}",
            hint="log in as before: gcloud auth application-default login; or add --account-override",
            changed="nothing was changed",
            code="TPU-139",
        )


def check_record(choice: Choice, records: RecordStore, reporter: Reporter, name: str, folder: Path) -> None:
    """Ask before trusting a record that this computer has not written. Raise UsageError if it cannot ask."""
    # A new computer has no copy to compare with; refusing would lock out the owner, so this is only reported.
    if records.unproven:
        reporter.say(
            f"this computer has no copy of {name}'s record and takes the one in the bucket as "
            "it is: it was written under another key, or none",
            style="warning",
        )
    if records.doubt and not choice.account_override:
        if not reporter.can_ask():
            key = folder.parent.parent / RECORD_KEY
            raise UsageError(
                records.doubt,
                hint=f"if that was you on another computer, add --account-override (and copy {key} there, so "
                "that it is not asked again); if not, a machine may have forged it: run `tpuctl down`",
                changed="nothing was changed",
                code="TPU-139",
            )
        reporter.say(f"{records.doubt}. If that was not you, a machine may have forged it.")
        reporter.ask("Was it you, on another computer?")
    # The next write signs it with this computer's key, so the question appears once.
    records.believe()


def own_agent(records: RecordStore, bundles: Path) -> None:
    """Replace the recorded agent unless this computer has built it: it runs as root on the next machine."""
    named = records.current.job.agent
    if not named or is_whole(agent_file(bundles, named), named):
        return
    # A machine of the job may write to the bucket, and so the record; only bytes built here are trusted.
    private_folder(bundles)
    fresh = bundles / "agent.new"
    digest = agent_zipapp.build(fresh)
    fresh.replace(agent_file(bundles, digest))
    if digest != named:
        records.update_later(lambda record: replace(record, job=replace(record.job, agent=digest)))


def store_account(folder: Path, cloud: str) -> None:
    """Store the login that brings the deployment up."""
    account = login_of(cloud)
    if account:
        write_private(folder / ACCOUNT, account.encode())


def login_of(cloud: str) -> str:
    """Return the login's e-mail, "" if unknown; a rehearsal has none."""
    return "" if cloud == "local" else account_here()


def _account_before(folder: Path) -> str:
    try:
        return (folder / ACCOUNT).read_text().strip()
    except OSError:
        return ""
