"""Define the settings of a local cloud: project, seed, latencies, quotas, stockouts."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Latencies:
    """
    The duration of each step in seconds; *notice* is the time from the notice to the kill.

    For queued resources: *queued_hidden* until a new one is visible, *queued_accept* until it waits,
    *queued_poll* between two checks of capacity, *queued_start* until a chosen one has nodes. *policy* is the
    time until a change of a bucket's IAM policy applies: 2 minutes, at worst 7 or more (docs/facts.md 6.2).
    """

    node_create: float = 0.0
    node_delete: float = 0.0
    node_change: float = 0.0
    vm_create: float = 0.0
    vm_start: float = 0.0
    vm_stop: float = 0.0
    vm_delete: float = 0.0
    vm_change: float = 0.0
    stockout: float = 0.0
    notice: float = 0.0
    queued_hidden: float = 0.0
    queued_accept: float = 0.0
    queued_poll: float = 0.0
    queued_start: float = 0.0
    policy: float = 0.0


PROFILES: Mapping[str, Latencies] = {
    "instant": Latencies(),
    # Chosen: short enough for a demo, long enough that every state is visible.
    "scaled": Latencies(1.5, 0.5, 0.3, 1.0, 1.0, 0.5, 0.5, 0.1, 0.5, 2.0, 0.2, 0.5, 1.0, 0.3, 2.0),
    # Measured: vm_create (median of CPU VMs, 2019), vm_delete (median of GPU VMs), stockout (about 30 s on
    # the operation), notice (30 s); docs/facts.md 4.6. Documented: policy. All others are chosen, as there is
    # no published figure.
    "realistic": Latencies(
        180.0, 60.0, 10.0, 20.0, 20.0, 20.0, 9.0, 2.0, 30.0, 30.0, 2.0, 10.0, 60.0, 10.0, 120.0
    ),
}


@dataclass(frozen=True)
class LocalCloudSettings:
    """
    The settings of one local cloud.

    *quotas* maps (quota id, zone or region) to a limit: `TPU...PerZoneForTPUAPI` ids for TPUs, `CPUS` with a
    region for VMs. Other TPU quotas are those of a new project (docs/facts.md 1.6); without *fresh_project*,
    and for CPUS, they are unlimited. *stockouts* are zones without capacity; `ZONE/spot` means that only spot
    capacity is missing. *disabled_apis* are names such as `tpu.googleapis.com`, *denied_permissions* names
    such as `tpu.nodes.create`. *hidden_zones* answer 403 to the TPU API, as zones that a project may not see.
    *drops_early_deletions* means that deleting a TPU whose creation is settling has no effect. *networks* are
    those of the project: NAME for one of automatic mode, NAME/SUBNETWORK@REGION for a subnetwork of custom
    mode. *constraints* are those of the organisation, such as `compute.vmExternalIpAccess`. *reservations*
    maps (zone, name) to the type of which a reservation holds one, such as `v5litepod-16`. *address_base* is
    the first address of a /16 inside 127.0.0.0/8 that no other local cloud on the computer uses.
    """

    project: str = "local-project"
    project_number: int = 123456789012
    user: str = "you@local.invalid"
    seed: int = 0
    latency: Latencies = PROFILES["instant"]
    quotas: Mapping[tuple[str, str], int] = field(default_factory=dict)
    fresh_project: bool = True
    stockouts: frozenset[str] = frozenset()
    hidden_zones: frozenset[str] = frozenset()
    disabled_apis: frozenset[str] = frozenset()
    denied_permissions: frozenset[str] = frozenset()
    drops_early_deletions: bool = True
    networks: tuple[str, ...] = ("default",)
    constraints: frozenset[str] = frozenset()
    reservations: Mapping[tuple[str, str], str] = field(default_factory=dict)
    address_base: str = "127.77.0.0"

    def out_of_stock(self, zone: str, *, spot: bool) -> bool:
        """Return whether a zone has no capacity now, for spot or for on demand."""
        return zone in self.stockouts or (spot and f"{zone}/spot" in self.stockouts)

    @property
    def default_service_account(self) -> str:
        """Return the account of machines for which the caller names none."""
        return f"{self.project_number}-compute@developer.gserviceaccount.com"
