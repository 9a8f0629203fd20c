"""The TPU node that this machine is a worker of: its name as the platform tells it, and two calls about it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Tuple
from urllib.parse import quote

from orchestrator.agent.metadata import Metadata, Tokens
from orchestrator.agent.rehearsal import tpu_endpoint
from orchestrator.agent.transport import Reply, Transport, time_of
from orchestrator.contract.machine_errors import AgentError, FinalError, TransientError

SECONDS = 20.0
_LINE = re.compile(r"^(\w+): '(.*)'$", re.MULTILINE)


@dataclass(frozen=True)
class OwnNode:
    """Name the node."""

    project: str
    zone: str
    name: str

    @property
    def path(self) -> str:
        """Return the resource name."""
        return f"projects/{self.project}/locations/{self.zone}/nodes/{self.name}"


def own_node(metadata: Metadata) -> OwnNode:
    """
    Return the node as the metadata server names it; no file of this machine is believed.

    Raise AgentError when the server does not tell project, zone and name.
    """
    facts = dict(_LINE.findall(metadata.get("instance/attributes/tpu-env").text))
    zone = metadata.get("instance/zone").text.strip().rpartition("/")[2]
    project, name = facts.get("CONSUMER_PROJECT_ID", ""), facts.get("NODE_ID", "")
    if not (project and zone and name):
        raise AgentError("the metadata server does not name project, zone and node")
    return OwnNode(project, zone, name)


class NodeApi:
    """
    Look at one node and delete it, as the machine's service account.

    Calls raise TransientError for what may pass, FinalError for a refusal.
    """

    def __init__(self, environ: Mapping[str, str], metadata: Metadata) -> None:
        self._base = tpu_endpoint(environ)
        self._tokens = Tokens(metadata, optional=False)
        self._transport = Transport()

    def get(self, node: OwnNode) -> Tuple[Dict[str, Any], float]:
        """Return the node's resource and the time by the API's clock."""
        reply = self._call("GET", node)
        value: Dict[str, Any] = json.loads(reply.body)
        return value, time_of(reply)

    def delete(self, node: OwnNode) -> None:
        """Ask for the node's deletion; one that is gone is fine."""
        self._call("DELETE", node, gone_is_fine=True)

    def _call(self, method: str, node: OwnNode, gone_is_fine: bool = False) -> Reply:
        url = f"{self._base}/v2/{quote(node.path)}"
        reply = self._transport.send(method, url, self._tokens.headers(), timeout=SECONDS)
        if reply.status < 300 or (reply.status == 404 and gone_is_fine):
            return reply
        text = f"{method} {node.path}: {reply.status} {_message(reply)}"
        may_pass = reply.status in (401, 408, 409, 429) or reply.status >= 500
        raise (TransientError if may_pass else FinalError)(text)


def _message(reply: Reply) -> str:
    """Return Google's sentence, else the beginning of the body."""
    try:
        return str(json.loads(reply.body)["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return reply.body[:200].decode("utf-8", "replace")
