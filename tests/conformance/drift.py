"""
Print where the installed clients and Google's discovery documents differ: python -m tests.conformance.drift.

Fields and values of enums that stand on one side only. A field that only the document has is one that our
clients drop; a value that only the document has reaches us as a number.
"""

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from tests.conformance.discovery import document

CLIENTS = {"tpu.v2": "google.cloud.tpu_v2", "compute.v1": "google.cloud.compute_v1"}
# Of the 1,700 schemas of Compute, those that tpuctl reads or writes.
COMPUTE = frozenset({
    "AccessConfig", "AttachedDisk", "AttachedDiskInitializeParams", "Disk", "Firewall", "GuestAttributes",
    "Image", "Instance", "MachineType", "Metadata", "NetworkInterface", "Operation", "Project", "Quota",
    "Region", "Scheduling", "ServiceAccount", "ShieldedInstanceConfig", "Subnetwork", "Tags", "Zone",
})  # fmt: skip


def differences(service: str) -> Iterator[str]:
    """Yield one line for each difference between *service* and its client."""
    client, known = import_module(CLIENTS[service]), document(service)["schemas"]
    for name in sorted(known):
        message = getattr(client, name, None)
        if hasattr(message, "pb") and (service != "compute.v1" or name in COMPUTE):
            yield from _message(name, known[name], message.pb(message()).DESCRIPTOR)


def _message(name: str, schema: Mapping[str, Any], descriptor: Any) -> Iterator[str]:
    fields = {_plain(field.json_name): field for field in descriptor.fields}
    documented = {_plain(key): key for key in schema.get("properties", {}) if key != "kind"}
    yield from (
        f"{name}.{documented[key]}: only in the document" for key in sorted(documented.keys() - fields.keys())
    )
    missing = sorted(fields.keys() - documented.keys() - {"kind"})
    yield from (f"{name}.{fields[key].json_name}: only in the client" for key in missing)
    for key in sorted(documented.keys() & fields.keys()):
        values = _enum(schema["properties"][documented[key]])
        if values and fields[key].enum_type:
            extra = sorted(values - {value.name for value in fields[key].enum_type.values})
            yield from (f"{name}.{documented[key]}: value {value} only in the document" for value in extra)


def _enum(schema: Mapping[str, Any]) -> set[str]:
    return set(schema.get("enum") or schema.get("items", {}).get("enum") or ())


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def main() -> None:
    """Print the drift of all clients; the exit code does not judge it."""
    for service, client in CLIENTS.items():
        found = list(differences(service))
        sys.stdout.write(f"{service} (revision {document(service)['revision']}) and {client}: {len(found)}\n")
        sys.stdout.writelines(f"  {line}\n" for line in found)


if __name__ == "__main__":
    main()
