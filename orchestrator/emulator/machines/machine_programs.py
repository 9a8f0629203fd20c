"""Give a machine the programs that its system folders lack, and a `gcloud` if the computer has none."""

import shutil
from pathlib import Path

from orchestrator.emulator.machines.machine_settings import SYSTEM_PATH
from orchestrator.emulator.machines.start_module import program

PROGRAMS = ("bash", "flock", "setsid", "sha256sum", "timeout", "gcloud")
"""Programs that scripts on a machine start; the computer may have them on its own PATH only."""


def install_programs(folder: Path, *, gcloud: bool = True) -> None:
    """
    Fill the machine's folder with programs that its system folders lack; a real gcloud is preferred.

    Without *gcloud* there is none, unless the system folders have one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        found = shutil.which(name)
        (folder / name).unlink(missing_ok=True)
        if name == "gcloud" and not gcloud:
            continue
        if found is not None and shutil.which(name, path=SYSTEM_PATH) is None:
            (folder / name).symlink_to(Path(found).absolute())
    if not gcloud or shutil.which("gcloud") is not None:
        return
    gcloud_program = folder / "gcloud"
    gcloud_program.write_text(program("orchestrator.emulator.machines.gcloud_standin"))
    gcloud_program.chmod(0o755)
