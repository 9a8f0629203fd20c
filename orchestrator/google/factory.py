"""Assemble the adapters of one cloud for one deployment."""

from dataclasses import replace

from orchestrator.domain.names import bucket_name, capacity_prefix_of, prefix_of
from orchestrator.domain.ports import Cloud, CloudAccount
from orchestrator.domain.remote import Remote
from orchestrator.domain.spec import Spec
from orchestrator.errors import MissingPermissionError
from orchestrator.google.buckets import GcsBuckets
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.objects import GcsStore
from orchestrator.google.queued_resources import TpuQueuedResources
from orchestrator.google.rest import Rest
from orchestrator.google.vms import ComputeVms

COMPUTE = "https://compute.googleapis.com"


def open_cloud(
    settings: CloudSettings,
    spec: Spec,
    remote: Remote,
    *,
    ask_account: bool = True,
    clients: Clients | None = None,
) -> Cloud:
    """
    Return the cloud for *spec*; the project of *settings* takes precedence over the file's.

    One call is made, for the default service account. None is made if the file names the account, or if
    *ask_account* is False (for commands that create nothing; it saves the import of the compute client).
    *clients* are used instead of new ones.
    """
    clients = clients or Clients(replace(settings, project=settings.project or spec.project or ""))
    if ask_account:
        account = read_account(clients, spec.service_account)
    else:
        account = CloudAccount(clients.project, spec.service_account or "")
    bucket = bucket_name(spec, account.project)
    return Cloud(
        account=account,
        buckets=GcsBuckets(clients, adopted=spec.bucket.adopt),
        vms=ComputeVms(clients),
        nodes=TpuNodes(clients),
        queued=TpuQueuedResources(clients),
        store=GcsStore(clients, bucket, prefix_of(spec)),
        remote=remote,
        capacity_store=GcsStore(clients, bucket, capacity_prefix_of(spec)),
        ssh_port=settings.ssh_port,
        inside=settings.inside,
        relay=settings.relay,
    )


def read_account(clients: Clients, service_account: str | None = None) -> CloudAccount:
    """
    Return project and machine account; raise AuthError with the missing role.

    With *service_account* no call is made.
    """
    email = service_account or _default_service_account(clients)
    return CloudAccount(clients.project, email)


def _default_service_account(clients: Clients) -> str:
    # Over REST: importing the compute client takes as long as a whole `gcloud compute instances list`, and a
    # deployment without a VM needs nothing else of it.
    rest = Rest(clients, COMPUTE)
    try:
        answer = rest.get(f"/compute/v1/projects/{clients.project}", f"read project '{clients.project}'")
        return str(answer.get("defaultServiceAccount", ""))
    except MissingPermissionError as error:
        # Not fatal for the deployment: the file can name the account instead.
        hint = f"set service_account in tpuctl.yaml; then no lookup is needed; or: {error.hint}"
        raise MissingPermissionError(error.message, hint=hint, changed=error.changed) from error
