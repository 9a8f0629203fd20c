"""Watch one run: gather what the invariants need, after every call, every save and every pass."""

import re
from collections import Counter, defaultdict

from orchestrator.contract.bucket.uncommitted_manifest import ended_before
from orchestrator.domain import names
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.emulator.state.values.instance import Status
from orchestrator.emulator.state.values.node import DEAD, Health, NodeState
from orchestrator.engine.reconcile.observe import zones_to_observe
from orchestrator.planning.tpu.race import WIDEST, races
from orchestrator.pricing.cost import hourly
from tests.simulation import invariants
from tests.simulation.invariants import Live, Violation
from tests.simulation.simulation import shared_catalog
from tests.simulation.wire import MUTATING

LATER = 1 << 40
"""An incarnation after all others."""
LOOKS = {
    "tpu.nodes.list": Kind.NODE,
    "tpu.queuedResources.list": Kind.NODE,
    "compute.instances.get": Kind.VM,
    "storage.buckets.list": Kind.BUCKET,
}
ASKS = {
    "tpu.nodes.create": "TPU",
    "tpu.queuedResources.create": "TPU in the queue",
    "compute.instances.insert": "VM",
    "compute.instances.start": "VM start",
}
CREATES = {"tpu.nodes.create": "nodeId", "tpu.queuedResources.create": "queuedResourceId"}
DELETES = frozenset({"tpu.nodes.delete", "tpu.queuedResources.delete"})
QUIESCE = 900.0
"""Seconds after `down` in which a call that was under way may still arrive (the slowest takes 120 s)."""


