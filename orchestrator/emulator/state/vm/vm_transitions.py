"""Start and stop VMs through events of the clock."""

from orchestrator.emulator.state.api_errors import OperationError, compute_case
from orchestrator.emulator.state.billing import Usage
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.values.instance import Action, Instance, Status
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.vm import vm_rules
from orchestrator.emulator.state.vm.vm_disks import VmDisks

_DAY = 24 * 3600.0
S = Status
_STARTS = frozenset({"insert", "start"})
_UP = frozenset({S.PROVISIONING, S.STAGING, S.RUNNING})


class VmTransitions:
    """The starts and stops of VMs, by the caller's request or by the platform."""

    def __init__(self, kernel: Kernel, disks: VmDisks) -> None:
        self._kernel = kernel
        self._disks = disks
        kernel.handlers |= {
            "vm.staging": self._staging,
            "vm.running": self._running,
            "vm.stopped": self._stopped,
            "vm.deleted": self._deleted,
            "vm.reset": self._was_reset,
            "vm.expired": self._expired,
            "vm.day": self._day_over,
        }

    def preempt(self, instance: Instance, *, notice: bool) -> Operation:
        """Preempt a spot VM: STOPPING, then after the notice TERMINATED or deleted."""
        kernel = self._kernel
        operation = self.begin(instance, "compute.instances.preempted", user="system")
        lost = compute_case("preempted while creating").operation_error(**kernel.values(_target(instance)))
        for other in kernel.open_on(instance.numeric_id):
            # Only starts are ended; other calls continue, as one of them requested this preemption.
            if other.verb in _STARTS:
                kernel.finish(other, lost)
        delay = kernel.settings.latency.notice if notice and instance.status is S.RUNNING else 0.0
        self.wind_down(instance, operation, delay, instance.action, preempted=True, notice=notice)
        return operation

    def plan_deadline(self, instance: Instance) -> None:
        """Plan the end of the scheduling's run time; a stopped VM has none."""
        if instance.status not in _UP:
            return
        instance.deadline = vm_rules.run_limit(
            instance.scheduling, instance.last_start or self._kernel.state.time
        )
        if instance.deadline is not None:
            delay = max(0.0, instance.deadline - self._kernel.state.time)
            self._kernel.schedule(delay, "vm.expired", instance.zone, instance.name, instance.numeric_id)

    def begin(self, instance: Instance, verb: str, user: str = "") -> Operation:
        scope, target = f"zones/{instance.zone}", _target(instance)
        return self._kernel.begin(
            Api.COMPUTE, scope, verb, instance.path, instance.numeric_id, target=target, user=user
        )

    def not_ready(self, instance: Instance) -> OperationError:
        """Return the error of a VM that is not in the status a verb needs."""
        return compute_case("still stopping").operation_error(**self._kernel.values(_target(instance)))

    def start_up(self, instance: Instance, verb: str, delay: float) -> Operation:
        """Start a VM; quota and stockout errors appear in the operation."""
        kernel = self._kernel
        operation = self.begin(instance, verb)
        values = kernel.values(_target(instance))
        limit = vm_rules.over_quota(kernel, instance)
        if operation.planned is None and limit is not None:
            operation.planned = compute_case("quota").operation_error(
                **values | {"metric": "CPUS", "n": limit}
            )
        elif operation.planned is None and kernel.settings.out_of_stock(instance.zone, spot=instance.spot):
            operation.planned = compute_case("stockout").operation_error(**values)
        # The epoch is part of the event, so a later change of status invalidates this start.
        instance.enter(S.PROVISIONING)
        where = (instance.zone, instance.name, instance.epoch)
        kernel.schedule(delay / 2, "vm.staging", *where)
        kernel.proceed(operation, delay, "vm.running", *where)
        return operation

    def wind_down(
        self,
        instance: Instance,
        operation: Operation,
        delay: float,
        action: Action,
        *,
        preempted: bool = False,
        notice: bool = True,
    ) -> None:
        """Stop a VM after *delay*, with its shutdown scripts if it gets a *notice*."""
        kernel = self._kernel
        if notice:
            kernel.warn(instance.machine_id, preempted=preempted)
        ends = action is Action.DELETE
        instance.enter(S.DEPROVISIONING if ends and not preempted else S.STOPPING)
        kind = "vm.deleted" if ends else "vm.stopped"
        kernel.proceed(operation, delay, kind, instance.zone, instance.name, instance.epoch, preempted)

    def _current(self, zone: str, name: str, epoch: int) -> Instance | None:
        instance = self._kernel.state.instances.get((zone, name))
        # Each change of status has a new epoch, so events planned before it find nothing.
        return instance if instance and instance.epoch == epoch else None

    def _staging(self, zone: str, name: str, epoch: int) -> None:
        instance = self._current(zone, name, epoch)
        if instance:
            instance.status = S.STAGING

    def _running(self, operation_name: str, zone: str, name: str, epoch: int) -> None:
        kernel, operation = self._kernel, self._kernel.state.operations[operation_name]
        instance = self._current(zone, name, epoch)
        # Deleted or preempted meanwhile, by an operation of its own.
        if instance is None:
            kernel.finish(operation)
            return
        if operation.planned:
            self._undo_start(instance, operation.verb)
            kernel.finish(operation, operation.planned)
            return
        instance.enter(S.RUNNING)
        instance.last_start = kernel.state.time
        price = instance.type.spot if instance.spot else instance.type.on_demand
        usage = Usage(instance.path, "vm", zone, instance.type.name, price, instance.spot, kernel.state.time)
        kernel.bill_from_now(usage)
        kernel.boot(instance.machine_id)
        self.plan_deadline(instance)
        if instance.spot and instance.scheduling.get("provisioningModel") != "SPOT":
            kernel.schedule(_DAY, "vm.day", zone, name, instance.epoch)
        kernel.finish(operation)

    def _undo_start(self, instance: Instance, verb: str) -> None:
        if verb == "insert":
            self._remove(instance, preempted=False)
        else:
            instance.enter(S.TERMINATED)

    def _stopped(self, operation_name: str, zone: str, name: str, epoch: int, preempted: bool) -> None:
        kernel, instance = self._kernel, self._current(zone, name, epoch)
        if instance:
            kernel.halt(instance.machine_id)
            kernel.bill_until_now(instance.path, "vm", preempted=preempted)
            instance.enter(S.TERMINATED)
            instance.last_stop, instance.deadline = kernel.state.time, None
        kernel.finish(kernel.state.operations[operation_name])

    def _deleted(self, operation_name: str, zone: str, name: str, epoch: int, preempted: bool) -> None:
        kernel, instance = self._kernel, self._current(zone, name, epoch)
        if instance:
            for other in kernel.open_on(instance.numeric_id):
                kernel.finish(other)
            self._remove(instance, preempted=preempted)
        kernel.finish(kernel.state.operations[operation_name])

    def _remove(self, instance: Instance, *, preempted: bool) -> None:
        kernel = self._kernel
        kernel.bill_until_now(instance.path, "vm", preempted=preempted)
        kernel.remove_machine(instance.machine_id)
        self._disks.release(instance)
        del kernel.state.instances[instance.zone, instance.name]

    def _was_reset(self, operation_name: str, zone: str, name: str, epoch: int) -> None:
        kernel, instance = self._kernel, self._current(zone, name, epoch)
        operation = kernel.state.operations[operation_name]
        if instance and operation.planned is None:
            kernel.halt(instance.machine_id)
            kernel.boot(instance.machine_id)
        kernel.finish(operation, operation.planned)

    def _expired(self, zone: str, name: str, numeric_id: int) -> None:
        instance = self._kernel.state.instances.get((zone, name))
        due = (
            instance is not None
            and instance.deadline is not None
            and instance.deadline <= self._kernel.state.time
        )
        # Since this event was planned, the deadline may have moved, or a new VM may have taken the name.
        if instance and due and instance.numeric_id == numeric_id and instance.status in _UP:
            verb = instance.action.value.lower()
            operation = self.begin(instance, verb, user="system")
            self.wind_down(instance, operation, self._kernel.settings.latency.notice, instance.action)

    def _day_over(self, zone: str, name: str, epoch: int) -> None:
        instance = self._current(zone, name, epoch)
        if instance:
            self.preempt(instance, notice=True)


def _target(instance: Instance) -> CallTarget:
    return CallTarget(instance.zone, instance.name)
