"""Put the APIs of every local cloud on one router: TPUs, Compute Engine, Cloud Storage."""

from orchestrator.emulator.http.compute import compute_routes
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.router import Router
from orchestrator.emulator.http.storage_access import Accounts, nobody
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.http.tpu import tpu_routes
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.storage.service import Storage


def served(cloud: LocalCloud, storage: Storage, accounts: Accounts = nobody) -> Router:
    """Return a router with all routes; *accounts* returns the account of a request."""
    own = Router()
    tpu_routes(own, cloud)
    compute_routes(own, cloud)
    storage_routes(own, storage, lambda inner: dispatch(own, cloud, inner), accounts)
    return own
