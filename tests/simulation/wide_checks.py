"""The invariants of a wide run, gathered at every call and every pass."""

from collections import Counter, defaultdict

from orchestrator.domain import names
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.emulator.state.values.instance import Status
from orchestrator.emulator.state.values.node import DEAD, Health, NodeState
from orchestrator.engine.reconcile.observe import zones_to_observe
from orchestrator.pricing.cost import hourly
from tests.simulation import invariants
from tests.simulation.invariants import Live, Violation
from tests.simulation.wide_simulation import shared_catalog
from tests.simulation.wire import MUTATING

LOOKS = {"tpu.nodes.list": Kind.NODE, "compute.instances.get": Kind.VM, "storage.buckets.list": Kind.BUCKET}
ASKS = {"tpu.nodes.create", "compute.instances.insert", "compute.instances.start"}
HOUR = 3600.0


class WideChecks:
    """Check the invariants; the first violation ends the run."""

    def __init__(self, simulation):
        self.simulation, self.loops = simulation, {}
        self.mutations = Counter()
        self._asks, self._starts = defaultdict(list), defaultdict(list)
        self._looks, self._acted, self._began = {}, {}, {}
        self._good, self._newest, self._sure = {}, {}, {}
        self.blind_seconds = Counter()
        simulation.machines.changed = lambda gang: self._saved(gang.deployment)

    def demand(self, invariant, violation, about=""):
        """Raise Violation unless *violation* is empty."""
        if violation:
            raise Violation(f"{invariant} {about}: {violation}")

    def join(self, loop):
        self.loops[loop.name] = loop

    # Facts.

    def works(self, node):
        """Return whether a node and its job are in order."""
        if node.state is not NodeState.READY or node.health is not Health.HEALTHY:
            return False
        flags = self.simulation.cloud.kernel.state.flags
        if not all(w.id in flags and flags[w.id].running for w in node.workers):
            return False
        gang = self.simulation.machines.gangs.get(f"{node.zone}-{node.name}-{node.numeric_id}")
        return gang is not None and not gang.silent and gang.phase == "run" and not gang.over

    def works_well(self, deployment):
        """Return whether all that the deployment has is in order."""
        nodes = self.simulation.nodes(deployment)
        return len(nodes) == 1 and self.works(nodes[0])

    def live(self, deployment):
        """Return what is billed for, or blocks a name or quota."""
        nodes = [
            Live("TPU", n.name, n.zone, n.body.get("labels", {})) for n in self.simulation.nodes(deployment)
        ]
        vm = self.simulation.vm(deployment)
        return [*nodes, *([Live("VM", vm.name, vm.zone, dict(vm.labels))] if vm is not None else [])]

    def note(self, deployment):
        """Note since when each node works."""
        for node in self.simulation.nodes(deployment):
            if not self.works(node):
                self._good.pop(node.numeric_id, None)
            else:
                self._good.setdefault(node.numeric_id, self.simulation.now())

    # What happens.

    def started(self, loop):
        self._starts[loop.name].append(self.simulation.now())

    def began(self, loop):
        self.note(loop.name)
        self._began[loop.name], self._looks[loop.name], self._acted[loop.name] = (
            self.simulation.now(),
            {},
            False,
        )

    def calling(self, loop, method, place):
        """Check a call before it is made: a working node is not taken out of use before its end."""
        if method not in {"tpu.nodes.create", "tpu.nodes.delete"} or loop.ended == "down":
            return
        nodes = self.simulation.nodes(loop.name)
        newest = max(nodes, key=lambda n: (n.created, n.numeric_id), default=None)
        if newest is None or (newest.name == place.name) is not (method == "tpu.nodes.delete"):
            return
        if not self._at_end(loop) and self.works(newest):
            good = self._good.get(newest.numeric_id)
            self.demand(
                "I7",
                invariants.i7_healthy(newest.name, good, self._began[loop.name]),
                f"{loop.name} {method} {place.name}",
            )

    def _at_end(self, loop):
        gangs = self.simulation.machines.of[loop.name]
        limited = loop.spec.watch.budget_usd is not None or loop.case.ttl_ends
        return (
            limited
            or loop.records.current.outcome is not None
            or any(g.phase in {"done", "uncommitted", "failed"} for g in gangs)
        )

    def called(self, loop, method, place, observed):
        """Note what a call has shown, and count what it asks for."""
        if method in LOOKS and not self._acted.get(loop.name):
            self._looks.setdefault(loop.name, {})[method, place] = observed
        if method in MUTATING:
            self._acted[loop.name] = True
            self.mutations[loop.name] += 1
            self.simulation.say(
                f"{loop.name} {method} {place.zone} {place.name} {'ok' if observed else 'lost'}"
            )
        if method == "tpu.nodes.create":
            # From here on it costs something that nobody sees, also before the first complete look.
            self._sure.setdefault(loop.name, self.simulation.now())
        if method in ASKS:
            now = self.simulation.now()
            times = self._asks[loop.name, method, place.zone]
            times[:] = [at for at in times if now - at < HOUR] + [now]
            starts = sum(1 for at in self._starts[loop.name] if now - at < HOUR)
            self.demand("I5", invariants.i5_bounded(times, now, starts), f"{loop.name} {method}")

    def passed(self, loop, result):
        """Check everything after one pass."""
        unseen = {LOOKS[method] for (method, _), sure in self._looks[loop.name].items() if not sure}
        self.demand("I7", invariants.i7_sure(result.plan.changes, unseen), loop.name)
        now = self.simulation.now()
        if not unseen and not loop.asleep:
            last = self._sure.get(loop.name, now)
            self.blind_seconds[loop.name] += max(0.0, now - last - loop.poll)
        if not unseen:
            self._sure[loop.name] = now
        self.moment(loop)

    def moment(self, loop):
        """Check what must hold at every moment."""
        spec, record = loop.spec, loop.records.current
        vm_zone = () if spec.vm == "none" else (names.vm_zone(spec),)
        zones = {*zones_to_observe(spec, record), *vm_zone}
        self.demand("I1", invariants.i1_findable(self.live(loop.name), loop.name, zones), loop.name)
        machines = self.simulation.machines
        self.demand("I2", invariants.i2_one_writer({}, machines.zombie_writes))
        done = any(d == loop.name for d, _ in machines.truly_done)
        self.demand("I8", invariants.i8_truly(record.outcome is Outcome.DONE, done), loop.name)

    def over(self, loop, outcome):
        """Check what a command reported at its end."""
        done = any(d == loop.name for d, _ in self.simulation.machines.truly_done)
        self.demand("I8", invariants.i8_truly(outcome.value == "done", done), loop.name)

    def _saved(self, deployment):
        newest = next(iter(self.simulation.machines.bucket_of(deployment).complete()), None)
        step = newest.step if newest else None
        self.demand("I3", invariants.i3_never_back(self._newest.get(deployment), step), deployment)
        self._newest[deployment] = step

    # The end.

    def unsettled(self, loop):
        """Return why the deployment is not as its owner wants it, empty when it is."""
        live, vm = self.live(loop.name), self.simulation.vm(loop.name)
        if loop.ended:
            live = [one for one in live if one.kind != "VM" or vm.status is not Status.TERMINATED]
        elif loop.spec.vm != "none" and (vm is None or vm.status is not Status.RUNNING):
            return f"{loop.name}: the VM does not run"
        nodes = [n for n in self.simulation.nodes(loop.name) if n.state not in DEAD]
        gangs = (self.simulation.machines.gangs.get(f"{n.zone}-{n.name}-{n.numeric_id}") for n in nodes)
        running = sum(len(g.alive) for g in gangs if g is not None and g.phase == "run" and not g.over)
        violation = invariants.i4_settled(loop.ended != "", live, running, 1)
        return f"{loop.name}: {violation}" if violation else ""

    def all_over(self, loops):
        """Check what is left to check when the run is over."""
        self.demand(
            "I2",
            invariants.i2_one_writer(self.simulation.machines.writes, self.simulation.machines.zombie_writes),
        )
        bill = defaultdict(list)
        for line in self.simulation.cloud.bill():
            bill[line.resource.rsplit("/", 1)[-1].rsplit("-tpu-g", 1)[0].removesuffix("-vm")].append(line)
        for loop in loops:
            self.moment(loop)
            self._spend(loop, bill[loop.name])

    def _spend(self, loop, lines):
        budget = loop.spec.watch.budget_usd
        if budget is None:
            return
        usd = sum(line.usd or 0.0 for line in lines if line.kind != "disk")
        zones = loop.spec.tpu.zones
        rate = max(hourly(loop.spec, shared_catalog(), zone).billed_usd or 0.0 for zone in zones)
        incarnations = sum(1 for line in lines if line.kind == "tpu")
        seconds = (incarnations + 2) * max(loop.poll, 60.0) + 600 + self.blind_seconds[loop.name]
        self.demand("I6", invariants.i6_within_budget(usd, budget, rate, seconds), loop.name)
