"""
Emulate Secret Manager: secrets, their versions and values.

Values are stored in a file of their own, readable by its owner only.
"""

import base64
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.clock import Clock
from orchestrator.emulator.state.api_errors import ApiError, cases
from orchestrator.private_folders import private_file

ENABLED, DISABLED, DESTROYED = "ENABLED", "DISABLED", "DESTROYED"
MAX_BYTES = 64 * 1024


@dataclass
class Version:
    """One version; *data* is base64, "" once it is destroyed. *checked*: its creator sent a checksum."""

    number: int
    created: float
    data: str
    state: str = ENABLED
    checked: bool = False


@dataclass
class Secret:
    """One secret with all of its versions and its IAM policy."""

    name: str
    created: float
    labels: dict[str, str] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    policy: dict[str, Any] = field(default_factory=dict)


class Secrets:
    """
    The secrets of a local cloud; safe from any thread.

    *path* is the file that stores them; without it they live as long as this object.
    """

    def __init__(self, clock: Clock, number: int, path: Path | None = None) -> None:
        self._clock = clock
        self._number = number
        self._path = path
        self._lock = threading.RLock()
        self._held: dict[str, Secret] = _loaded(path)

    def create(self, name: str, body: Mapping[str, Any]) -> Secret:
        """Create a secret without a version. Raise ApiError 409, 400."""
        with self._lock:
            if name in self._held:
                raise self._error("already exists", name)
            if not name or "replication" not in body:
                raise ApiError(400, "INVALID_ARGUMENT", "The request must name a secret and its replication.")
            self._held[name] = Secret(name, self._clock.now(), dict(body.get("labels", {})))
            self._save()
            return self._held[name]

    def all(self) -> list[Secret]:
        with self._lock:
            return [self._held[name] for name in sorted(self._held)]

    def get(self, name: str) -> Secret:
        """Return a secret. Raise ApiError 404."""
        with self._lock:
            if name not in self._held:
                raise self._error("secret not found", name)
            return self._held[name]

    def delete(self, name: str) -> None:
        """Delete a secret with all versions. Raise ApiError 404."""
        with self._lock:
            self.get(name)
            del self._held[name]
            self._save()

    def add(self, name: str, data: str, *, checked: bool = False) -> Version:
        """Add a version with *data* in base64. Raise ApiError 404, 400."""
        with self._lock:
            secret = self.get(name)
            if not 0 < len(base64.b64decode(data)) <= MAX_BYTES:
                raise ApiError(400, "INVALID_ARGUMENT", "The payload must have 1 to 65536 bytes.")
            version = Version(len(secret.versions) + 1, self._clock.now(), data, checked=checked)
            secret.versions.append(version)
            self._save()
            return version

    def version(self, name: str, number: str) -> Version:
        """Return a version by number or `latest`. Raise ApiError 404."""
        with self._lock:
            versions = self.get(name).versions
            if number == "latest":
                number = str(len(versions))
            found = [version for version in versions if str(version.number) == number]
            if not found:
                raise self._error("version not found", name, version=number)
            return found[0]

    def access(self, name: str, number: str) -> Version:
        """Return a version whose value may be read. Raise ApiError 404, or 400 for a disabled one."""
        version = self.version(name, number)
        if version.state != ENABLED:
            raise self._error("version disabled", name, version=str(version.number), state=version.state)
        return version

    def turn(self, name: str, number: str, state: str) -> Version:
        """Enable, disable or destroy a version. Raise ApiError 404, or 400 for a destroyed one."""
        with self._lock:
            version = self.version(name, number)
            if version.state == DESTROYED:
                raise self._error("version disabled", name, version=number, state=DESTROYED)
            version.state = state
            version.data = "" if state == DESTROYED else version.data
            self._save()
            return version

    def set_policy(self, name: str, policy: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a secret's IAM policy, which is not enforced here. Raise ApiError 404."""
        with self._lock:
            self.get(name).policy = dict(policy)
            self._save()
            return dict(policy)

    def _error(self, case: str, name: str, **values: str) -> ApiError:
        return cases()["secretmanager v1", case].error(number=self._number, name=name, **values)

    def _save(self) -> None:
        if self._path is None:
            return
        text = json.dumps({name: asdict(secret) for name, secret in self._held.items()})
        private_file(self._path, text.encode())


def _loaded(path: Path | None) -> dict[str, Secret]:
    if path is None or not path.exists():
        return {}
    body = json.loads(path.read_text())
    return {
        name: Secret(**{**held, "versions": [Version(**version) for version in held["versions"]]})
        for name, held in body.items()
    }
