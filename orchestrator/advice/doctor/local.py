"""Checks of what the local cloud needs. Where it is not chosen, nothing of it is worse than a warning."""

from orchestrator.advice.doctor.facts import Facts
from orchestrator.advice.doctor.finding import Answer, Group, Health, check, ok, warn


def _hurts(facts: Facts, text: str, fix: str) -> Answer:
    return Answer(Health.BAD if facts.local.chosen else Health.WARN, text, fix)


@check("local-packages", Group.LOCAL)
def packages(facts: Facts) -> Answer:
    """Look for Python packages that the local cloud needs and that are not installed."""
    missing = facts.local.missing
    if missing:
        return _hurts(facts, f"not installed: {', '.join(missing)}", "pip install 'tpuctl[local]'")
    return ok("all installed")


@check("local-process", Group.LOCAL)
def process(facts: Facts) -> Answer:
    """Look for what machines as plain processes (`--hosts process`, the default) need: Linux, bash, flock."""
    missing = facts.local.programs
    if missing:
        text = f"machines cannot run as processes: {', '.join(missing)} not found"
        return _hurts(facts, text, "install them (Debian: apt-get install bash util-linux)")
    return ok("machines can run as processes")


@check("local-namespace", Group.LOCAL)
def namespace(facts: Facts) -> Answer:
    """Look at what machines in namespaces (`--hosts namespace`) need. Nobody has to have it."""
    why = facts.local.namespace
    return ok(f"not possible here: {why}" if why else "machines can run in namespaces")


@check("local-daemon", Group.LOCAL)
def daemon(facts: Facts) -> Answer:
    """Look for a local cloud that died without a word, or that runs and does not answer."""
    found = facts.local
    if found.daemon == "stale":
        text = f"it died; {found.folder} still names its process"
        return _hurts(facts, text, "tpuctl local start   (or: tpuctl doctor --fix)")
    if found.daemon == "deaf":
        return _hurts(facts, f"it runs at {found.endpoint} and does not answer", "tpuctl local stop")
    return ok(
        f"runs at {found.endpoint}" if found.daemon == "runs" else "does not run; it starts when needed"
    )


@check("local-ports", Group.LOCAL)
def ports(facts: Facts) -> Answer:
    """Look for ports that the stopped local cloud has had and that another program holds now."""
    taken = facts.local.taken
    if taken:
        text = f"held by another program: {', '.join(map(str, taken))}"
        return warn(text, "end that program, or begin anew with: tpuctl local reset")
    return ok("free" if facts.local.daemon != "runs" else "in use by the local cloud itself")
