"""Parse the ssh-keys attribute as Google's guest agent does (docs/facts.md 2.4)."""

import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone

USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}$")
Accounts = dict[str, tuple[str, ...]]


def accounts(
    instance: Mapping[str, str], project: Mapping[str, str], now: datetime | None = None
) -> Accounts:
    """
    Return the public keys (`TYPE BASE64 [comment]`) of each user.

    OS Login disables ssh-keys; block-project-ssh-keys excludes the project's keys.
    """
    if _true(instance.get("enable-oslogin", project.get("enable-oslogin", ""))):
        return {}
    texts = [instance.get("ssh-keys", "")]
    if not _true(instance.get("block-project-ssh-keys", "")):
        texts.append(project.get("ssh-keys", ""))
    moment = now or datetime.now(timezone.utc)
    found: dict[str, list[str]] = {}
    for line in "\n".join(texts).splitlines():
        user, key = _entry(line.strip(), moment)
        if user and key not in found.setdefault(user, []):
            found[user].append(key)
    return {user: tuple(keys) for user, keys in found.items()}


def _entry(line: str, now: datetime) -> tuple[str, str]:
    """
    Parse `user:TYPE BASE64 comment`; return user and key, two "" to skip the line.

    The form `... google-ssh {"userName":..., "expireOn":...}` expires at its date; an unreadable date counts
    as expired.
    """
    user, _, key = line.partition(":")
    words = key.split()
    if not USER.match(user) or len(words) < 2:
        return "", ""
    if len(words) > 3 and words[2] == "google-ssh":
        try:
            until = datetime.strptime(json.loads(" ".join(words[3:]))["expireOn"], "%Y-%m-%dT%H:%M:%S%z")
        except (ValueError, KeyError, TypeError):
            return "", ""
        if until <= now:
            return "", ""
        return user, " ".join(words[:2])
    return user, key.strip()


def _true(value: str) -> bool:
    """Read a flag of the metadata: TRUE, true, 1, yes or y."""
    return value.strip().lower() in {"true", "1", "yes", "y"}
