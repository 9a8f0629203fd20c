"""Networks, their subnetworks, and firewall rules."""

from collections.abc import Mapping
from typing import Any

from orchestrator.emulator.state import vm_rules
from orchestrator.emulator.state.errors import ApiError
from orchestrator.emulator.state.kernel import Kernel, Place
from orchestrator.emulator.state.names import is_rfc1035
from orchestrator.emulator.state.operations import Api, Operation
from orchestrator.emulator.state.vpcs import DEFAULT, networks_of

_DEFAULT_RULES = {
    "default-allow-ssh": ("0.0.0.0/0", [{"IPProtocol": "tcp", "ports": ["22"]}]),
    "default-allow-icmp": ("0.0.0.0/0", [{"IPProtocol": "icmp"}]),
    "default-allow-internal": ("10.128.0.0/9", [{"IPProtocol": "all"}]),
}

_OUTPUT_ONLY = ("kind", "id", "selfLink", "creationTimestamp", "created")


class Network:
    """
    Keep the networks of the project and its firewall rules, which filter nothing here.

    The rules that Google makes with the network `default` are there when it is.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        kernel.handlers["firewall.done"] = self._done
        self.vpcs = networks_of(kernel.settings.networks)
        for name, (source, allowed) in _DEFAULT_RULES.items() if DEFAULT in self.vpcs else ():
            rule = {"name": name, "sourceRanges": [source], "allowed": allowed, "priority": 65534}
            self._keep(rule)

    def firewalls(self) -> list[dict[str, Any]]:
        """Return the firewall rules by name."""
        rules = self._kernel.state.firewalls
        return [rules[name] for name in sorted(rules)]

    def firewall(self, name: str) -> dict[str, Any]:
        """Return a rule; errors: ApiError 404."""
        if name not in self._kernel.state.firewalls:
            raise vm_rules.missing(self._path(name))
        return self._kernel.state.firewalls[name]

    def insert_firewall(self, body: Mapping[str, Any]) -> Operation:
        """Create a rule from *body* (JSON of Firewall); errors: ApiError 400, 409."""
        name = str(body.get("name", ""))
        if not is_rfc1035(name):
            raise vm_rules.invalid(f"Invalid value for field 'resource.name': '{name}'.")
        if name in self._kernel.state.firewalls:
            raise ApiError(409, "alreadyExists", f"The resource '{self._path(name)}' already exists")
        rule = self._keep(body)
        operation = self._begin("insert", name, int(rule["id"]))
        if operation.planned:
            del self._kernel.state.firewalls[name]
        return operation

    def delete_firewall(self, name: str) -> Operation:
        """Delete a rule; errors: ApiError 404."""
        operation = self._begin("delete", name, int(self.firewall(name)["id"]))
        if operation.planned is None:
            del self._kernel.state.firewalls[name]
        return operation

    def _keep(self, body: Mapping[str, Any]) -> dict[str, Any]:
        defaults = {"direction": "INGRESS", "priority": 1000, "disabled": False}
        own = {"id": str(self._kernel.numeric_id()), "created": self._kernel.state.time}
        given = {key: value for key, value in body.items() if key not in _OUTPUT_ONLY}
        rule = {**defaults, **given, **own}
        self._kernel.state.firewalls[rule["name"]] = rule
        return rule

    def _begin(self, verb: str, name: str, numeric_id: int) -> Operation:
        operation = self._kernel.begin(
            Api.COMPUTE, "global", verb, self._path(name), numeric_id, place=Place("", name)
        )
        self._kernel.proceed(operation, self._kernel.settings.latency.vm_change, "firewall.done")
        return operation

    def _path(self, name: str) -> str:
        return f"projects/{self._kernel.settings.project}/global/firewalls/{name}"

    def _done(self, operation_name: str) -> None:
        operation = self._kernel.state.operations[operation_name]
        self._kernel.finish(operation, operation.planned)
