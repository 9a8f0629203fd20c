"""Put the adapters together for one deployment."""

from orchestrator.domain.names import bucket_name
from orchestrator.domain.ports import Cloud, CloudAccount, Remote
from orchestrator.domain.spec import Spec
from tests.direct.buckets import DirectBuckets
from tests.direct.door import Door
from tests.direct.nodes import DirectNodes
from tests.direct.queued import DirectQueued
from tests.direct.store import DirectStore
from tests.direct.vms import DirectVms


def direct_cloud(door: Door, spec: Spec, remote: Remote) -> Cloud:
    """Return the cloud for *spec*; machines run as the account of the file, or as the project's own."""
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
