"""Check this computer, and what the local cloud needs on it."""

from orchestrator.advice.doctor.facts import Facts, Group, RawDoctorFinding, ok, rule, stop, unknown, warn
from orchestrator.domain.level import Level
from orchestrator.domain.observation import Absent, Unknown

OLDEST_PYTHON = (3, 10)
ROOM = 2 << 30
"""Free bytes that the state folder should have, for bundles, the record and a log of the local cloud."""
DRIFT = 10.0
"""Seconds that two clocks may differ: a third of the shortest time that a decision waits for."""
REFUSED_DRIFT = 300.0
"""Difference in seconds from which on Google refuses the tokens that a service account signs."""


@rule("python", Group.COMPUTER)
def python(facts: Facts) -> RawDoctorFinding:
    """Look for a Python older than 3.10, which tpuctl does not run on."""
    version = facts.computer.python
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PYTHON:
        return stop(f"{version}; tpuctl needs 3.10", "install a newer Python and tpuctl into it")
    return ok(f"{version}, tpuctl {facts.computer.tpuctl}")


@rule("libraries", Group.COMPUTER)
def libraries(facts: Facts) -> RawDoctorFinding:
    """Look for Google's client libraries that are not installed."""
    known = facts.computer.libraries
    missing = [name for name, version in known.items() if version is None]
    if missing:
        return stop(f"not installed: {', '.join(missing)}", "pip install --force-reinstall tpuctl")
    return ok(", ".join(f"{name.removeprefix('google-cloud-')} {version}" for name, version in known.items()))


@rule("ssh", Group.COMPUTER)
def ssh(facts: Facts) -> RawDoctorFinding:
    """Look for the program ssh, which `tpuctl ssh` needs for a shell; up, exec and tunnel do without."""
    version = facts.computer.programs.get("ssh")
    return ok(version) if version else warn("not found: `tpuctl ssh` cannot open a shell", "install OpenSSH")


@rule("git", Group.COMPUTER)
def git(facts: Facts) -> RawDoctorFinding:
    """Look for the program git. tpuctl does not need it: .gitignore is read without it."""
    return ok(facts.computer.programs.get("git") or "not found, and not needed")


@rule("gcloud", Group.COMPUTER)
def gcloud(facts: Facts) -> RawDoctorFinding:
    """Look for the program gcloud, which logs in to Google Cloud. tpuctl itself does not call it here."""
    version = facts.computer.programs.get("gcloud")
    if version:
        return ok(version)
    if facts.local.chosen:
        return ok("not found; machines of the local cloud get a stand-in")
    return warn("not found: logging in needs it once", "see https://cloud.google.com/sdk/docs/install")


@rule("locale", Group.COMPUTER)
def locale(facts: Facts) -> RawDoctorFinding:
    """Look for a terminal that does not take UTF-8: logs may then show other signs, and bars are drawn in ASCII."""
    encoding = facts.computer.encoding
    if encoding.lower().replace("-", "") in {"utf8", "utf8sig"}:
        return ok(encoding)
    # Nothing fails because of it, so it is no warning.
    return ok(f"{encoding or 'not known'}: bars are drawn in ASCII (export LC_ALL=C.UTF-8 changes it)")


@rule("colour", Group.COMPUTER)
def colour(facts: Facts) -> RawDoctorFinding:
    """Look at NO_COLOR, FORCE_COLOR and TERM, which rule colour; nothing is said by colour alone."""
    colours = facts.computer.colours
    if "NO_COLOR" in colours and "FORCE_COLOR" in colours:
        return warn("NO_COLOR and FORCE_COLOR are both set", "unset one of them")
    said = ", ".join(f"{name}={value}" for name, value in colours.items())
    return ok(", ".join(part for part in (f"TERM={facts.computer.term or 'not set'}", said) if part))


@rule("variables", Group.COMPUTER)
def variables(facts: Facts) -> RawDoctorFinding:
    """Look for variables that send Google's own tools elsewhere. tpuctl ignores them, your scripts may not."""
    found = facts.computer.diverting
    if not found or facts.local.chosen:
        return ok("none that sends Google's clients elsewhere" if not found else ", ".join(found))
    return warn(f"{', '.join(found)}: Google's tools go elsewhere", f"unset {' '.join(found)}")


@rule("state-folder", Group.COMPUTER)
def state_folder(facts: Facts) -> RawDoctorFinding:
    """Look for a state folder that cannot be written, or that others may read: keys and records lie there."""
    here = facts.computer
    if here.state_message:
        return stop(
            f"{here.state}: {here.state_message}", "fix it, or set TPUCTL_STATE_DIR to another folder"
        )
    if here.state_mode is None:
        return ok(f"{here.state} (made by the first `up`)")
    # Writable for others is wrong, readable is not: keys have their own rule and their own mode.
    if here.state_mode & 0o022:
        text = f"{here.state}: others may write to it (mode {here.state_mode:04o})"
        return stop(text, f"chmod go-w {here.state}   (or: tpuctl doctor --fix)")
    return ok(f"{here.state}, mode {here.state_mode:04o}")


