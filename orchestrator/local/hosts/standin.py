"""
Give machines a `gcloud` where the computer has none.
"""

import shlex
import shutil
import sys
from pathlib import Path

SCRIPT = """\
#!/bin/sh
export PYTHONPATH={package}
exec {python} -m orchestrator.local.hosts.gcloud_standin "$@"
"""


def install_stand_ins(folder: Path) -> None:
    """
    Fill the machine's folder of stand-ins; with a real gcloud on the PATH it stays empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    gcloud = folder / "gcloud"
    if shutil.which("gcloud") is not None:
        gcloud.unlink(missing_ok=True)
        return
    gcloud.write_text(
        SCRIPT.format(python=shlex.quote(sys.executable), package=shlex.quote(package_parent()))
    )
    gcloud.chmod(0o755)


def package_parent() -> str:
    """
    Return the folder from which `orchestrator` is imported: an installation or a checkout.
    """
    import orchestrator

    return str(Path(orchestrator.__path__[0]).resolve().parent)
