"""Public host keys as the guest agent publishes them: guest attributes `hostkeys/TYPE` = base64 key."""

from collections.abc import Iterable
from typing import Any

from orchestrator.errors import NotFoundError


def public_keys(items: Iterable[Any], what: str) -> tuple[str, ...]:
    """
    Return lines such as `ssh-ed25519 AAAA...`, sorted by type.

    Raise NotFoundError, opened by *what*, when there are none yet.
    """
    keys = tuple(sorted(f"{i.key} {i.value}" for i in items if i.namespace == "hostkeys" and i.value))
    if not keys:
        raise NotFoundError(f"{what}: none published yet", hint="The machine is still starting.")
    return keys