@rule("disk", Group.COMPUTER)
def disk(facts: Facts) -> RawDoctorFinding:
    """Look for too little room for bundles: what is pushed is packed into the state folder first."""
    free, wanted = facts.computer.free_bytes, facts.file.source_bytes or 0
    if free is None:
        return unknown("the free space cannot be read", "see: df -h")
    text = f"{free / 2**30:.1f} GiB free"
    # What cannot fit is wrong; little room is only a warning, because the growth of the folder is unknown.
    if free < wanted:
        hint = "free some space, or set TPUCTL_STATE_DIR to a larger disk"
        return stop(f"{text}; the code alone is {wanted / 2**30:.1f} GiB", hint)
    return ok(text) if free >= ROOM + wanted else warn(text, "free some space: less than 2 GiB is left")


@rule("ssh-keys", Group.COMPUTER)
def ssh_keys(facts: Facts) -> RawDoctorFinding:
    """Look for private SSH keys of deployments that others may read; ssh refuses these."""
    here = facts.computer
    if here.open_keys:
        names = " ".join(here.open_keys)
        text = f"others may read {len(here.open_keys)} of {here.keys}"
        return stop(text, f"chmod 600 {names}   (or: tpuctl doctor --fix)")
    return ok(f"{here.keys}, for their owner only" if here.keys else "none yet; `up` makes one")


@rule("deployments", Group.COMPUTER)
def deployments(facts: Facts) -> RawDoctorFinding:
    """Look for deployments of this computer whose ttl is over but which are billed, or that cannot be read."""
    known = facts.computer.deployments
    overdue = [one.name for one in known if one.overdue]
    damaged = [one.name for one in known if not one.readable]
    # Overdue before damaged, because it costs money now.
    if overdue:
        text = f"past their time to live, and billed: {', '.join(overdue)}"
        return stop(text, "run `tpuctl status` in any deployment: it ends them; or `tpuctl down` there")
    if damaged:
        text = f"cannot be read, so this computer does not end them: {', '.join(damaged)}"
        return warn(text, "run `tpuctl down` with the file of each")
    return ok(", ".join(one.name for one in known) or "none on this computer")


def _hurts(facts: Facts, text: str, hint: str) -> RawDoctorFinding:
    # On Google Cloud no local cloud is needed, so the same lack is only a warning there.
    return RawDoctorFinding(Level.STOP if facts.local.chosen else Level.WARN, text, hint)


@rule("clock", Group.GOOGLE)
def clock(facts: Facts) -> RawDoctorFinding:
    """Look for a clock that differs from the service's: leases and ages go wrong, then logins are refused."""
    ahead = facts.google.ahead
    if isinstance(ahead, Absent):
        return unknown("the service tells no time", "")
    if facts.google.unasked:
        return unknown(facts.google.unasked.message, facts.google.unasked.hint)
    if isinstance(ahead, Unknown):
        return unknown(f"no time to compare with: {ahead.message}", ahead.hint)
    apart = abs(ahead.value)
    side = "ahead" if ahead.value > 0 else "behind"
    hint = "switch on time synchronisation: timedatectl set-ntp true"
    if apart >= REFUSED_DRIFT:
        return stop(f"{apart:.0f} s {side}: logins are refused", hint)
    return warn(f"{apart:.0f} s {side}", hint) if apart >= DRIFT else ok(f"within {max(1, round(apart))} s")


@rule("local-packages", Group.LOCAL)
def packages(facts: Facts) -> RawDoctorFinding:
    """Look for Python packages that the local cloud needs and that are not installed."""
    missing = facts.local.missing
    if missing:
        return _hurts(facts, f"not installed: {', '.join(missing)}", "pip install 'tpuctl[local]'")
    return ok("all installed")


@rule("local-process", Group.LOCAL)
def process(facts: Facts) -> RawDoctorFinding:
    """Look for what machines as plain processes (`--machines process`, the default) need: Linux, bash, flock."""
    missing = facts.local.programs
    if missing:
        text = f"machines cannot run as processes: {', '.join(missing)} not found"
        return _hurts(facts, text, "install them (Debian: apt-get install bash util-linux)")
    return ok("machines can run as processes")


@rule("local-namespace", Group.LOCAL)
def namespace(facts: Facts) -> RawDoctorFinding:
    """Look at what machines in namespaces (`--machines namespace`) need. No computer has to have it."""
    message = facts.local.namespace
    return ok(f"not possible here: {message}" if message else "machines can run in namespaces")


@rule("local-daemon", Group.LOCAL)
def daemon(facts: Facts) -> RawDoctorFinding:
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


@rule("local-ports", Group.LOCAL)
def ports(facts: Facts) -> RawDoctorFinding:
    """Look for ports that the stopped local cloud has had and that another program holds now."""
    taken = facts.local.taken
    if taken:
        text = f"held by another program: {', '.join(map(str, taken))}"
        return warn(text, "end that program, or start over with: tpuctl local reset")
    return ok("free" if facts.local.daemon != "runs" else "in use by the local cloud itself")