class RunChecks:
    """Check the invariants of one run as it goes; the first violation ends it."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.mutations = Counter()
        self._asks, self._starts = defaultdict(list), defaultdict(list)
        self._newest, self._good, self._sure, self._anew = {}, {}, {}, {}
        self.blind_seconds, self._paid, self._given_up = Counter(), Counter(), set()
        simulation.on_call = self.called
        simulation.network.calling = self.calling
        simulation.machines.changed = lambda gang: self._saved(gang.deployment)

    def demand(self, invariant, violation, about=""):
        """Raise Violation unless *violation* is empty."""
        if violation:
            raise Violation(f"{invariant} {about}: {violation}")

    # Facts.

    def live(self, deployment):
        """Return what is billed for, or blocks a name or quota: nodes, VMs, disks, queued resources."""
        state = self.simulation.cloud.kernel.state
        nodes = [
            Live("TPU", n.name, n.zone, n.body.get("labels", {})) for n in self.simulation.nodes(deployment)
        ]
        vm = self.simulation.vm(deployment)
        vms = [Live("VM", vm.name, vm.zone, dict(vm.labels))] if vm is not None else []
        own = {vm.name} if vm is not None else set()
        disks = [
            Live("disk", name, zone, {}) for zone, name in state.disks
            if name.startswith(f"{deployment}-vm") and name not in own
        ]  # fmt: skip
        orders = [
            Live("queued resource", q.name, q.zone, q.wanted[0].body.get("labels", {}))
            for q in self.simulation.queued(deployment)
        ]
        return [*nodes, *vms, *disks, *orders]

    def works(self, node):
        """Return whether a node and its job are in order."""
        if node.state is not NodeState.READY or node.health is not Health.HEALTHY:
            return False
        running = self.simulation.cloud.kernel.state.flags
        if not all(w.id in running and running[w.id].running for w in node.workers):
            return False
        gang = self.simulation.machines.gangs.get(f"{node.zone}-{node.name}-{node.numeric_id}")
        return gang is not None and not gang.silent and gang.phase == "run"

    # What happens.

    def started(self, process):
        self._starts[process.deployment].append(self.simulation.now())
        self._sure.setdefault(process.deployment, self.simulation.now())

    def began(self, process):
        """Note that a pass begins."""
        process.pass_began, process.looks, process.acted = self.simulation.now(), {}, False

    def called(self, process, method, request, status, fault):
        """Check what one call says about its caller."""
        if method in LOOKS and not process.acted:
            process.looks[method, request.path] = status in {200, 404} and fault != "truncated"
        if method in DELETES and status == 200:
            self._note_given_up(process.deployment, request)
        if method in MUTATING:
            process.acted = True
            self.mutations[process.deployment, method] += 1
        if method in ASKS:
            zone = re.search(r"(?:locations|zones)/([^/]+)", request.path)[1]
            times = self._asks[process.deployment, method, zone]
            times.append(self.simulation.now())
            starts = sum(1 for t in self._starts[process.deployment] if self.simulation.now() - t < 3600)
            self.demand(
                "I5", invariants.i5_bounded(times, self.simulation.now(), starts), f"{ASKS[method]} {zone}"
            )

    def calling(self, process, method, request):
        """Check that a call will not take a working node out of use before its end has come."""
        self._note(process.deployment)
        if method not in {*CREATES, *DELETES} or process.command == "down":
            return
        for node in self.simulation.nodes(process.deployment):
            newest = node.numeric_id == self._newest_node(process.deployment)
            deleted = method in DELETES and request.path.endswith(f"/{node.name}")
            created = method in CREATES and request.query.get(CREATES[method]) != node.name
            if self._is_on_demand(node) or node.numeric_id in self._given_up:
                continue
            if newest and (deleted or created) and not self._at_end(process.deployment):
                good = self._good.get(node.numeric_id)
                self.demand("I7", invariants.i7_healthy(node.name, good, process.pass_began), process.name)

    def _note_given_up(self, deployment, request):
        """Note a node that was deleted before it worked: dropped while it is created, that is asked again."""
        for node in self.simulation.nodes(deployment):
            if request.path.endswith(f"/{node.name}") and node.numeric_id not in self._good:
                self._given_up.add(node.numeric_id)

    def _is_on_demand(self, node):
        """Return whether a node is on demand for a deadline's sake: it may go as soon as spot is safe."""
        spec = self.simulation.specs[node.body["labels"][names.DEPLOYMENT_LABEL]]
        return spec.watch.deadline is not None and spec.tpu.spot and not node.spot

    def _newest_node(self, deployment):
        nodes = self.simulation.nodes(deployment)
        return max(nodes, key=lambda n: (n.created, n.numeric_id)).numeric_id if nodes else None

    def _at_end(self, deployment):
        """Return whether record or workers report an end, at which machines may go."""
        record = self.simulation.stored_history(deployment)
        gangs = [g for g in self.simulation.machines.gangs.values() if g.deployment == deployment]
        spec = self.simulation.specs[deployment]
        spending = spec.watch.budget_usd is not None or spec.watch.ttl < 7 * 86400
        over = any(g.phase in {"done", "uncommitted", "failed"} for g in gangs)
        return over or spending or (record is not None and record.outcome is not None)

    def passed(self, controller, result):
        """Check everything after one pass."""
        process, deployment = controller.process, controller.spec.name
        self.simulation.passes += 1
        unseen = {LOOKS[method] for (method, _), sure in process.looks.items() if not sure}
        self.demand("I7", invariants.i7_sure(result.plan.changes, unseen), process.name)
        now = self.simulation.now()
        if not unseen:
            away = now - self._sure.get(deployment, now) - float(controller.spec.watch.poll)
            self.blind_seconds[deployment] += max(0.0, away)
            self._sure[deployment] = now
        self.moment(deployment)

    def moment(self, deployment):
        """Check what must hold at every moment."""
        self._note(deployment)
        spec, record = self.simulation.specs[deployment], self.simulation.stored_history(deployment)
        vm_zone = () if spec.vm == "none" else (names.vm_zone(spec),)
        known = zones_to_observe(spec, record) if record is not None else spec.tpu.zones
        live = [one for one in self.live(deployment) if one.kind != "disk"]
        self.demand("I1", invariants.i1_findable(live, deployment, {*known, *vm_zone}), deployment)
        machines = self.simulation.machines
        self.demand("I2", invariants.i2_one_writer(machines.writes, machines.zombie_writes))
        # Another computer may still keep the record of a run whose bucket is gone: it was true then.
        if record is not None and record.started_at >= self._anew.get(deployment, 0.0):
            done = any(d == deployment for d, _ in machines.truly_done)
            self.demand("I8", invariants.i8_truly(record.outcome is Outcome.DONE, done), deployment)
            bucket = self.simulation.bucket(deployment)
            retained = ended_before(bucket.uncommitted(), LATER, machines.digests["bundle"], "s")
            self.demand("I8", invariants.i8_saved(record.outcome, bucket.complete(), retained), deployment)

    def _note(self, deployment):
        """Note since when each node works."""
        for node in self.simulation.nodes(deployment):
            if not self.works(node):
                self._good.pop(node.numeric_id, None)
            else:
                self._good.setdefault(node.numeric_id, self.simulation.now())

    def _saved(self, deployment):
        newest = next(iter(self.simulation.bucket(deployment).complete()), None)
        step = newest.step if newest else None
        self.demand("I3", invariants.i3_never_back(self._newest.get(deployment), step), deployment)
        self._newest[deployment] = step

    def over(self, process, error):
        """Check what a command reported at its end."""
        if process.command == "down":
            return
        done = any(d == process.deployment for d, _ in self.simulation.machines.truly_done)
        self.demand("I8", invariants.i8_truly(getattr(process, "told", "") == "done", done), process.name)

    def went_down(self, user):
        """Check that `down` has left nothing, now and a while later."""
        if user.deleting:
            self._forget(user.name)
        since = user.down

        def later():
            if user.down == since:
                self.demand("I1", invariants.i1_gone(self.live(user.name)), user.name)

        self.demand("I1", invariants.i1_gone(self.live(user.name)), user.name)
        self.simulation.scheduler.after(QUIESCE, later)

    def _forget(self, deployment):
        """Begin again: with the bucket its steps, its incarnations and what it has cost are gone."""
        machines = self.simulation.machines
        self.spend(deployment)
        self._paid[deployment], self.blind_seconds[deployment] = self._bill(deployment), 0.0
        self._sure.pop(deployment, None)
        self._anew[deployment] = self.simulation.now()
        self._newest.pop(deployment, None)
        for observed in (machines.writes, machines.starters):
            for key in [key for key in observed if key[0] == deployment]:
                del observed[key]
        machines.truly_done = {key for key in machines.truly_done if key[0] != deployment}

    # The end.

    def settled(self, user):
        """Return why the deployment is not as its user wants it, empty when it is."""
        deployment = user.name
        live = [one for one in self.live(deployment) if one.kind != "disk"]
        vm = self.simulation.vm(deployment)
        stopped = vm is not None and vm.status is Status.TERMINATED
        if user.ended and user.ended != "down":
            live = [one for one in live if not (one.kind == "VM" and stopped)]
        wanted = not user.ended and self.simulation.specs[deployment].vm != "none"
        if wanted and (vm is None or vm.status is not Status.RUNNING):
            return "the VM does not run"
        nodes = [n for n in self.simulation.nodes(deployment) if n.state not in DEAD]
        dead = {q.name for q in self.simulation.queued(deployment)} - {n.name for n in nodes}
        if dead and not user.ended:
            return f"in the queue without a node: {sorted(dead)}"
        expected = nodes[0].accelerator.hosts if nodes else 1
        running = sum(len(g.alive) for g in self.simulation.machines.gangs.values()
                      if g.deployment == deployment and g.phase == "run" and not g.over)  # fmt: skip
        return invariants.i4_settled(user.ended != "", live, running, expected)

    def spend(self, deployment):
        """Check the bill against the budget."""
        spec = self.simulation.specs[deployment]
        if spec.watch.budget_usd is None:
            return
        lines = self._lines(deployment)
        usd = self._bill(deployment) - self._paid[deployment]
        prices = [hourly(spec, shared_catalog(), zone) for zone in spec.tpu.zones]
        due = spec.watch.deadline is not None
        rate = max((p.on_demand_usd if due else p.billed_usd) or 0.0 for p in prices)
        # While nobody can act, all TPUs of a race may run.
        rate *= min(WIDEST, len(spec.tpu.zones)) if races(spec) else 1
        incarnations = sum(1 for b in lines if b.kind == "tpu")
        seconds = (incarnations + 2) * float(spec.watch.poll) + 600 + self.blind_seconds[deployment]
        self.demand("I6", invariants.i6_within_budget(usd, spec.watch.budget_usd, rate, seconds), deployment)

    def _lines(self, deployment):
        mine = (f"/{deployment}-tpu-", f"/{deployment}-vm")
        return [b for b in self.simulation.cloud.bill() if any(part in b.resource for part in mine)]

    def _bill(self, deployment):
        return sum(b.usd or 0.0 for b in self._lines(deployment) if b.kind != "disk")
