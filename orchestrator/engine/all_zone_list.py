"""The TPUs of many zones by one call, where that leaves no doubt."""

from collections.abc import Sequence

from orchestrator.domain import names
from orchestrator.domain.all_zones import both, expected_in, within
from orchestrator.domain.observation import Node, Present, Sight, Unknown
from orchestrator.domain.ports import Nodes
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.errors import Retry

FEW = 2
"""So few zones are asked one by one: a list over all of them would save no call."""
VOUCHED = 600.0
"""Seconds for which a zone's own list shows that the project may see it."""


class WideLook:
    """
    List TPUs, and remember which zones have answered by themselves.

    A list over all zones leaves out those that the project may not see, without a word: of a zone that it
    does not show it tells something only if that zone has shown itself a short while ago.
    """

    def __init__(self) -> None:
        self._vouched_at = float("-inf")
        self._vouched: frozenset[str] = frozenset()

    def tpus(
        self, nodes: Nodes, spec: Spec, record: Record, zones: Sequence[str], now: float
    ) -> Sight[tuple[Node, ...]]:
        """
        Return our TPUs: where one should be by the zone's own list, in many others by one over all zones.

        Where the API refuses such a list, each zone is asked.
        """
        label, near = names.DEPLOYMENT_LABEL, expected_in(record, zones)
        far = [zone for zone in zones if zone not in near]
        if len(far) >= FEW and self._vouched.issuperset(far) and now - self._vouched_at < VOUCHED:
            wide = nodes.everywhere(label, spec.name)
            if not isinstance(wide, Unknown) or wide.retry is Retry.TRANSIENT:
                return both(nodes.labelled(label, spec.name, near), within(wide, far))
        found = nodes.labelled(label, spec.name, zones)
        if isinstance(found, Present):
            self._vouched, self._vouched_at = frozenset(zones), now
        return found
