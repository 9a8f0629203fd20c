"""Put the adapters of one cloud together for one deployment."""

from dataclasses import replace

from orchestrator.domain.names import bucket_name
from orchestrator.domain.ports import Cloud, CloudAccount, Remote
from orchestrator.domain.spec import Spec
from orchestrator.google.account import read_account
from orchestrator.google.buckets import GcsBuckets
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.objects import GcsStore
from orchestrator.google.queued_resources import TpuQueued
from orchestrator.google.vms import ComputeVms


def open_cloud(
    settings: CloudSettings,
    spec: Spec,
    remote: Remote,
    *,
    ask_account: bool = True,
    clients: Clients | None = None,
) -> Cloud:
    """
    Return the cloud for *spec*; the project of *settings* wins over the file's.

    One call is made, for the default service account, and none when the file names the account or
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
        queued=TpuQueued(clients),
        store=GcsStore(clients, bucket),
        remote=remote,
        ssh_port=settings.ssh_port,
        inside=settings.inside,
        relay=settings.relay,
    )
