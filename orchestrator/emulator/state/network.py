"""Model a project's networks, the choice of one for a machine, and firewall rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from orchestrator.emulator.state import api_errors, tables
from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.identifiers import is_rfc1035
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.values.operation import Api, Operation

DEFAULT = "default"
_DEFAULT_RULES = {
    "default-allow-ssh": ("0.0.0.0/0", [{"IPProtocol": "tcp", "ports": ["22"]}]),
    "default-allow-icmp": ("0.0.0.0/0", [{"IPProtocol": "icmp"}]),
    "default-allow-internal": ("10.128.0.0/9", [{"IPProtocol": "all"}]),
}
_OUTPUT_ONLY = ("kind", "id", "selfLink", "creationTimestamp", "created")


@dataclass(frozen=True)
class Vpc:
    """A network and its subnetworks, (name, address range) by region; *automatic*: one in every region."""

    name: str
    automatic: bool
    subnetworks: Mapping[str, tuple[str, str]]


@cache
def networks_of(described: tuple[str, ...]) -> Mapping[str, Vpc]:
    """Parse networks: NAME (automatic mode) and NAME/SUBNETWORK@REGION (custom mode)."""
    found: dict[str, Vpc] = {}
    for text in described:
        name, _, subnetwork = text.partition("/")
        if not subnetwork:
            ranges = {r: (name, f"10.{128 + 4 * index}.0.0/20") for index, r in enumerate(tables.regions())}
            found[name] = Vpc(name, True, ranges)
            continue
        own, _, region = subnetwork.partition("@")
        before = found[name].subnetworks if name in found else {}
        found[name] = Vpc(name, False, {**before, region: (own, f"10.{len(before)}.0.0/20")})
    return found


def vm_interface(described: tuple[str, ...], region: str, network: str, subnetwork: str) -> tuple[str, str]:
    """
    Return the names of a VM's network and subnetwork. Raise ApiError 400.

    The arguments are names or paths, and may be "". Texts of refusals: public logs (docs/facts.md 2.7).
    """
    known, field = networks_of(described), "resource.networkInterfaces[0]"
    wanted = _last(subnetwork)
    owners = [v.name for v in known.values() if wanted and v.subnetworks.get(region, ("",))[0] == wanted]
    name = _last(network) or (owners or [DEFAULT])[0]
    vpc = known.get(name)
    if vpc is None:
        gone = "The referenced network resource cannot be found."
        raise _invalid(f"'{field}.network': '{network or f'global/networks/{name}'}'. {gone}")
    found, _ = vpc.subnetworks.get(region, ("", ""))
    if not wanted and not vpc.automatic:
        text = "Subnetwork should be specified for custom subnetmode network"
        raise _invalid(f"'{field}': '{{  \"network\": \"{network}\"}}'. {text}")
    if not found or (wanted and wanted != found):
        gone = "The referenced subnetwork resource cannot be found."
        raise _invalid(f"'{field}.subnetwork': '{subnetwork}'. {gone}")
    return name, found


def lacking(described: tuple[str, ...], region: str, network: str, subnetwork: str) -> str:
    """
    Return what a TPU requests and the project lacks, such as `global/networks/default`, else "".

    A missing network or subnetwork means `default` (tpu v2 NetworkConfig).
    """
    name, wanted = _last(network) or DEFAULT, _last(subnetwork) or DEFAULT
    vpc = networks_of(described).get(name)
    if vpc is None:
        return f"global/networks/{name}"
    return "" if vpc.subnetworks.get(region, ("",))[0] == wanted else f"regions/{region}/subnetworks/{wanted}"


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _invalid(text: str) -> ApiError:
    return ApiError(400, "invalid", f"Invalid value for field {text}")


class Network:
    """
    The project's networks and its firewall rules, which filter nothing here.

    With the network `default` there are the rules that Google creates for it.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.vpcs = networks_of(kernel.settings.networks)
        for name, (source, allowed) in _DEFAULT_RULES.items() if DEFAULT in self.vpcs else ():
            rule = {"name": name, "sourceRanges": [source], "allowed": allowed, "priority": 65534}
            self._keep(rule)

    def firewalls(self) -> list[dict[str, Any]]:
        rules = self._kernel.state.firewalls
        return [rules[name] for name in sorted(rules)]

    def firewall(self, name: str) -> dict[str, Any]:
        """Return a rule. Raise ApiError 404."""
        if name not in self._kernel.state.firewalls:
            raise api_errors.missing(self._path(name))
        return self._kernel.state.firewalls[name]

    def insert_firewall(self, body: Mapping[str, Any]) -> Operation:
        """Create a rule from *body* (JSON of Firewall). Raise ApiError 400, 409."""
        name = str(body.get("name", ""))
        if not is_rfc1035(name):
            raise api_errors.invalid(f"Invalid value for field 'resource.name': '{name}'.")
        if name in self._kernel.state.firewalls:
            raise ApiError(409, "alreadyExists", f"The resource '{self._path(name)}' already exists")
        rule = self._keep(body)
        operation = self._begin("insert", name, int(rule["id"]))
        if operation.planned:
            del self._kernel.state.firewalls[name]
        return operation

    def delete_firewall(self, name: str) -> Operation:
        """Delete a rule. Raise ApiError 404."""
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
            Api.COMPUTE, "global", verb, self._path(name), numeric_id, target=CallTarget("", name)
        )
        self._kernel.proceed(operation, self._kernel.settings.latency.vm_change, "firewall.done")
        return operation

    def _path(self, name: str) -> str:
        return f"projects/{self._kernel.settings.project}/global/firewalls/{name}"
