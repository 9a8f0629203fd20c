"""
Choose the OAuth scopes of the machines: what their service account may be used for from inside.

A scope limits and does not grant: the account still needs its role on the bucket. The list is never empty,
because an empty list means every API of the project.
"""

from orchestrator.domain.spec import Spec

STORAGE = "https://www.googleapis.com/auth/devstorage.read_write"
LOGGING = "https://www.googleapis.com/auth/logging.write"

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"

MACHINE_SCOPES = (STORAGE, LOGGING)
"""Scopes of machines that neither delete themselves, nor run the loop, nor read secrets."""

WRITER_ROLE = "roles/storage.objectAdmin"
"""Role that `up` grants the machines' account on the deployment's bucket, except for the controller's objects."""

READER_ROLE = "roles/storage.objectViewer"
"""Role that `up` grants them on all objects of that bucket."""

BUCKET_ROLE = "roles/storage.legacyBucketReader"
"""Role that `up` grants them on the bucket itself: Orbax and TensorFlow read its metadata first."""

SELF_DELETE_ROLE = "roles/tpu.admin"
"""Role that a TPU's account needs to delete its own TPU; Google grants it for a whole project only."""

PULLER_ROLE = "roles/artifactregistry.reader"
"""Role that the machines' account needs to pull `job.image` from Artifact Registry; the storage scope suffices."""

LOOP_ROLES = (
    "roles/tpu.admin",
    "roles/compute.instanceAdmin.v1",
    "roles/storage.admin",
    "roles/iam.serviceAccountUser on the TPUs' account",
)
"""Roles that the VM's account needs for the loop, whose calls are those of a user's tpuctl (docs/facts.md 6.2)."""


def vm_scopes(spec: Spec) -> tuple[str, ...]:
    """Return the VM's scopes: wide only for the loop on the VM, or for a job there that has secrets."""
    # The widest scope; only the account's roles limit the machine then.
    return (CLOUD_PLATFORM,) if spec.watch.on_vm or _reads_secrets(spec, "vm") else MACHINE_SCOPES


def node_scopes(spec: Spec) -> tuple[str, ...]:
    """Return the scopes of TPU workers: wide only where they delete themselves, or read secrets."""
    return (CLOUD_PLATFORM,) if spec.watch.self_delete or _reads_secrets(spec, "tpu") else MACHINE_SCOPES


def narrow(spec: Spec, role: str, scopes: tuple[str, ...]) -> bool:
    """Return whether a machine of *role* ("tpu", "vm") with these *scopes* cannot read its job's secrets."""
    # Scopes that the API does not show are unknown, and no reason to replace a machine.
    return _reads_secrets(spec, role) and bool(scopes) and CLOUD_PLATFORM not in scopes


def _reads_secrets(spec: Spec, role: str) -> bool:
    """Return whether the machine runs a job with secrets; Secret Manager has no narrower scope."""
    # Which tasks a node of a fleet will have is not known when it is made.
    asked = role == "tpu" and spec.tpu.scope == "cloud-platform"
    return asked or (bool(spec.job.secrets) and spec.job.run_on == role)
