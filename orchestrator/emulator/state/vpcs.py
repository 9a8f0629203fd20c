"""Which networks a project has, and on which one a machine comes to lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from orchestrator.emulator.state import tables
from orchestrator.emulator.state.errors import ApiError

DEFAULT = "default"


@dataclass(frozen=True)
class Vpc:
    """Describe a network and its subnetworks by region, (name, address range) each; *automatic*: in all."""

    name: str
    automatic: bool
    subnetworks: Mapping[str, tuple[str, str]]


@cache
def networks_of(described: tuple[str, ...]) -> Mapping[str, Vpc]:
    """Return the networks by name, from NAME (automatic mode) and NAME/SUBNETWORK@REGION (custom mode)."""
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
    Return the names of network and subnetwork that a VM gets; errors: ApiError 400.

    Names or paths, each may be empty. Text of the refusals: public logs (docs/facts.md 2.7).
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
    Return what a TPU asks for and the project lacks, such as `global/networks/default`, else an empty text.

    Of network and subnetwork each counts as `default` when it is left out (tpu v2 NetworkConfig).
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
