"""Describe the bucket, VM and node to create, from the spec and the record."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.bucket_grants import vm_account
from orchestrator.domain.machines.data_disks import data_disks
from orchestrator.domain.machines.queued_resource import MAX_RUN
from orchestrator.domain.machines.scopes import node_scopes, vm_scopes
from orchestrator.domain.observation import Node
from orchestrator.domain.ports import CloudAccount, NetworkInterface, NewBucket, NewNode, NewVm
from orchestrator.domain.record import Record, race_to_win
from orchestrator.domain.spec import Spec, VmSpec
from orchestrator.errors import UsageError
from orchestrator.planning.job import heartbeat_interval
from orchestrator.planning.tpu.tpu_types import current_type
from orchestrator.scripts.render import MachineTarget, Scripts, machine_scripts, sidecar_script

ROOT = "/opt/tpuctl"
LOOP_MARGIN = 3600.0
"""Seconds that a VM may outlive the deployment, so that a loop on the VM can still end the deployment."""


@dataclass(frozen=True)
class Blueprint:
    """Build what is sent to Google for one deployment, from the deployment file and the record."""

    spec: Spec
    account: CloudAccount
    key_line: Callable[[], str]
    """Return the line for the machines' `ssh-keys` metadata; it makes the key, so only a machine asks for it."""

    @property
    def public_key(self) -> str:
        """Return the line for the machines' `ssh-keys` metadata."""
        return self.key_line()

    @property
    def bucket(self) -> str:
        """Return the bucket's name from the deployment file, or the one derived from project and deployment."""
        return names.bucket_name(self.spec, self.account.project)

    @property
    def service_account(self) -> str:
        """Return the service account of TPU machines; never empty, which would allow every API of the project."""
        return self.spec.service_account or self.account.default_service_account

    @property
    def vm_account(self) -> str:
        """Return the VM's service account, by default that of the TPU machines."""
        return vm_account(self.spec) or self.account.default_service_account

    def new_bucket(self) -> NewBucket:
        """Return the bucket to create, and the accounts that may write to it."""
        return NewBucket(
            name=self.bucket,
            location=names.home_region(self.spec),
            labels=names.labels(self.spec, "bucket"),
            writer=self.service_account,
            vm=self.vm_account if self.spec.vm != "none" else "",
            loop=self.spec.watch.on_vm,
            soft_delete=int(self.spec.bucket.soft_delete or 0),
        )

    def new_vm(self, record: Record) -> NewVm:
        """Return the VM to create; raise UsageError if the deployment has none."""
        vm = self.spec.vm
        if not isinstance(vm, VmSpec):
            raise UsageError(
                "this deployment has no VM",
                hint="remove `vm: none` from tpuctl.yaml",
                changed="no VM was requested",
            )
        scripts = self.scripts("vm", record)
        return NewVm(
            name=names.vm_name(self.spec),
            zone=names.vm_zone(self.spec),
            machine_type=vm.machine_type,
            disk_gb=vm.disk_gb,
            spot=vm.spot,
            labels=names.labels(self.spec, "vm"),
            metadata=self._metadata(scripts),
            service_account=self.vm_account,
            scopes=vm_scopes(self.spec),
            # Google deletes or stops the VM at this time even if tpuctl never runs again.
            ttl=float(self.spec.watch.ttl) + (LOOP_MARGIN if self.spec.watch.on_vm else 0.0),
            external_ip=vm.external_ip,
            interface=self._interface,
            secure_boot=self.spec.secure_boot,
            image=vm.image or "",
        )

    def new_node(self, record: Record, zone: str, incarnation: int) -> NewNode:
        """Return the TPU to create as *incarnation* in *zone*: name, type, capacity, scripts and labels."""
        tpu = self.spec.tpu
        name = names.node_name(self.spec, incarnation)
        scripts = self.scripts("tpu", record, incarnation=incarnation, node=name, zone=zone)
        # The file decides what is paid for; the record only chooses among the types that the file allows.
        tpu_type = current_type(self.spec, record)
        # A record alone must not select on-demand capacity: it counts only while the file has a deadline.
        on_demand = incarnation in record.deadline.on_demand and self.spec.watch.deadline is not None
        flex = (
            on_demand
            and incarnation in record.deadline.flex_start
            and self.spec.watch.last_resort == "flex-start"
        )
        return NewNode(
            name=name,
            zone=zone,
            type=tpu_type,
            runtime=(tpu.runtime if tpu_type == tpu.type else load_catalog().runtime_for(tpu_type)) or "",
            spot=tpu.spot and not on_demand,
            external_ip=tpu.external_ip,
            labels=names.labels(self.spec, "tpu", incarnation, race_to_win(record, incarnation)),
            metadata=self._metadata(scripts),
            service_account=self.service_account,
            scopes=node_scopes(self.spec),
            interface=self._interface,
            secure_boot=self.spec.secure_boot,
            # On-demand requests for the deadline bypass the queue; only the queue can take a reservation.
            reservation="" if on_demand else tpu.reservation or "",
            run_seconds=MAX_RUN if flex else self._run_seconds,
            disks=data_disks(self.spec),
        )

    @property
    def _run_seconds(self) -> float:
        tpu = self.spec.tpu
        return float(tpu.max_run_duration or MAX_RUN) if tpu.request == "flex-start" else 0.0

    @property
    def _interface(self) -> NetworkInterface:
        return NetworkInterface(self.spec.network, self.spec.subnetwork or "", self.spec.tags)

    def scripts(
        self,
        role: str,
        record: Record,
        *,
        incarnation: int = 0,
        node: str = "",
        zone: str = "",
        address: str = "",
    ) -> Scripts:
        """Render the scripts of one kind of machine (*role* is `tpu` or `vm`)."""
        target = MachineTarget(
            role="vm" if role == "vm" else "tpu",
            project=self.account.project,
            bucket=self.bucket,
            incarnation=incarnation or record.node.incarnation,
            bundle=record.job.bundle,
            agent=record.job.agent,
            runs_job=role == self.spec.job.run_on,
            node=node,
            zone=zone,
            tpu_address=address,
            heartbeat_interval=heartbeat_interval(self.spec),
            round=race_to_win(record, incarnation or record.node.incarnation) if role == "tpu" else 0,
            disks=data_disks(self.spec) if role == "tpu" else (),
            self_delete_at=record.self_delete_at if role == "tpu" and self.spec.watch.self_delete else None,
            # Bucket and machines of a new deployment are created in parallel, so its roles may not be granted yet.
            granted_at=record.bucket.granted_at or record.started_at,
            tpu_type=record.node.type if role == "tpu" else "",
        )
        return machine_scripts(self.spec, target)

    def all_scripts(self, record: Record) -> dict[str, str]:
        """Render all scripts of the TPU workers and of the VM, by name, for people to read."""
        node = names.node_name(self.spec, record.node.incarnation)
        roles = {"tpu": self.scripts("tpu", record, node=node, zone=record.node.zone)}
        if self.spec.vm != "none":
            roles["vm"] = self.scripts("vm", record)
        return {
            f"{role} {name}": text for role, found in roles.items()
            for name, text in asdict(found).items() if text
        }  # fmt: skip

    def sidecars(self, role: str) -> str:
        """Render the script that sets up the sidecars of one kind of machine."""
        return sidecar_script(self.spec, role, self.bucket)

    def vm_job_env(self, record: Record, node: Node) -> str:
        """Return the job.env of a job that runs on the VM and uses *node* over the network."""
        address = node.workers[0].internal_ip if node.workers else ""
        scripts = self.scripts("vm", record, node=node.name, zone=node.zone, address=address)
        return scripts.job_env

    def _metadata(self, scripts: Scripts) -> dict[str, str]:
        # With OS Login the guest agent ignores SSH keys in the metadata.
        logins = (
            {"enable-oslogin": "TRUE"}
            if self.spec.os_login
            else {"ssh-keys": self.public_key, "enable-oslogin": "FALSE"}
        )
        return {
            "startup-script": scripts.startup,
            "shutdown-script": scripts.shutdown,
            "enable-guest-attributes": "TRUE",
            # Otherwise anybody who can edit the project's metadata would get a shell on every machine.
            "block-project-ssh-keys": "TRUE",
            **logins,
        }
