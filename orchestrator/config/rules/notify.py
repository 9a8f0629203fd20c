"""Define the rules for notifications. No message repeats a URL, because many of them are secrets."""

import re
import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.config.setting_types import at
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.source.secret_refs import reference
from orchestrator.domain.spec import Spec

ENVIRONMENT = "env://"
_VARIABLE = re.compile(f"{ENVIRONMENT}[A-Za-z_][A-Za-z0-9_]*")
_SECRET_HOSTS = (
    "hooks.slack.com",
    "discord.com",
    "discordapp.com",
    "webhook.office.com",
    "chat.googleapis.com",
)
_HOW = "write secret://NAME and store the URL with: tpuctl secret set NAME; or write env://VARIABLE"


def _webhooks(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for number, text in enumerate(spec.notify.webhooks):
        if not is_reference(text):
            for message in _plain(text):
                yield SettingFinding(at("notify.webhooks", number), message, _HOW)


def _plain(text: str) -> Iterator[str]:
    """Yield the reasons against an address that is written in the file itself."""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:
        yield "is not a URL; it is not shown here"
        return
    here = host in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and here):
        yield "is neither an https URL nor a reference; it is not shown here"
    elif not host or re.search(r"[\s\0]", text):
        yield "is not a URL; it is not shown here"
    elif (
        # Anyone with the address can post, so it is a secret, and this file is shared and committed.
        parts.password or parts.username or parts.query or any(host.endswith(name) for name in _SECRET_HOSTS)
    ):
        yield "is a URL that lets anyone who knows it post; it is not shown here"


def _apprise(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for number, text in enumerate(spec.notify.apprise):
        if not is_reference(text):
            yield SettingFinding(
                at("notify.apprise", number), "is not a reference; it is not shown here", _HOW
            )


_OF_A_SHELL = frozenset({"|", ">", ">>", "<", "&&", "||", ";", "&", "2>&1"})


def _hooks(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for kind, command in spec.notify.hooks.items():
        try:
            # Split as it will be run: without a shell, so a pipe or a variable would be a plain word.
            words = shlex.split(command)
        except ValueError:
            words = []
        if not words or "\0" in command:
            hint = "write a program and its arguments, for example ./after.sh --upload"
            yield SettingFinding(at("notify.hooks", kind), "is not a command", hint)
        shell = next((word for word in words if word in _OF_A_SHELL), "")
        if shell:
            text = f"runs without a shell, so that {shell} is an argument of {words[0][:60]}"
            yield SettingFinding(at("notify.hooks", kind), text, "write: sh -c '...'", level=Level.WARN)


def _on_vm(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    """Warn about receivers that the loop on the VM cannot use."""
    if not spec.watch.on_vm:
        return
    if any(text.startswith(ENVIRONMENT) for text in spec.notify.webhooks):
        text = "variables of this computer are not available when the loop runs on the VM"
        yield SettingFinding("notify.webhooks", text, "write secret://NAME", level=Level.WARN)
    if spec.notify.apprise:
        text = "Apprise is not installed where the loop runs, on the VM"
        yield SettingFinding("notify.apprise", text, "add a webhook", level=Level.WARN)
    if spec.notify.hooks:
        text = "hooks run on this computer only, not when the loop runs on the VM"
        yield SettingFinding("notify.hooks", text, "add a webhook", level=Level.WARN)


def is_reference(text: str) -> bool:
    """Return whether an address is a reference to a secret or variable."""
    return reference(text) is not None or _VARIABLE.fullmatch(text) is not None


RULES = (
    SettingRule(("notify.webhooks",), _webhooks),
    SettingRule(("notify.apprise",), _apprise),
    SettingRule(("notify.hooks",), _hooks),
    SettingRule(("notify.webhooks", "notify.apprise", "notify.hooks", "watch.on_vm"), _on_vm),
)
