"""What `tpuctl doctor --fix` mends: permissions of our own files, and what a dead local cloud has left."""

from pathlib import Path

from orchestrator.advice.doctor.facts import Facts


def mend(facts: Facts) -> list[str]:
    """Mend what is safe to mend and return what was done, in words."""
    done = []
    here = facts.computer
    if here.state_mode is not None and here.state_mode & 0o022:
        Path(here.state).chmod(0o700)
        done.append(f"chmod 700 {here.state}")
    for key in here.open_keys:
        Path(key).chmod(0o600)
        done.append(f"chmod 600 {key}")
    if facts.local.daemon == "stale":
        from orchestrator.emulator.control import reap

        folder = Path(facts.local.folder)
        reap(folder)
        (folder / "daemon.json").unlink(missing_ok=True)
        done.append("took away what the dead local cloud had left; disks and buckets stay")
    return done
