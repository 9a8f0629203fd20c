"""Create the receivers of notifications that the deployment file names."""

import os
from pathlib import Path

from orchestrator.app.secret import open_manager
from orchestrator.clock import SystemClock
from orchestrator.config.rules.notify import ENVIRONMENT
from orchestrator.domain.source.secret_refs import reference
from orchestrator.domain.spec import Spec
from orchestrator.engine.publish.receivers import Apprise, Hook, Webhook, try_all
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.planning.notifications import Notification

NOTIFICATIONS_OFF = "TPUCTL_NOTIFICATIONS_OFF"
"""The environment variable, set in a rehearsal, that switches notifications off."""


def try_receivers(spec: Spec, folder: Path, cloud: str) -> dict[str, TpuctlError | None]:
    """Send a test notification to all receivers; return for each its error, or None if it was delivered."""
    receivers = receivers_of(spec, folder, cloud)
    if not receivers:
        raise UsageError(
            "no notification targets are configured", hint="add `notify: {webhooks: [secret://NAME]}`",
            changed="nothing was sent",
        )  # fmt: skip
    now = SystemClock().now()
    return dict(
        try_all(
            receivers, Notification(f"{spec.name}-test-{now:.0f}", "test", now, spec.name, "a test of tpuctl")
        )
    )


def receivers_in_earnest(
    spec: Spec, folder: Path, cloud: str, *, hooks: bool
) -> list[Webhook | Apprise | Hook]:
    """Return the receivers of the file; in a rehearsal, none."""
    # Before addresses are resolved: a rehearsal has no secrets, so resolving would fail.
    return [] if os.environ.get(NOTIFICATIONS_OFF) else receivers_of(spec, folder, cloud, hooks=hooks)


def receivers_of(
    spec: Spec, folder: Path, cloud: str, *, hooks: bool = True
) -> list[Webhook | Apprise | Hook]:
    """Return all receivers of the file. Raise TpuctlError when an address cannot be read."""
    notify = spec.notify
    addresses: list[tuple[type[Webhook | Apprise], tuple[str, ...]]] = [
        (Webhook, notify.webhooks),
        (Apprise, notify.apprise),
    ]
    found: list[Webhook | Apprise | Hook] = [
        # Stored and shown by number, since the addresses are secrets.
        receiver(_address(text, spec, cloud), str(number), frozenset(notify.kinds))
        for receiver, texts in addresses
        for number, text in enumerate(texts, 1)
    ]
    return found + ([Hook(kind, line, folder) for kind, line in notify.hooks.items()] if hooks else [])


def _address(text: str, spec: Spec, cloud: str) -> str:
    """Resolve *text*: a secret, a variable of the environment, or the address itself."""
    ref = reference(text)
    if ref is not None:
        # Stripped, since secrets are often stored from a file with its final newline.
        return open_manager(spec.project, cloud)[0].read(ref).strip()
    if text.startswith(ENVIRONMENT):
        name = text.removeprefix(ENVIRONMENT)
        if not os.environ.get(name):
            raise UsageError(
                f"notify: the variable {name} is not set",
                hint=f"export {name}=https://...",
                changed="nothing was sent there",
            )
        return os.environ[name].strip()
    return text
