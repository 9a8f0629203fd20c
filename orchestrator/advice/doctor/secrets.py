"""Check of the job's secrets."""

from orchestrator.advice.doctor.facts import Facts
from orchestrator.advice.doctor.file import without_spec
from orchestrator.advice.doctor.finding import Answer, Group, bad, check, ok, unknown, warn
from orchestrator.domain.observation import Absent, Present, Unknown
from orchestrator.domain.secret_refs import ACCESS_ROLE, grant_line, secret_names


@check("secrets", Group.GOOGLE)
def secrets(facts: Facts) -> Answer:
    """Look for a secret of the job that is not stored, or that the machines' account may not read."""
    spec, google = facts.file.spec, facts.google
    if spec is None:
        return without_spec(facts)
    wanted = tuple(secret_names(spec))
    if not wanted:
        return ok("the job has none")
    missing = [name for name in wanted if isinstance(google.secrets.get(name), Absent)]
    if missing:
        return bad(f"not stored: {', '.join(missing)}", f"tpuctl secret set {missing[0]}")
    unseen = [sight for name in wanted if isinstance(sight := google.secrets.get(name), Unknown)]
    if unseen or any(name not in google.secrets for name in wanted):
        return unknown(unseen[0].why if unseen else "nobody asked", unseen[0].hint if unseen else "")
    if facts.local.chosen:
        return ok(f"{', '.join(wanted)}; the local cloud lets its machines read all of them")
    default = google.machine_account.value if isinstance(google.machine_account, Present) else ""
    account = spec.service_account or default or "ACCOUNT"
    closed = [name for name in wanted if f"serviceAccount:{account}" not in _readers(facts, name)]
    if closed:
        # A role on the whole project counts as well, and is not looked at here: so this is no fault yet.
        text = f"{account} has no {ACCESS_ROLE} on {', '.join(closed)}"
        return warn(text, grant_line(closed[0], account, google.project))
    return ok(f"{', '.join(wanted)}, for {account}")


def _readers(facts: Facts, name: str) -> tuple[str, ...]:
    sight = facts.google.secrets.get(name)
    return sight.value if isinstance(sight, Present) else ()
