"""Read public host keys from guest attributes: `hostkeys/TYPE` = base64 key, as the guest agent publishes them."""

from collections.abc import Iterable
from typing import Any

from orchestrator.errors import NotFoundError


def public_keys(items: Iterable[Any], what: str) -> tuple[str, ...]:
    """
    Return lines such as `ssh-ed25519 AAAA...`, sorted by type.

    Raise NotFoundError if there are none yet; *what* begins its message.
    """
    keys = tuple(sorted(f"{i.key} {i.value}" for i in items if i.namespace == "hostkeys" and i.value))
    if not keys:
        raise NotFoundError(
            f"{what}: none published yet",
            hint="wait until the machine has booted, then run the command again",
        )
    return keys
