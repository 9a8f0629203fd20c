"""A Ray of four hosts that pass for a slice: submits FOLDER/submit.sh, and loses a host on request."""

import os
import subprocess
import sys
import time
from pathlib import Path

from ray.cluster_utils import Cluster

FOLDER, SHARED = Path(sys.argv[1]), Path(sys.argv[2])


def host(cluster, worker):
    return cluster.add_node(
        num_cpus=1, object_store_memory=80_000_000,
        resources={"TPU": 4, **({"TPU-v5litepod-16-head": 1} if worker == 0 else {})},
        labels={
            "ray.io/tpu-slice-name": "s0", "ray.io/tpu-worker-id": str(worker),
            "ray.io/tpu-pod-type": "v5litepod-16", "ray.io/tpu-topology": "4x4",
        },
        env_vars={"TPU_NAME": "s0", "TPU_WORKER_ID": str(worker), "TPU_ACCELERATOR_TYPE": "v5litepod-16"},
    )  # fmt: skip


cluster = Cluster(
    initialize_head=True,
    head_node_args={
        "num_cpus": 1,
        "include_dashboard": True,
        "dashboard_port": 0,
        "object_store_memory": 80_000_000,
    },
)
try:
    hosts = [host(cluster, worker) for worker in range(4)]
    address = (
        f"http://{cluster.webui_url}"
        if hasattr(cluster, "webui_url")
        else f"http://{cluster.head_node.webui_url}"
    )
    job = subprocess.Popen(
        [FOLDER / "submit.sh"], env={**os.environ, "RAY_API_SERVER_ADDRESS": address, "SHARED": str(SHARED)}
    )
    while job.poll() is None:
        if (SHARED / "lose-host-3").exists():
            (SHARED / "lose-host-3").unlink()
            cluster.remove_node(hosts[3], allow_graceful=False)
            host(cluster, 3)
        time.sleep(0.2)  # the test makes the file, in another process
    print("status", job.returncode)
finally:
    cluster.shutdown()
