"""
The machines of a slice as one JAX system, found as JAX finds them on Google's machines.
"""

import os

import jax


def join():
    """
    Connect to the other workers, of all slices, if there are any. Call it before any other use of JAX.

    The metadata server of each machine says who is who: `agent-worker-number` is the process id, the first of
    `worker-network-endpoints` is the coordinator.
    """
    if int(os.environ.get("TPUCTL_WORKERS") or 1) == 1:
        return
    if os.environ.get("JAX_PLATFORMS") != "cpu":
        jax.distributed.initialize()
        return
    # Without a TPU on the bus, JAX does not take the machine for one of Google's and asks nobody. So a
    # rehearsal calls the same look-ups by name. They are private: the pins in requirements.txt keep them.
    from jax._src.clusters.cloud_tpu_cluster import GceTpuCluster

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Of several slices worker 0 of the first one, which no machine of the others finds in its metadata.
    first = os.environ.get("MEGASCALE_COORDINATOR_ADDRESS") or GceTpuCluster._get_worker_list_in_slice()[0]  # noqa: SLF001
    coordinator = f"{first}:{os.environ.get('JAX_COORDINATOR_PORT', '8482')}"
    jax.distributed.initialize(
        coordinator,
        GceTpuCluster.get_process_count(),
        GceTpuCluster.get_process_id(),
        # The machines of a rehearsal share one computer: another slice has the same port on another address.
        coordinator_bind_address=coordinator,
    )
