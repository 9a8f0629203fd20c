"""
Identify the caller: the login that a fleet's jobs belong to.

This keeps users from using each other's share by accident. It is no security boundary: a user who may
write to the bucket can write anything there.
"""

from orchestrator.app.context.choice import Choice
from orchestrator.app.this_computer.login_here import account_here
from orchestrator.errors import UsageError
from orchestrator.planning.fleet.tasks import Submission
from orchestrator.planning.fleet.users import FleetUsers


def caller(choice: Choice, fleet_users: FleetUsers, named: str | None) -> str:
    """
    Return the caller's login, "" for a fleet without users.

    It is that of the credentials; on the local cloud the one *named*. Raise UsageError for a login without a
    share, and for a *named* one that is not the caller's.
    """
    if not fleet_users.users:
        if named:
            raise UsageError(
                "this fleet has no users", hint="leave --user out, or write fleet.users and run: tpuctl fleet up",
                changed="nothing was changed", code="TPU-101",
            )  # fmt: skip
        return ""
    known = "" if choice.cloud == "local" else account_here().lower()
    if named and known and named.lower() != known and not choice.account_override:
        raise UsageError(
            f"you are logged in as {known}, not as {named}",
            hint="leave --user out; or add --account-override to act for another user",
            changed="nothing was changed", code="TPU-139",
        )  # fmt: skip
    login = (named or known).lower()
    if login not in fleet_users.users:
        who = f"{login} is not a user of this fleet" if login else "who asks is not known"
        raise UsageError(
            f"{who}; its users are {', '.join(fleet_users.users)}",
            hint="add --user LOGIN" if not login else "add the login to fleet.users and run: tpuctl fleet up",
            changed="nothing was changed", code="TPU-139",
        )  # fmt: skip
    return login


def check_owner(choice: Choice, fleet_users: FleetUsers, named: str | None, submission: Submission) -> None:
    """Raise UsageError if a job belongs to another user."""
    if not fleet_users.users or choice.account_override:
        return
    login = caller(choice, fleet_users, named)
    if submission.user not in ("", login):
        raise UsageError(
            f"{submission.name} belongs to {submission.user}, and you are {login}",
            hint="add --account-override to act for another user", changed="nothing was changed", code="TPU-139",
        )  # fmt: skip
