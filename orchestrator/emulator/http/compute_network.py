"""Calls on networks, subnetworks and firewall rules."""

from typing import Any

from orchestrator.emulator.http.compute_shapes import link, named_resource
from orchestrator.emulator.http.dispatch import Call, body_of
from orchestrator.emulator.http.instances import once
from orchestrator.emulator.http.paging import aggregated, listed
from orchestrator.emulator.http.router import Response
from orchestrator.emulator.state import body_shapes, tables, vm_rules
from orchestrator.emulator.state.identifiers import compute_timestamp
from orchestrator.emulator.state.network import Vpc
from orchestrator.emulator.state.world import LocalCloud

_NETWORK_ID = 1000000000


class NetworkRequests:
    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._own = f"projects/{cloud.settings.project}"

    def networks(self, call: Call) -> Response:
        shown = [self._network(vpc) for vpc in self._cloud.network.vpcs.values()]
        return listed(call.request, "network", f"{self._own}/global/networks", shown)

    def network(self, call: Call) -> Response:
        vpc = self._cloud.network.vpcs.get(call.name)
        if vpc is None:
            raise vm_rules.missing(f"{self._own}/global/networks/{call.name}")
        return Response.of(self._network(vpc))

    def effective(self, call: Call) -> Response:
        """Answer networks.getEffectiveFirewalls; the local cloud has no policies above a network's own rules."""
        self.network(call)
        return Response.of({"firewalls": [self._rule(rule) for rule in self._cloud.network.firewalls()]})

    def subnets(self, call: Call) -> Response:
        path = f"{self._own}/regions/{call.region}/subnetworks"
        return listed(call.request, "subnetwork", path, self._subnets(call.region))

    def subnets_everywhere(self, call: Call) -> Response:
        scopes = {f"regions/{region}": self._subnets(region) for region in tables.regions()}
        return aggregated(call.request, "subnetworks", f"{self._own}/aggregated/subnetworks", dict(scopes))

    def subnet(self, call: Call) -> Response:
        found = [one for one in self._subnets(call.region) if one["name"] == call.name]
        if not found:
            raise vm_rules.missing(f"{self._own}/regions/{call.region}/subnetworks/{call.name}")
        return Response.of(found[0])

    def firewalls(self, call: Call) -> Response:
        rules = [self._rule(rule) for rule in self._cloud.network.firewalls()]
        return listed(call.request, "firewall", f"{self._own}/global/firewalls", rules)

    def firewall(self, call: Call) -> Response:
        return Response.of(self._rule(self._cloud.network.firewall(call.name)))

    def insert_firewall(self, call: Call) -> Response:
        insert = self._cloud.network.insert_firewall
        return once(self._cloud, call.request, lambda: insert(body_of(call.request, body_shapes.FIREWALL)))

    def delete_firewall(self, call: Call) -> Response:
        return once(self._cloud, call.request, lambda: self._cloud.network.delete_firewall(call.name))

    def _network(self, vpc: Vpc) -> dict[str, Any]:
        subnets = [
            link(f"{self._own}/regions/{region}/subnetworks/{name}")
            for region, (name, _) in vpc.subnetworks.items()
        ]
        number = _NETWORK_ID + 100_000 * list(self._cloud.network.vpcs).index(vpc.name)
        path = f"{self._own}/global/networks/{vpc.name}"
        return named_resource(
            "network", path, number, autoCreateSubnetworks=vpc.automatic, subnetworks=subnets
        )

    def _subnets(self, region: str) -> list[dict[str, Any]]:
        if region not in tables.regions():
            raise vm_rules.missing(f"{self._own}/regions/{region}")
        vpcs = enumerate(self._cloud.network.vpcs.values())
        return [self._subnet(region, vpc, 100_000 * at) for at, vpc in vpcs if region in vpc.subnetworks]

    def _subnet(self, region: str, vpc: Vpc, offset: int) -> dict[str, Any]:
        name, addresses = vpc.subnetworks[region]
        return named_resource(
            "subnetwork",
            f"{self._own}/regions/{region}/subnetworks/{name}",
            _NETWORK_ID + offset + 1 + list(tables.regions()).index(region),
            region=link(f"{self._own}/regions/{region}"),
            network=link(f"{self._own}/global/networks/{vpc.name}"),
            ipCidrRange=addresses,
            privateIpGoogleAccess=True,
        )

    def _rule(self, rule: dict[str, Any]) -> dict[str, Any]:
        fields = {
            key: value for key, value in rule.items() if key not in ("id", "name", "created", "network")
        }
        path = f"{self._own}/global/firewalls/{rule['name']}"
        network = link(
            f"{self._own}/global/networks/{str(rule.get('network', 'default')).rpartition('/')[2]}"
        )
        created = compute_timestamp(rule["created"])
        return named_resource(
            "firewall", path, int(rule["id"]), network=network, creationTimestamp=created, **fields
        )
