"""Build the workers of a slice and the metadata of each."""

from orchestrator.emulator.state.cloud_settings import LocalCloudSettings
from orchestrator.emulator.state.values.machine import Machine
from orchestrator.emulator.state.values.node import Node

PORT = 8470
_CHIP_BOUNDS = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
_MACHINE_TYPE = "tpu-host"


def build_workers(
    settings: LocalCloudSettings, node: Node, addresses: list[str], numeric_ids: list[int]
) -> tuple[Machine, ...]:
    """Return one machine for each host of the node's slice."""
    hosts = range(node.accelerator.hosts)
    names = [f"t1v-n-{node.uid[:8]}-w-{index}" for index in hosts]
    triples = zip(names, numeric_ids, addresses, strict=True)
    endpoints = ",".join(f"{name}:{uid}:{address}" for name, uid, address in triples)
    return tuple(
        Machine(
            id=f"tpu-{node.zone}-{node.name}-{node.numeric_id}-w{index}",
            numeric_id=numeric_ids[index],
            name=names[index],
            kind="tpu",
            zone=node.zone,
            project=settings.project,
            project_number=settings.project_number,
            address=addresses[index],
            machine_type=_MACHINE_TYPE,
            service_account=node.service_account,
            scopes=node.scopes,
            preemptible=node.spot,
            attributes=attributes(settings, node, index, numeric_ids[index], endpoints),
            tags=tuple(node.body.get("tags", ())),
            private=not node.body.get("networkConfig", {}).get("enableExternalIps"),
        )
        for index in hosts
    )


def attributes(
    settings: LocalCloudSettings, node: Node, index: int, numeric_id: int, endpoints: str
) -> dict[str, str]:
    """Return user metadata plus the platform's attributes (docs/facts.md 5.2 and 1.5)."""
    queued = {"queued-resource-name": node.queued} if node.queued else {}
    return {
        # gcloud reads the host keys of every slice there, whether or not its creator requested them.
        "enable-guest-attributes": "TRUE",
        **node.body.get("metadata", {}),
        **queued,
        "accelerator-type": node.accelerator.type,
        "agent-worker-number": str(index),
        "instance-id": str(numeric_id),
        "worker-network-endpoints": endpoints,
        "tpu-env": tpu_env(settings, node, index),
    }


def tpu_env(settings: LocalCloudSettings, node: Node, index: int) -> str:
    """
    Return the lines `KEY: 'value'` of the tpu-env attribute.

    The keys are those of a v4-256 sample. TPU_TOPOLOGY_WRAP, WRAP, ALT, ENABLE_ICI_RESILIENCY
    and TPU_RUNTIME_METRICS_PORTS carry plausible values, not measured ones; SOURCE and the
    image addresses of the real platform are left out.
    """
    kind = node.accelerator
    chips = _CHIP_BOUNDS[kind.chips_per_host]
    hosts = _host_bounds(kind.topology, chips)
    lines = {
        "ACCELERATOR_TYPE": kind.type,
        "ALT": "false",
        "CHIPS_PER_HOST_BOUNDS": _csv(chips),
        "CONSUMER_PROJECT_ID": settings.project,
        "CONSUMER_PROJECT_NUMBER": str(settings.project_number),
        "ENABLE_ICI_RESILIENCY": "false",
        "HOST_BOUNDS": _csv(hosts),
        "NODE_ID": node.name,
        "PREEMPTIBLE": str(node.spot).lower(),
        "RUNTIME_VERSION": node.body["runtimeVersion"],
        "TOPOLOGY": kind.topology,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": _csv(chips),
        "TPU_PROCESS_BOUNDS": _csv(hosts),
        "TPU_RUNTIME_METRICS_PORTS": ",".join(str(8431 + i) for i in range(kind.chips_per_host)),
        "TPU_TOPOLOGY_WRAP": "false,false,false",
        "TYPE": kind.config_type,
        "UID": node.uid,
        "WORKER_ID": str(index),
        "WRAP": "false,false,false",
        "ZONE": node.zone,
    }
    return "\n".join(f"{key}: '{value}'" for key, value in lines.items()) + "\n"


def _host_bounds(topology: str, chips: tuple[int, int, int]) -> tuple[int, ...]:
    sides = [int(side) for side in topology.split("x")]
    sides += [1] * (3 - len(sides))
    return tuple(max(1, side // chip) for side, chip in zip(sides, chips, strict=True))


def _csv(numbers: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in numbers)
