"""Checks of who calls Google Cloud, for which project, with which clock."""

from orchestrator.advice.doctor.facts import Facts
from orchestrator.advice.doctor.finding import Answer, Group, bad, check, ok, unknown, warn
from orchestrator.domain.observation import Absent, Present, Unknown
from orchestrator.errors import Retry

LOG_IN = "gcloud auth application-default login   (gcloud auth login alone is not enough)"
DRIFT = 10.0
"""Seconds that two clocks may differ: a third of the shortest time that a decision waits for."""
REFUSED_DRIFT = 300.0
"""Seconds of difference from which Google refuses the tokens that a service account signs."""


def not_seen(sight: Unknown, *, needed: bool = False) -> Answer:
    """
    Return the answer for what could not be seen: wrong when it was refused for good, else not known.

    That the login may not look is wrong only where `up` has to look too: *needed*.
    """
    if sight.denied and not needed:
        return unknown(
            f"your login may not look: {sight.why}", "not needed for `up`; see docs/organisation.md"
        )
    if sight.retry is Retry.PERMANENT:
        return bad(sight.why, sight.hint or "see the message")
    return unknown(sight.why, sight.hint)


@check("credentials", Group.GOOGLE)
def credentials(facts: Facts) -> Answer:
    """Look for application default credentials: of a user, a service account's file, or of a machine at Google."""
    if facts.local.chosen:
        return ok("the local cloud needs none")
    login = facts.google.login
    if isinstance(login, Absent):
        return bad("nobody is logged in", LOG_IN)
    if isinstance(login, Unknown):
        return bad(login.why, login.hint or LOG_IN) if login.retry is Retry.PERMANENT else not_seen(login)
    found = login.value
    return ok(" ".join(part for part in (found.kind, found.account, f"({found.place})") if part))


@check("gcloud-account", Group.GOOGLE)
def gcloud_account(facts: Facts) -> Answer:
    """Look for a gcloud that works as somebody else, or in another project, than tpuctl will."""
    found = facts.google
    if facts.local.chosen:
        return ok("the local cloud needs none")
    account = found.login.value.account if isinstance(found.login, Present) else ""
    if account and found.gcloud_account and account != found.gcloud_account:
        text = f"gcloud works as {found.gcloud_account}, tpuctl as {account}"
        return warn(text, "gcloud auth application-default login   (as the account that you mean)")
    if found.project and found.gcloud_project and found.project != found.gcloud_project:
        text = f"gcloud works in {found.gcloud_project}, tpuctl in {found.project}"
        return warn(text, f"gcloud config set project {found.project}")
    if not found.gcloud_account:
        return ok("gcloud has no account of its own")
    return ok(f"{found.gcloud_account}" + ("" if account else "; whose tpuctl's login is cannot be told"))


@check("project", Group.GOOGLE)
def project(facts: Facts) -> Answer:
    """Look for a project that is not set, or that the caller cannot reach."""
    name, seen = facts.google.project, facts.google.compute
    if not name:
        fix = "set project in tpuctl.yaml, or: export GOOGLE_CLOUD_PROJECT=PROJECT"
        return unknown("not set", fix) if isinstance(facts.google.login, Absent) else bad("not set", fix)
    if isinstance(seen, Absent):
        return bad(f"{name} does not exist, or is hidden from you", "gcloud projects list")
    return ok(name if isinstance(seen, Present) else f"{name} (not reached: see `compute-api`)")


@check("clock", Group.GOOGLE)
def clock(facts: Facts) -> Answer:
    """Look for a clock that differs from the service's: leases and ages go wrong, then logins are refused."""
    ahead = facts.google.ahead
    if isinstance(ahead, Absent):
        return unknown("the service tells no time", "")
    if isinstance(ahead, Unknown):
        return unknown(f"no time to compare with: {ahead.why}", ahead.hint)
    apart = abs(ahead.value)
    side = "ahead" if ahead.value > 0 else "behind"
    fix = "switch on time synchronisation: timedatectl set-ntp true"
    if apart >= REFUSED_DRIFT:
        return bad(f"{apart:.0f} s {side}: logins are refused", fix)
    return warn(f"{apart:.0f} s {side}", fix) if apart >= DRIFT else ok(f"within {max(1, round(apart))} s")
