"""Choose the kind of machines."""

import shutil

from orchestrator.emulator.machines.host_settings import SYSTEM_PATH, HostSettings
from orchestrator.emulator.machines.machine_hosts import MachineHosts
from orchestrator.emulator.machines.machine_image import GCLOUD
from orchestrator.emulator.machines.namespace import NamespaceHosts, available
from orchestrator.emulator.machines.process import ProcessHosts
from orchestrator.errors import LocalCloudError
from orchestrator.private_folders import private_folder


def make_hosts(kind: str, settings: HostSettings) -> MachineHosts:
    """
    Return the hosts of *kind*: `process`, `namespace`, or `auto` (namespace if possible).

    Raise LocalCloudError for an unknown kind, and for `namespace` if it cannot work here.
    """
    if kind not in {"auto", "process", "namespace"}:
        raise LocalCloudError(
            f"there is no host kind {kind!r}",
            hint="use process, namespace or auto",
            changed="no machine was started",
        )
    private_folder(settings.root)
    reason = available(settings.root) if kind != "process" else "not asked for"
    if reason is None:
        return NamespaceHosts(settings)
    hidden = GCLOUD not in settings.absent or shutil.which("gcloud", path=SYSTEM_PATH) is None
    if kind == "namespace":
        raise LocalCloudError(
            f"machines cannot run in namespaces: {reason}",
            hint="use the host kind `process`",
            changed="no machine was started",
        )
    if not hidden:
        raise LocalCloudError(
            "machines of the kind `process` have this computer's gcloud, which cannot be left out",
            hint="use the host kind `namespace`, or leave out --without gcloud",
            changed="no machine was started",
        )
    return ProcessHosts(settings)
