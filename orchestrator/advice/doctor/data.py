"""Check of the buckets that the job's data comes from."""

from orchestrator.advice.doctor.facts import Facts
from orchestrator.advice.doctor.file import without_spec
from orchestrator.advice.doctor.finding import Answer, Group, bad, check, ok, unknown
from orchestrator.domain.data_spec import bucket_sources, grant_line
from orchestrator.domain.observation import Absent, Present, Unknown


@check("data", Group.GOOGLE)
def data(facts: Facts) -> Answer:
    """Look for folders of buckets in job.data that are not there, hold nothing, or that the caller may not list."""
    spec, google = facts.file.spec, facts.google
    if spec is None:
        return without_spec(facts)
    wanted = bucket_sources(spec)
    if not wanted:
        return ok("the job reads no bucket but its own")
    empty = [
        s for s in wanted if isinstance(google.data.get(s), Absent) or google.data.get(s) == Present(False)
    ]
    if empty:
        return bad(f"nothing is there: {', '.join(empty)}", "correct job.data")
    unseen = [sight for source in wanted if isinstance(sight := google.data.get(source), Unknown)]
    if unseen or any(source not in google.data for source in wanted):
        return unknown(unseen[0].why if unseen else "nobody asked", unseen[0].hint if unseen else "")
    default = google.machine_account.value if isinstance(google.machine_account, Present) else ""
    account = spec.service_account or default or "ACCOUNT"
    text = f"{', '.join(wanted)}; the machines need the right too"
    return ok(text if facts.local.chosen else f"{text}: {grant_line(wanted[0], account)}")
