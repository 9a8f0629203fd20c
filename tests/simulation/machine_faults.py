"""What happens to machines and zones behind everybody's back."""

import contextlib
from dataclasses import replace

from orchestrator.emulator.state.values.node import NodeState
from orchestrator.errors import LocalCloudError

PASSING = ("REPAIRING", "RESTARTING", "HIDDEN", "UNKNOWN", "STOPPING")


class MachineFaults:
    """Strike at random times, as often as the case says for each TPU and hour."""

    def __init__(self, simulation):
        self.simulation, self.random = simulation, simulation.random
        count = len(simulation.case.deployments)
        rates = simulation.case.rates
        self._kinds = {self.preempt: rates.preemption * count, self.trouble: rates.trouble * count}
        for kind, rate in self._kinds.items():
            if rate > 0:
                self._plan(kind, rate)

    def _plan(self, kind, rate):
        def inject():
            if not self.simulation.quiet:
                kind()
                self._plan(kind, rate)

        self.simulation.scheduler.after(self.random.expovariate(rate / 3600), inject)

    def _node(self, *, spot=False):
        self.simulation.cloud.tick()
        nodes = [
            n for _, n in sorted(self.simulation.cloud.kernel.state.nodes.items())
            if (n.spot or not spot) and n.state in {NodeState.READY, NodeState.CREATING}
        ]  # fmt: skip
        return self.random.choice(nodes) if nodes else None

    def _say(self, what, about=""):
        self.simulation.events[what] += 1
        self.simulation.say(f"* {what} {about}".rstrip())

    def preempt(self):
        node = self._node(spot=True)
        if node is not None:
            self._say("preemption", node.name)
            self.simulation.cloud.preempt(f"{node.zone}/{node.name}", notice=self.random.random() < 0.6)

    def trouble(self):
        kinds = (
            self.machine_death, self.odd_state, self.unhealthy, self.vanish, self.partition, self.no_ssh,
            self.stockout, self.vm_trouble,
        )  # fmt: skip
        self.random.choice(kinds)()

    def machine_death(self):
        node = self._node()
        if node is not None and node.workers:
            self._say("machine death", node.name)
            index = self.random.randrange(len(node.workers))
            try:
                self.simulation.cloud.kill_worker(f"{node.zone}/{node.name}", index)
            except LocalCloudError:
                return

    def odd_state(self):
        node = self._node()
        if node is None or node.state is not NodeState.READY:
            return
        state = self.random.choice(PASSING)
        self._say("odd state", f"{node.name} {state}")
        self.simulation.cloud.set_node_state(f"{node.zone}/{node.name}", state)
        if self.random.random() < 0.7:
            epoch = node.epoch
            self.simulation.scheduler.after(self.random.uniform(30, 1200), lambda: self._heal(node, epoch))

    def _heal(self, node, epoch):
        if node.epoch == epoch:
            node.enter(NodeState.READY)

    def unhealthy(self):
        node = self._node()
        if node is None or node.state is not NodeState.READY:
            return
        self._say("unhealthy", node.name)
        self.simulation.cloud.set_node_state(f"{node.zone}/{node.name}", "UNHEALTHY_MAINTENANCE")
        if self.random.random() < 0.5:
            key = (node.zone, node.name)
            self.simulation.scheduler.after(self.random.uniform(5, 600), lambda: self._recover(key))

    def _recover(self, key):
        with contextlib.suppress(LocalCloudError):  # it may be gone meanwhile
            self.simulation.cloud.set_node_state(f"{key[0]}/{key[1]}", "HEALTHY")

    def vanish(self):
        node = self._node()
        if node is not None:
            self._say("vanish", node.name)
            self.simulation.cloud.set_node_state(f"{node.zone}/{node.name}", "vanish")

    def partition(self):
        gangs = [g for g in self.simulation.machines.gangs.values() if g.alive and not g.over]
        if gangs:
            gang = self.random.choice(gangs)
            self._say("partition", gang.node)
            gang.heartbeat()
            gang.silent = True
            self.simulation.scheduler.after(
                self.random.uniform(60, 1500), lambda: setattr(gang, "silent", False)
            )

    def no_ssh(self):
        machines = self.simulation.cloud.machines()
        if machines:
            machine = self.random.choice(machines)
            self._say("no ssh", machine.id)
            self.simulation.machines.unreachable.add(machine.id)
            self.simulation.scheduler.after(
                self.random.uniform(60, 3000),
                lambda: self.simulation.machines.unreachable.discard(machine.id),
            )

    def stockout(self):
        zones = sorted({zone for d in self.simulation.case.deployments for zone in d.spec["tpu__zones"]})
        zone = self.random.choice(zones)
        self._say("stockout", zone)
        self._dry({zone}, set())
        self.simulation.scheduler.after(self.random.uniform(60, 3600), lambda: self._dry(set(), {zone}))

    def _dry(self, more, less):
        kernel = self.simulation.cloud.kernel
        kernel.settings = replace(kernel.settings, stockouts=(kernel.settings.stockouts | more) - less)

    def vm_trouble(self):
        vms = [v for _, v in sorted(self.simulation.cloud.kernel.state.instances.items())]
        if not vms:
            return
        vm = self.random.choice(vms)
        try:
            if vm.spot:
                self._say("vm preemption", vm.name)
                self.simulation.cloud.preempt(f"{vm.zone}/{vm.name}", notice=self.random.random() < 0.5)
            else:
                self._say("vm stopped by hand", vm.name)
                self.simulation.cloud.compute.stop(vm.zone, vm.name)
        except Exception as error:
            self.simulation.say(f"* spared: {type(error).__name__}")
