"""What must hold in a cloud at every moment, whoever does what: I1, I2, I3 and I5 as far as a moment shows them."""

from collections import Counter, defaultdict

from orchestrator.domain import names
from tests.simulation import invariants
from tests.simulation.invariants import Live

DOUBLE_SECONDS = 120.0
"""Seconds for which an older node may stand beside the newest while its deletion is requested again."""


class Checks:
    """Look whenever time passes; `verdict` holds what was wrong, in words."""

    def __init__(self, cloud):
        self.cloud, self.verdict, self.double_for = cloud, [], defaultdict(float)
        self.newest, self.most_in_use, self._since = {}, Counter(), cloud.clock.monotonic()

    def look(self):
        """Checks this moment."""
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

    def blame(self, problem):
        """Note what is wrong; nothing when *problem* is empty."""
        if problem and problem not in self.verdict:
            self.verdict.append(problem)

    def live(self, name=""):
        """Return all machines that exist, with their labels; of one deployment with *name*."""
        self.cloud.model.tick()
        state = self.cloud.model.kernel.state
        found = [Live("TPU", n.name, n.zone, n.body.get("labels", {})) for n in state.nodes.values()]
        found += [Live("VM", v.name, v.zone, dict(v.labels)) for v in state.instances.values()]
        return [one for one in found if one.name.startswith(name)]

    def findable(self, name, zones):
        """Blame for machines of a deployment that a sweep of *zones* would not find (I1)."""
        self.blame(invariants.i1_findable(self.live(f"{name}-"), name, zones))

    def gone(self, name):
        """Blame for machines that are there although `down` ended well (I1)."""
        self.blame(invariants.i1_gone(self.live(f"{name}-")))

    def retries(self):
        """Blame for too many asks of one kind within the last hour (I5)."""
        now, starts = self.cloud.clock.monotonic(), len(self.cloud.processes)
        for method in ("tpu.nodes.create", "compute.instances.insert"):
            self.blame(invariants.i5_bounded(self.cloud.asked(method), now, starts))
