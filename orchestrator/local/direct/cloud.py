"""
Put the adapters together for one deployment.
"""

from orchestrator.core.names import bucket_name
from orchestrator.core.spec import Spec
from orchestrator.local.direct.buckets import DirectBuckets
from orchestrator.local.direct.door import Door
from orchestrator.local.direct.nodes import DirectNodes
from orchestrator.local.direct.queued import DirectQueued
from orchestrator.local.direct.store import DirectStore
from orchestrator.local.direct.vms import DirectVms
from orchestrator.ports import Cloud, CloudAccount, Remote


def direct_cloud(door: Door, spec: Spec, remote: Remote) -> Cloud:
    """
    Return the cloud for *spec*; machines run as the account of the file, or as the project's own.
    """
    account = spec.service_account or door.local.settings.default_service_account
    return Cloud(
        account=CloudAccount(door.project, account),
        buckets=DirectBuckets(door, adopted=spec.bucket.adopt),
        vms=DirectVms(door),
        nodes=DirectNodes(door),
        queued=DirectQueued(door),
        store=DirectStore(door, bucket_name(spec, door.project)),
        remote=remote,
    )
