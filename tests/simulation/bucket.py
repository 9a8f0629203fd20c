"""The bucket of a simulated run as its machines use it, without the official clients."""

from collections import defaultdict

from orchestrator.contract.bucket import uncommitted_manifest
from orchestrator.contract.bucket.completeness import completed_by
from orchestrator.contract.bucket.manifest import parse, parse_name
from orchestrator.contract.bucket.object_names import CHECKPOINTS, GANG
from orchestrator.contract.machine_errors import DamagedError
from orchestrator.domain.ports import StoredObject
from orchestrator.emulator.state.storage.stored import Preconditions


class SimulatedBucket:
    """A bucket of the local cloud, or a folder of one: objects, and what the agent makes of their names."""

    def __init__(self, storage, name, prefix=""):
        self.storage, self.name, self.prefix = storage, name, prefix

    @property
    def exists(self):
        return self.name in self.storage.buckets._buckets

    def put(self, name, data, new=False):
        """Write an object; with *new* only if there is none. Return whether it was written."""
        if not self.exists or (new and self.get(name) is not None):
            return False
        self.storage.objects.insert(self.name, self.prefix + name, data, {}, Preconditions())
        return True

    def get(self, name):
        held = self._held(name)
        return None if held is None else self.storage.objects.read(held)

    def generation(self, name):
        held = self._held(name)
        return None if held is None else held.generation

    def _held(self, name):
        return self.storage.objects._objects.get(self.name, {}).get(self.prefix + name)

    def listed(self, prefix):
        found = ((name, self._held(name)) for name in self.names(prefix))
        return [StoredObject(name, o.size, o.generation, o.updated) for name, o in found]

    def names(self, prefix=""):
        start, cut = self.prefix + prefix, len(self.prefix)
        return [n[cut:] for n in self.storage.objects._names.get(self.name, ()) if n.startswith(start)]

    def delete(self, name):
        if self.get(name) is not None:
            self.storage.objects.delete(self.name, self.prefix + name, None, Preconditions())

    def manifests(self):
        """Return the readable manifests by (step, incarnation)."""
        found = defaultdict(list)
        for name in self.names(CHECKPOINTS):
            key = parse_name(name)
            if key is not None:
                try:
                    found[key[:2]].append(parse(self.get(name), name))
                except DamagedError:
                    continue
        return found

    def uncommitted(self):
        """Return the manifests of uncommitted files."""
        found = [
            name
            for name in self.names(uncommitted_manifest.UNCOMMITTED)
            if uncommitted_manifest.parse_name(name)
        ]
        return [uncommitted_manifest.parse(self.get(name), name) for name in found]

    def complete(self):
        """Return the complete checkpoints, newest first."""
        found = (completed_by(group) for group in self.manifests().values())
        return sorted((one for one in found if one is not None), reverse=True)

    def newest_gang(self):
        """Return the highest incarnation that has started."""
        started = (int(n[len(GANG) :].split("/")[0]) for n in self.names(GANG))
        return max(started, default=0)
