"""Check who calls Google Cloud, for which project, and what the job may read."""

from orchestrator.advice.doctor.facts import (
    NOT_ASKED,
    Facts,
    Group,
    RawDoctorFinding,
    ok,
    rule,
    rule_of_file,
    stop,
    unknown,
    warn,
)
from orchestrator.domain.observation import Absent, Present, Unknown
from orchestrator.domain.source import secret_refs
from orchestrator.domain.source.data_spec import bucket_sources, grant_line
from orchestrator.domain.source.secret_refs import ACCESS_ROLE, secret_names
from orchestrator.domain.spec import Spec
from orchestrator.errors import Retry

LOG_IN = "gcloud auth application-default login   (gcloud auth login alone is not enough)"


def not_observed(observed: Unknown, *, needed: bool = False) -> RawDoctorFinding:
    """
    Return the answer for an Unknown: wrong if it was refused permanently, else unknown.

    A missing permission to look is wrong only if `up` needs it too: *needed*.
    """
    # Organisations grant single permissions: a login that may not look may still be allowed to create.
    if observed.denied and not needed:
        return unknown(
            f"your login may not read this: {observed.message}",
            "not needed for `up`; see docs/organisation.md",
        )
    # A passing failure is never wrong, because `doctor` is run when the network is bad, too.
    if observed.retry is Retry.PERMANENT:
        return stop(observed.message, observed.hint or "see the message")
    return unknown(observed.message, observed.hint)


@rule("credentials", Group.GOOGLE)
def credentials(facts: Facts) -> RawDoctorFinding:
    """Look for application default credentials: of a user, a service account's file, or of a machine at Google."""
    if facts.local.chosen:
        return ok("the local cloud needs none")
    login = facts.google.login
    if isinstance(login, Absent):
        return stop("there is no login", LOG_IN)
    if isinstance(login, Unknown):
        return (
            stop(login.message, login.hint or LOG_IN)
            if login.retry is Retry.PERMANENT
            else not_observed(login)
        )
    found = login.value
    return ok(" ".join(part for part in (found.kind, found.account, f"({found.path})") if part))


@rule("gcloud-account", Group.GOOGLE)
def gcloud_account(facts: Facts) -> RawDoctorFinding:
    """Look for a gcloud that works as another login, or in another project, than tpuctl will."""
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
    return ok(f"{found.gcloud_account}" + ("" if account else "; whose login tpuctl uses is not known"))


@rule("project", Group.GOOGLE)
def project(facts: Facts) -> RawDoctorFinding:
    """Look for a project that is not set, or that the caller cannot reach."""
    name, observed = facts.google.project, facts.google.compute
    if not name:
        hint = "set project in tpuctl.yaml, or: export GOOGLE_CLOUD_PROJECT=PROJECT"
        # Without a login its project is unknown, which is not the fault of the file.
        return unknown("not set", hint) if isinstance(facts.google.login, Absent) else stop("not set", hint)
    if isinstance(observed, Absent):
        return stop(f"{name} does not exist, or is hidden from you", "gcloud projects list")
    return ok(name if isinstance(observed, Present) else f"{name} (not reached: see `compute-api`)")


@rule_of_file("secrets", Group.GOOGLE)
def secrets(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for a secret of the job that is not stored, or that the machines' account may not read."""
    google = facts.google
    wanted = tuple(secret_names(spec))
    if not wanted:
        return ok("the job has none")
    missing = [name for name in wanted if isinstance(google.secrets.get(name), Absent)]
    if missing:
        return stop(f"not stored: {', '.join(missing)}", f"tpuctl secret set {missing[0]}")
    unseen = [observed for name in wanted if isinstance(observed := google.secrets.get(name), Unknown)]
    if unseen or any(name not in google.secrets for name in wanted):
        first = unseen[0] if unseen else NOT_ASKED
        return unknown(first.message, first.hint)
    if facts.local.chosen:
        return ok(f"{', '.join(wanted)}; the local cloud lets its machines read all of them")
    default = google.machine_account.value if isinstance(google.machine_account, Present) else ""
    account = spec.service_account or default or "ACCOUNT"
    closed = [name for name in wanted if f"serviceAccount:{account}" not in _readers(facts, name)]
    if closed:
        # A role on the whole project counts as well and is not checked here, so this is not wrong yet.
        text = f"{account} has no {ACCESS_ROLE} on {', '.join(closed)}"
        return warn(text, secret_refs.grant_line(closed[0], account, google.project))
    return ok(f"{', '.join(wanted)}, for {account}")


def _readers(facts: Facts, name: str) -> tuple[str, ...]:
    observed = facts.google.secrets.get(name)
    return observed.value if isinstance(observed, Present) else ()


@rule_of_file("data", Group.GOOGLE)
def data(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for folders of buckets in job.data that are not there, hold nothing, or that the caller may not list."""
    google = facts.google
    wanted = bucket_sources(spec)
    if not wanted:
        return ok("the job reads no bucket but its own")
    empty = [
        s for s in wanted if isinstance(google.data.get(s), Absent) or google.data.get(s) == Present(False)
    ]
    if empty:
        return stop(f"nothing is there: {', '.join(empty)}", "correct job.data")
    unseen = [observed for source in wanted if isinstance(observed := google.data.get(source), Unknown)]
    if unseen or any(source not in google.data for source in wanted):
        first = unseen[0] if unseen else NOT_ASKED
        return unknown(first.message, first.hint)
    default = google.machine_account.value if isinstance(google.machine_account, Present) else ""
    account = spec.service_account or default or "ACCOUNT"
    text = f"{', '.join(wanted)}; the machines need the right too"
    return ok(text if facts.local.chosen else f"{text}: {grant_line(wanted[0], account)}")
