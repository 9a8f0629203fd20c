"""
OAuth scopes of the machines: what their service account may be used for from inside.

A scope limits, it does not grant: the account still needs its role on the bucket. An empty list
would mean every API of the project, so it is never empty.
"""

from orchestrator.core.spec import Spec

STORAGE = "https://www.googleapis.com/auth/devstorage.read_write"
LOGGING = "https://www.googleapis.com/auth/logging.write"

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"

MACHINE_SCOPES = (STORAGE, LOGGING)
"""
What TPU workers get that do not delete themselves, and a VM on which no loop runs.
"""

WRITER_ROLE = "roles/storage.objectAdmin"
"""
What `up` grants the machines' account, on the deployment's bucket alone.
"""

SELF_DELETE_ROLE = "roles/tpu.admin"
"""
What the machines' account needs so that a TPU can delete itself; Google grants it for a whole project only.
"""

LOOP_ROLES = (
    "roles/tpu.admin",
    "roles/compute.instanceAdmin.v1",
    "roles/storage.admin",
    "roles/iam.serviceAccountUser on itself",
)
"""
What the VM's account needs for the loop, which calls what a person's tpuctl calls (docs/facts.md 6.2).
"""


def vm_scopes(spec: Spec) -> tuple[str, ...]:
    """
    Return the VM's scopes: wide only where the deployment file asks for the loop on the VM.
    """
    return (CLOUD_PLATFORM,) if spec.watch.on_vm else MACHINE_SCOPES


def node_scopes(spec: Spec) -> tuple[str, ...]:
    """
    Return the scopes of TPU workers: wide only where the deployment file lets them delete themselves.
    """
    return (CLOUD_PLATFORM,) if spec.watch.self_delete else MACHINE_SCOPES
