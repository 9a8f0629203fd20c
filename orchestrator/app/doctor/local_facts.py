"""What `tpuctl doctor` finds of the local cloud. It starts nothing."""

import importlib.util
import shutil
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

from orchestrator.advice.doctor.facts import Local

PACKAGES = ("uvicorn", "asyncssh", "cronsim", "google_crc32c", "h11", "certifi")
PROGRAMS = ("bash", "flock", "setsid")
SECONDS = 3.0


def look_at_local(cloud: str) -> Local:
    """Return what the local cloud of this computer needs, and whether one runs."""
    from orchestrator.emulator.address import address_on_machine, local_folder, read_address

    folder = local_folder()
    missing = tuple(name for name in PACKAGES if importlib.util.find_spec(name) is None)
    address = address_on_machine() or read_address(folder)
    daemon = "absent"
    if address is not None:
        daemon = "runs" if _answers(address.endpoint) else "deaf"
    elif (folder / "daemon.json").exists():
        daemon = "stale"
    return Local(
        chosen=cloud == "local",
        missing=missing,
        programs=_programs(),
        namespace=_namespace(missing),
        daemon=daemon,
        endpoint=address.endpoint if address else "",
        folder=str(folder),
        taken=() if address else _taken(folder),
    )


def _programs() -> tuple[str, ...]:
    absent = tuple(name for name in PROGRAMS if shutil.which(name) is None)
    return absent if sys.platform == "linux" else ("Linux", *absent)


def _namespace(missing: tuple[str, ...]) -> str | None:
    if missing:
        return "packages are missing"
    from orchestrator.emulator.machines.namespace import available

    return available()


def _answers(endpoint: str) -> bool:
    """Say whether the daemon speaks HTTP; which status it gives does not matter."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"{endpoint}/storage/v1/b", timeout=SECONDS).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _taken(folder: Path) -> tuple[int, ...]:
    """Return the ports of the stopped local cloud that somebody else listens on now."""
    from orchestrator.emulator.start_options import PORTS, load_options

    if not (folder / "options.json").exists():
        return ()
    options = load_options(folder)
    return tuple(port for name in PORTS if _held(port := int(getattr(options, name))))


def _held(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
