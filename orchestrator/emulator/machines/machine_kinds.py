"""Choose the kind of machines."""

import shutil

from orchestrator.emulator.machines.local_machines import LocalMachines
from orchestrator.emulator.machines.machine_image import GCLOUD
from orchestrator.emulator.machines.machine_settings import SYSTEM_PATH, MachineSettings
from orchestrator.emulator.machines.namespace import NamespaceMachines, available
from orchestrator.emulator.machines.process import ProcessMachines
from orchestrator.errors import LocalCloudError
from orchestrator.private_folders import private_folder


def make_machines(kind: str, settings: MachineSettings) -> LocalMachines:
    """
    Return the machines of *kind*: `process`, `namespace`, or `auto` (namespace if possible).

    Raise LocalCloudError for an unknown kind, and for `namespace` if it cannot work here.
    """
    if kind not in {"auto", "process", "namespace"}:
        raise LocalCloudError(
            f"there is no kind of machines {kind!r}",
            hint="use process, namespace or auto",
            changed="no machine was started",
        )
    private_folder(settings.root)
    reason = available(settings.root) if kind != "process" else "not asked for"
    if reason is None:
        return NamespaceMachines(settings)
    hidden = GCLOUD not in settings.absent or shutil.which("gcloud", path=SYSTEM_PATH) is None
    if kind == "namespace":
        raise LocalCloudError(
            f"machines cannot run in namespaces: {reason}",
            hint="use the kind `process`",
            changed="no machine was started",
        )
    if not hidden:
        raise LocalCloudError(
            "machines of the kind `process` have this computer's gcloud, which cannot be left out",
            hint="use the kind `namespace`, or leave out --without gcloud",
            changed="no machine was started",
        )
    return ProcessMachines(settings)
