"""
Delete everything that carries our label, and prove it by listing.
"""

from dataclasses import dataclass

from orchestrator.core import names
from orchestrator.core.events import Event
from orchestrator.core.plan import Change, Kind, Verb
from orchestrator.core.recovery import SECOND_WITNESS
from orchestrator.core.world import NodeState, Operation, Present, Unknown, VmState
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.observe import zones_to_look_at
from orchestrator.engine.watch import wait_until
from orchestrator.errors import NotFoundError, TpuctlError

DEADLINE = 600.0
"""Seconds after which `down` stops waiting and prints what is left."""


@dataclass(frozen=True)
class Left:
    """
    Name one resource that is still there, or that nobody could look for.
    """

    kind: str
    name: str
    zone: str
    state: str


class Sweep:
    """
    Find and delete the machines of one deployment, whatever the record says.
    """

    def __init__(self, deployment: Deployment) -> None:
        spec = deployment.spec
        self._cloud = deployment.cloud
        self._spec = spec
        self._journal = deployment.journal
        self._clock = deployment.clock
        self._sink = deployment.sink
        vm_zones = () if spec.vm == "none" else (names.vm_zone(spec),)
        self._zones = tuple(dict.fromkeys((*zones_to_look_at(spec, deployment.record.history), *vm_zones)))
        self._asked: dict[str, float] = {}
        history = deployment.record.history
        self._coming = [o for o in history.operations if o.verb in {"create", "start"}]
        # An order whose answer was lost may still take effect; it is waited for, not forgotten.
        unconfirmed = not history.accepted and not history.refusals and history.requested_at > 0
        self._settled = history.requested_at + SECOND_WITNESS if unconfirmed else 0.0

    def find(self) -> tuple[Left, ...]:
        """
        List what carries our label in every zone ever used; a list that failed is an entry of its own.
        """
        label, value = names.DEPLOYMENT_LABEL, self._spec.name
        left = []
        nodes = self._cloud.nodes.labelled(label, value, self._zones)
        vms = self._cloud.vms.labelled(label, value, self._zones)
        for kind, sight in (("TPU", nodes), ("VM", vms)):
            if isinstance(sight, Unknown):
                left.append(Left(kind, "?", ", ".join(self._zones), f"not known: {sight.why}"))
            elif isinstance(sight, Present):
                left += [Left(kind, found.name, found.zone, found.state.name) for found in sight.value]
        return tuple(left)

    def machines(self) -> tuple[Left, ...]:
        """
        Delete all machines and return what is left after at most the deadline.
        """
        left: tuple[Left, ...] = ()

        def gone() -> bool:
            nonlocal left
            left = self.find()
            for item in left:
                self._delete(item)
            left = (*left, *self._on_their_way())
            return not left

        wait_until(gone, self._clock, DEADLINE, 1.0)
        return left

    def _on_their_way(self) -> tuple[Left, ...]:
        """
        Return what was ordered and has not shown yet: it will, after this command has said that all is gone.
        """
        self._coming = [o for o in self._coming if not self._done(o)]
        coming = [Left(o.kind, o.name, o.zone, f"its {o.verb} is still running") for o in self._coming]
        if self._clock.now() < self._settled:
            coming.append(
                Left("TPU", "?", ", ".join(self._zones), "a create whose answer was lost may follow")
            )
        return tuple(coming)

    def _done(self, operation: Operation) -> bool:
        adapter = self._cloud.nodes if operation.kind == Kind.NODE.value else self._cloud.vms
        try:
            return adapter.poll(operation).done
        except NotFoundError:
            return True
        except TpuctlError:
            return False

    def _delete(self, item: Left) -> None:
        """
        Ask for one deletion; again only after a minute, since a deletion takes its time.
        """
        going = item.state in {NodeState.DELETING.name, VmState.DEPROVISIONING.name}
        if item.name == "?" or (going and item.name not in self._asked):
            self._asked.setdefault(item.name, self._clock.now())
            return
        if self._clock.now() - self._asked.get(item.name, float("-inf")) < 60:
            return
        self._asked[item.name] = self._clock.now()
        kind = Kind.NODE if item.kind == "TPU" else Kind.VM
        change = Change(kind, Verb.DELETE, item.name, "down", item.zone)
        try:
            entry = self._journal.intend(change, in_bucket=False)
            adapter = self._cloud.nodes if kind is Kind.NODE else self._cloud.vms
            adapter.delete(item.name, item.zone)
            self._journal.result(entry, "ok", in_bucket=False)
        except NotFoundError:
            return
        except TpuctlError as error:
            self._sink(Event(self._clock.now(), "delete-failed", f"{item.kind} {item.name}: {error.message}"))
            return
        self._sink(Event(self._clock.now(), "delete", f"{item.kind} {item.name}: deletion asked for"))

    def bucket(self, name: str) -> Left | None:
        """
        Delete our bucket with its data; return it when it is still there or is not ours.
        """
        seen = self._cloud.buckets.observe(name)
        if isinstance(seen, Unknown):
            return Left("bucket", name, "", f"not known: {seen.why}")
        if not isinstance(seen, Present):
            return None
        if self._spec.bucket.adopt or seen.value.labels.get(names.DEPLOYMENT_LABEL) != self._spec.name:
            return Left("bucket", name, seen.value.location, "not made by this deployment, kept")
        change = Change(Kind.BUCKET, Verb.DELETE, name, "down --delete-data", seen.value.location)
        entry = self._journal.intend(change, in_bucket=False)
        try:
            self._cloud.buckets.delete(name)
        except TpuctlError as error:
            self._journal.result(entry, f"{error.code} {error.message}", in_bucket=False)
            return Left("bucket", name, seen.value.location, error.message)
        self._journal.result(entry, "ok", in_bucket=False)
        return None
