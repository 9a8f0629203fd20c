"""Check the invariants I1, I2, I3 and I5 of tests/simulation/invariants.py at every moment."""

from collections import Counter, defaultdict

from orchestrator.domain import names
from tests.simulation import invariants
from tests.simulation.invariants import Live

DOUBLE_SECONDS = 120.0
"""Seconds that an older node may exist beside the newest while its deletion is requested again."""


class CloudChecks:
    """Checks after every advance of the clock; `verdict` holds the violations as texts."""

    def __init__(self, cloud):
        self.cloud, self.verdict, self.double_for = cloud, [], defaultdict(float)
        self.newest, self.most_in_use, self._since = {}, Counter(), cloud.clock.monotonic()

    def observe(self):
        now = self.cloud.clock.monotonic()
        spent, self._since = now - self._since, now
        for name in {live.labels.get(names.DEPLOYMENT_LABEL, "") for live in self.live()}:
            count = len(self.cloud.in_use(f"{name}-tpu-"))
            self.most_in_use[name] = max(self.most_in_use[name], count)
            self.double_for[name] = self.double_for[name] + spent if count > 1 else 0.0
            if self.double_for[name] > DOUBLE_SECONDS:
                self.blame(f"I2 {name}: {self.cloud.in_use(name)} are all in use")
        for bucket in self.cloud.buckets():
            self._saved(bucket)

    def _saved(self, bucket):
        steps = [step for step, _ in self.cloud.machines.complete(bucket)]
        newest = max(steps, default=None)
        self.blame(invariants.i3_never_back(self.newest.get(bucket), newest))
        self.newest[bucket] = newest

    def blame(self, violation):
        """Record a violation; nothing if *violation* is ""."""
        if violation and violation not in self.verdict:
            self.verdict.append(violation)

    def live(self, name=""):
        """Return all existing machines with their labels; only those of deployment *name* if given."""
        self.cloud.model.tick()
        state = self.cloud.model.kernel.state
        found = [Live("TPU", n.name, n.zone, n.body.get("labels", {})) for n in state.nodes.values()]
        found += [Live("VM", v.name, v.zone, dict(v.labels)) for v in state.instances.values()]
        return [one for one in found if one.name.startswith(name)]

    def findable(self, name, zones):
        """Record machines of a deployment that a deletion of *zones* would not find (I1)."""
        self.blame(invariants.i1_findable(self.live(f"{name}-"), name, zones))

    def gone(self, name):
        """Record machines that exist although `down` succeeded (I1)."""
        self.blame(invariants.i1_gone(self.live(f"{name}-")))

    def retries(self):
        """Record too many create requests of one kind within the last hour (I5)."""
        now, starts = self.cloud.clock.monotonic(), len(self.cloud.processes)
        for method in ("tpu.nodes.create", "compute.instances.insert"):
            self.blame(invariants.i5_bounded(self.cloud.asked(method), now, starts))
