"""
Calls on networks, subnetworks and firewall rules.
"""

from typing import Any

from orchestrator.local.model import shapes, vm_rules
from orchestrator.local.model.names import compute_timestamp
from orchestrator.local.model.world import LocalCloud
from orchestrator.local.wire.compute_lists import aggregated, listed
from orchestrator.local.wire.compute_shapes import link, named_resource
from orchestrator.local.wire.dispatch import Call, body_of
from orchestrator.local.wire.http import Response
from orchestrator.local.wire.instances import once

_NETWORK_ID = 1000000000


class NetworkRequests:
    """
    Answer the calls on the network.
    """

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._own = f"projects/{cloud.settings.project}"

    def networks(self, call: Call) -> Response:
        """
        Answer networks.list.
        """
        return listed(call.request, "network", f"{self._own}/global/networks", [self._network()])

    def network(self, call: Call) -> Response:
        """
        Answer networks.get.
        """
        if call.name != "default":
            raise vm_rules.missing(f"{self._own}/global/networks/{call.name}")
        return Response.of(self._network())

    def subnets(self, call: Call) -> Response:
        """
        Answer subnetworks.list.
        """
        path = f"{self._own}/regions/{call.region}/subnetworks"
        return listed(call.request, "subnetwork", path, [self._subnet(call.region)])

    def subnets_everywhere(self, call: Call) -> Response:
        """
        Answer subnetworks.aggregatedList.
        """
        scopes = {f"regions/{region}": [self._subnet(region)] for region in self._cloud.network.subnets()}
        return aggregated(call.request, "subnetworks", f"{self._own}/aggregated/subnetworks", dict(scopes))

    def subnet(self, call: Call) -> Response:
        """
        Answer subnetworks.get.
        """
        if call.name != "default":
            raise vm_rules.missing(f"{self._own}/regions/{call.region}/subnetworks/{call.name}")
        return Response.of(self._subnet(call.region))

    def firewalls(self, call: Call) -> Response:
        """
        Answer firewalls.list.
        """
        rules = [self._rule(rule) for rule in self._cloud.network.firewalls()]
        return listed(call.request, "firewall", f"{self._own}/global/firewalls", rules)

    def firewall(self, call: Call) -> Response:
        """
        Answer firewalls.get.
        """
        return Response.of(self._rule(self._cloud.network.firewall(call.name)))

    def insert_firewall(self, call: Call) -> Response:
        """
        Answer firewalls.insert.
        """
        return once(
            self._cloud,
            call.request,
            lambda: self._cloud.network.insert_firewall(body_of(call.request, shapes.FIREWALL)),
        )

    def delete_firewall(self, call: Call) -> Response:
        """
        Answer firewalls.delete.
        """
        return once(self._cloud, call.request, lambda: self._cloud.network.delete_firewall(call.name))

    def _network(self) -> dict[str, Any]:
        subnets = [
            link(f"{self._own}/regions/{r}/subnetworks/default") for r in self._cloud.network.subnets()
        ]
        path = f"{self._own}/global/networks/default"
        return named_resource("network", path, _NETWORK_ID, autoCreateSubnetworks=True, subnetworks=subnets)

    def _subnet(self, region: str) -> dict[str, Any]:
        ranges = self._cloud.network.subnets()
        if region not in ranges:
            raise vm_rules.missing(f"{self._own}/regions/{region}")
        number = _NETWORK_ID + 1 + list(ranges).index(region)
        return named_resource(
            "subnetwork",
            f"{self._own}/regions/{region}/subnetworks/default",
            number,
            region=link(f"{self._own}/regions/{region}"),
            network=link(f"{self._own}/global/networks/default"),
            ipCidrRange=ranges[region],
            privateIpGoogleAccess=True,
        )

    def _rule(self, rule: dict[str, Any]) -> dict[str, Any]:
        fields = {
            key: value for key, value in rule.items() if key not in ("id", "name", "created", "network")
        }
        path = f"{self._own}/global/firewalls/{rule['name']}"
        network = link(f"{self._own}/global/networks/default")
        created = compute_timestamp(rule["created"])
        return named_resource(
            "firewall", path, int(rule["id"]), network=network, creationTimestamp=created, **fields
        )
