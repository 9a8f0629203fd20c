"""What a self-test runs on machines, what it asks for in vain, and whose names its recording leaves out."""

import re
from typing import TYPE_CHECKING

from orchestrator.advice.selftest.redact import Redactor, placeholders
from orchestrator.domain import names

if TYPE_CHECKING:
    from orchestrator.app.session import Session

NO_SUCH_TYPE, NO_SUCH_ZONE = "v5litepod-3", "us-central1-zz"

_VALUE = re.compile(r"[A-Za-z0-9][\w.-]{0,31}")
SAVES = 20
"""Steps between two saves of the job."""
TRAIN = """\
import os, time
from pathlib import Path

ENDS = {ends}
folder = Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
done = [int(p.name[5:]) for p in folder.glob("step-*") if (p / "COMPLETE").exists()]
step = max(done, default=0)
last = step + {steps} if ENDS else float("inf")
while step < last:
    time.sleep(0.1)  # What a step of training would take: the job must last long enough to be killed.
    step += 1
    if step % {saves} == 0:
        part = folder / f"step-{{step:06d}}"
        part.mkdir(parents=True, exist_ok=True)
        (part / "state").write_text(str(step))
        (part / "COMPLETE").write_text("")
    print(f"step {{step}} loss {{1 / step:.4f}}", flush=True)
"""
PROGRAMS = "cron systemctl apt-get gcloud git curl docker"
PROBE = r"""
say() { printf '%s=%s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1 && echo yes || echo no; }
. /etc/os-release 2>/dev/null
say os "$ID-$VERSION_ID"; say kernel "$(uname -r | cut -d. -f1,2)"
say python "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo none)"
say ensurepip "$(python3 -c 'import ensurepip' 2>/dev/null && echo yes || echo no)"
say pip "$(python3 -m pip --version >/dev/null 2>&1 && echo yes || echo no)"
for one in PROGRAMS; do say "$one" "$(has $one)"; done
say systemd "$([ -d /run/systemd/system ] && echo yes || echo no)"
say dpkg-lock "$(fuser /var/lib/dpkg/lock-frontend >/dev/null 2>&1 && echo held || echo free)"
say files "$(ulimit -n)"; say accelerators "$(ls -d /dev/accel* /dev/vfio/[0-9]* 2>/dev/null | wc -l)"
say disk-gb "$(df -BG --output=size / 2>/dev/null | tail -1 | tr -dc 0-9)"
say cpus "$(nproc 2>/dev/null)"; say sudo "$(sudo -n true 2>/dev/null && echo yes || echo no)"
""".replace("PROGRAMS", PROGRAMS)
"""What a machine is, as words and numbers; names, addresses and keys are not asked for."""

CHIPS = r"""
run() { if sudo -n true 2>/dev/null; then sudo -n "$@"; else "$@"; fi; }
run python3 - <<'END'
import glob, os
def text(name):
    try:
        with open(name) as file:
            return file.read().strip()
    except OSError:
        return ""
vendors = [text(name) for name in glob.glob("/sys/bus/pci/devices/*/vendor")]
devices = glob.glob("/dev/accel[0-9]*") + glob.glob("/dev/vfio/[0-9]*")
opened = 0
for name in devices:
    try:
        os.close(os.open(name, os.O_RDWR))
        opened += 1
    except OSError:
        pass
print("chips=%d" % vendors.count("0x1ae0"))
print("devices=%d" % len(devices))
print("opened=%d" % opened)
libraries = glob.glob("/lib/libtpu*.so") + glob.glob("/usr/lib/libtpu*.so")
print("libtpu=%s" % ("yes" if libraries else "no"))
END
"""
"""
What a TPU machine sees of its chips with the standard library alone: Google's devices on PCI (docs/facts.md
4.1), device files, and how many of them can be opened.
"""


def facts(text: str) -> dict[str, str]:
    """Return what the probe printed; only its own words, with short values."""
    asked = {*re.findall(r"\bsay ([a-z-]+) ", PROBE), *re.findall(r"\"([a-z]+)=%", CHIPS), *PROGRAMS.split()}
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, _, value in pairs if key in asked and _VALUE.fullmatch(value)}


def redactor_for(session: "Session") -> Redactor:
    """Return what knows our own names, which must not pass, and the catalogue's, which may."""
    account, catalog = session.cloud.account.default_service_account, session.catalog
    zones = set(catalog.zones)
    public = {*zones, *(names.region_of(zone) for zone in zones), *catalog.accelerators, *catalog.runtimes}
    public |= {NO_SUCH_TYPE, NO_SUCH_ZONE, "e2-small"}
    mine = (
        ("account", account),
        ("number", account.partition("-")[0]),
        ("project", session.project),
        ("bucket", session.blueprint.bucket),
        ("deployment", session.spec.name),
    )
    return Redactor(placeholders(mine), frozenset(public))
