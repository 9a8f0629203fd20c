"""
OAuth scopes of the machines: what their service account may be used for from inside.

A scope limits, it does not grant: the account still needs its role on the bucket. An empty list
would mean every API of the project, so it is never empty.
"""

from orchestrator.domain.spec import Spec

STORAGE = "https://www.googleapis.com/auth/devstorage.read_write"
LOGGING = "https://www.googleapis.com/auth/logging.write"

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"

MACHINE_SCOPES = (STORAGE, LOGGING)
"""
What machines get that neither delete themselves, nor run the loop, nor read secrets.
"""

WRITER_ROLE = "roles/storage.objectAdmin"
"""
What `up` grants the machines' account on the deployment's bucket alone, but for what the controller keeps.
"""

READER_ROLE = "roles/storage.objectViewer"
"""
What it grants them on all objects of that bucket.
"""

BUCKET_ROLE = "roles/storage.legacyBucketReader"
"""
What it grants them on the bucket itself: Orbax and TensorFlow ask for it before they read or write in it.
"""

SELF_DELETE_ROLE = "roles/tpu.admin"
"""
What the machines' account needs so that a TPU can delete itself; Google grants it for a whole project only.
"""

PULLER_ROLE = "roles/artifactregistry.reader"
"""
What the machines' account needs to pull `job.image` from Artifact Registry; the storage scope is enough for it.
"""

LOOP_ROLES = (
    "roles/tpu.admin",
    "roles/compute.instanceAdmin.v1",
    "roles/storage.admin",
    "roles/iam.serviceAccountUser on the TPUs' account",
)
"""
What the VM's account needs for the loop, which calls what a person's tpuctl calls (docs/facts.md 6.2).
"""


def vm_scopes(spec: Spec) -> tuple[str, ...]:
    """Return the VM's scopes: wide only for the loop on the VM, or for a job there that has secrets."""
    # The widest scope there is: only the roles of the account bound it then.
    return (CLOUD_PLATFORM,) if spec.watch.on_vm or _reads_secrets(spec, "vm") else MACHINE_SCOPES


def node_scopes(spec: Spec) -> tuple[str, ...]:
    """Return the scopes of TPU workers: wide only where they delete themselves, or the job has secrets."""
    return (CLOUD_PLATFORM,) if spec.watch.self_delete or _reads_secrets(spec, "tpu") else MACHINE_SCOPES


def narrow(spec: Spec, role: str, scopes: tuple[str, ...]) -> bool:
    """Say whether a machine of *role* ("tpu", "vm") with these *scopes* cannot read the secrets of its job."""
    # What the API does not show is unknown, and no reason to replace a machine.
    return _reads_secrets(spec, role) and bool(scopes) and CLOUD_PLATFORM not in scopes


def _reads_secrets(spec: Spec, role: str) -> bool:
    """Say whether the machine runs a job with secrets: Secret Manager knows no narrower scope."""
    return bool(spec.job.secrets) and spec.job.run_on == role
