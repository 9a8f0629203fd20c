"""Which method of which port is being called: from `domain.ports` and `domain.remote`, so that a new one is met."""

import inspect
import re
from dataclasses import fields, replace
from pathlib import Path

from orchestrator.domain import ports, remote
from orchestrator.domain.observation import Present

READING = frozenset(
    {
        "below",
        "observe",
        "inspect",
        "labelled",
        "list_all_zones",
        "poll",
        "host_keys",
        "disk_users",
        "read",
        "sha256",
        "download",
        "list",
    }
)
"""Methods that change nothing; every other one is taken for one that does."""
PORTS = {
    "buckets": "Buckets",
    "vms": "Vms",
    "nodes": "Nodes",
    "queued": "QueuedResources",
    "store": "Store",
    "remote": "Remote",
}
LISTS = frozenset({"Nodes.labelled", "QueuedResources.labelled"})
SEAMS = {ports.__name__, remote.__name__}
ENGINE = Path(ports.__file__).parents[1] / "engine"


def mutating_methods():
    """Return the names of all methods of all ports that may change something."""
    everything = [*inspect.getmembers(ports, inspect.isclass), *inspect.getmembers(remote, inspect.isclass)]
    protocols = [found for _, found in everything if is_port(found)]
    return {
        f"{port.__name__}.{name}"
        for port in protocols
        for name, _ in inspect.getmembers(port, inspect.isfunction)
        if not name.startswith("_") and name not in READING
    }


def called_methods():
    """Return those of them that the engine calls, whatever it names the port: by name, port for port."""
    source = "\n".join(path.read_text() for path in sorted(ENGINE.rglob("*.py")))
    found, fields_of = set(), {port: field for field, port in PORTS.items()}
    for name in mutating_methods():
        port, _, method = name.partition(".")
        if re.search(rf"\b_?{fields_of.get(port, port.lower())}\.{method}\(", source):
            found.add(name)
    return found


def is_port(found):
    """Return whether a class is one of the seams."""
    return getattr(found, "_is_protocol", False) and found.__module__ in SEAMS


class Port:
    """Hand calls on to an adapter, and let the lab know which method is at work."""

    def __init__(self, name, adapter, lab):
        self._name, self._adapter, self._stage = name, adapter, lab

    def __getattr__(self, method):
        found, name = getattr(self._adapter, method), f"{self._name}.{method}"
        if not callable(found):
            return found

        def call(*words, **more):
            calling = self._stage.calling
            calling.append(name)
            try:
                if self._name != "Remote":
                    return found(*words, **more)
                # What goes to machines makes no call of the cloud: it is a step by itself.
                return self._stage.step("over SSH", lambda: found(*words, **more))
            finally:
                calling.pop()

        def listed(*words, **more):
            observed = found(*words, **more)
            if self._stage.clock.now() >= self._stage.hidden_until or not isinstance(observed, Present):
                return observed
            return Present(tuple(n for n in observed.value if n.created_at < self._stage.hidden_since))

        return listed if name in LISTS else call


def watched(cloud, lab):
    """Return the adapters of a cloud, each behind its port."""
    known = {field.name for field in fields(cloud)}
    assert set(PORTS) <= known
    wrapped = {
        name: Port(port, getattr(cloud, name), lab) for name, port in PORTS.items() if name != "remote"
    }
    return replace(cloud, **wrapped)
