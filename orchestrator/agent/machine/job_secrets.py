"""
Read the job's secrets from Secret Manager as the machine's service account, just before the start.

Their values are in this process and in the job's environment, nowhere else.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Dict, Mapping
from urllib.parse import quote

from orchestrator.agent.cloud.metadata import Metadata, Tokens
from orchestrator.agent.cloud.transport import Reply, Transport, retrying
from orchestrator.agent.machine.emulator_guard import is_local_machine, secret_endpoint
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError, TransientError
from orchestrator.contract.secrets.redaction import Redactor

KEY = "TPUCTL_SECRETS"
SCHEME = "secret://"
ROLE = "roles/secretmanager.secretAccessor"
TIMEOUT = 20.0
"""Seconds for which one secret is requested; the start of the job waits for it."""
_NARROW = "ACCESS_TOKEN_SCOPE_INSUFFICIENT"


class SecretError(AgentError):
    """A secret that this machine cannot read, and what to do; not the job's fault."""

    def __init__(self, code: str, name: str, text: str, hint: str) -> None:
        super().__init__(f"{code}: secret {name}: {text}; {hint}")


@dataclass(frozen=True)
class WantedSecrets:
    """A variable of the job and the secret version whose value it gets."""

    variable: str
    name: str
    version: str


def wanted(environ: Mapping[str, str]) -> "list[WantedSecrets]":
    """Return the secrets that job.env refers to. Raise AgentError if it cannot be parsed."""
    try:
        named: Dict[str, str] = json.loads(environ.get(KEY) or "{}")
        return [_wanted(variable, text) for variable, text in named.items()]
    except (ValueError, AttributeError, TypeError) as error:
        raise AgentError(f"{KEY} of job.env cannot be read") from error


def _wanted(variable: str, text: str) -> WantedSecrets:
    if not text.startswith(SCHEME):
        raise ValueError("no reference")
    name, _, version = text[len(SCHEME) :].partition("/versions/")
    return WantedSecrets(variable, name, version or "latest")


class JobSecrets:
    """Reads the job's secrets; *redactor* learns each value before it is passed on."""

    def __init__(self, environ: Mapping[str, str], metadata: Metadata, redactor: Redactor) -> None:
        self._environ = environ
        self._base = secret_endpoint(environ)
        self._rehearsal = is_local_machine(environ)
        self._project = environ.get("TPUCTL_PROJECT", "")
        self._metadata = metadata
        self._tokens = Tokens(metadata, optional=False)
        self._transport = Transport()
        self._redactor = redactor

    def read(self) -> Dict[str, str]:
        """
        Return the values by variable; uncached, so that a new version applies at the next start.

        Raise SecretError, which names the secret and the remedy, or TransientError.
        """
        return {one.variable: self._read(one) for one in wanted(self._environ)}

    def _read(self, one: WantedSecrets) -> str:
        path = f"/v1/projects/{quote(self._project)}/secrets/{quote(one.name)}/versions/{one.version}:access"

        def once(remaining: float) -> Reply:
            headers = self._tokens.headers()
            reply = self._transport.send("GET", self._base + path, headers, timeout=min(10.0, remaining))
            if reply.status in (401, 408, 429) or reply.status >= 500:
                # The token may have been revoked; the next try requests a new one.
                self._tokens.forget()
                raise TransientError(f"secret {one.name}: Secret Manager answers {reply.status}")
            return reply

        reply = retrying(once, TIMEOUT)
        if reply.status != 200:
            raise self._refused(one, reply)
        value = _value(one, reply)
        # First of all, since the job may print the value in its first line.
        self._redactor.know(one.name, value)
        return value

    def _refused(self, one: WantedSecrets, reply: Reply) -> SecretError:
        error = _error(reply)
        store = f"run: tpuctl secret set {one.name}" + (" --cloud local" if self._rehearsal else "")
        grant = f"gcloud secrets add-iam-policy-binding {one.name} --member=serviceAccount:"
        if reply.status == 403 and _NARROW in json.dumps(error):
            hint = "recreate the machine: `tpuctl down`, then `tpuctl up` (checkpoints stay in the bucket)"
            return SecretError("TPU-252", one.name, "the machine lacks the scope cloud-platform", hint)
        if reply.status == 403:
            text = f"the machine's account may not read it; it needs {ROLE} on this secret"
            return SecretError("TPU-251", one.name, text, f"run: {grant}{self._account()} --role={ROLE}")
        if reply.status == 404:
            text = f"there is no version {one.version} in project {self._project}"
            return SecretError("TPU-250", one.name, text, store)
        text = str(error.get("message", ""))[:200] or f"Secret Manager answers {reply.status}"
        return SecretError("TPU-250", one.name, text, store)

    def _account(self) -> str:
        try:
            return self._metadata.get("instance/service-accounts/default/email").text.strip()
        except AgentError:
            return "ACCOUNT"


def _error(reply: Reply) -> Dict[str, Any]:
    found = (json_value(reply.body) or {}).get("error")
    return found if isinstance(found, dict) else {}


def _value(one: WantedSecrets, reply: Reply) -> str:
    """Return the secret's text. Raise SecretError, without the value, for text that no environment can hold."""
    try:
        value = base64.b64decode(json.loads(reply.body)["payload"]["data"]).decode("utf-8")
    except (ValueError, KeyError, TypeError):
        value = "\0"
    if "\0" in value:
        text = "its value is not text, so no environment variable can hold it"
        raise SecretError("TPU-250", one.name, text, f"run: tpuctl secret set {one.name}")
    return value[:-1] if value.endswith("\n") and value.count("\n") == 1 else value
