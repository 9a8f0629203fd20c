"""Zones with many nodes, as the API of Cloud TPU lists them; the answers are ready before anything is measured."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from requests.adapters import BaseAdapter

from orchestrator.domain.all_zones import ALL_ZONES
from orchestrator.domain.names import DEPLOYMENT_LABEL, INCARNATION_LABEL

ENDPOINT = "http://zones.test"
PROJECT = "fleet"
ZONES = ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f")
PAGE = 1000
"""Nodes that one answer holds at most."""


def name_of(number: int) -> str:
    """Return the name of a deployment."""
    return f"d{number:05d}"


class Zones(BaseAdapter):
    """Answer `nodes.list` of each zone in pages, and take creates and deletes; count the calls of both."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._nodes = nodes
        self.calls = self.changes = 0
        self.lose(0)

    def lose(self, count: int) -> None:
        """Take the first *count* nodes away."""
        zones: dict[str, list[Mapping[str, Any]]] = {zone: [] for zone in ZONES}
        for number in range(self._nodes):
            zones[ZONES[number % len(ZONES)]].append(_node(number, lost=number < count))
        everywhere = [node for nodes in zones.values() for node in nodes]
        self._pages = {zone: _pages(nodes) for zone, nodes in {**zones, ALL_ZONES: everywhere}.items()}

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Return the page that is asked for, or an operation that runs."""
        url = urlsplit(str(request.url))
        zone = url.path.split("/")[5]
        token = parse_qs(url.query).get("pageToken", ["0"])[0]
        answer = requests.Response()
        answer.status_code = 200
        if request.method == "GET":
            self.calls += 1
            content = self._pages[zone][int(token)]
        else:
            self.changes += 1
            name = f"projects/{PROJECT}/locations/{zone}/operations/o{self.changes}"
            content = json.dumps({"name": name, "done": False}).encode()
        answer._content = content  # noqa: SLF001 - there is no public way to set it
        answer.headers["Content-Type"] = "application/json"
        answer.request, answer.url = request, str(request.url)
        return answer

    def close(self) -> None:
        """Nothing is open."""


def _pages(nodes: list[Mapping[str, Any]]) -> list[bytes]:
    parts = [nodes[start : start + PAGE] for start in range(0, max(1, len(nodes)), PAGE)]
    return [
        json.dumps({"nodes": part, "nextPageToken": str(number) if number < len(parts) else ""}).encode()
        for number, part in enumerate(parts, 1)
    ]


def _node(number: int, *, lost: bool) -> Mapping[str, Any]:
    name, zone = name_of(number), ZONES[number % len(ZONES)]
    return {
        "name": f"projects/{PROJECT}/locations/{zone}/nodes/{name}-tpu-g1",
        "acceleratorType": "v5litepod-8",
        "runtimeVersion": "v2-alpha-tpuv5-lite",
        "state": "PREEMPTED" if lost else "READY",
        "health": "HEALTHY",
        "createTime": "2027-01-15T07:00:00Z",
        "labels": {DEPLOYMENT_LABEL: name, INCARNATION_LABEL: "1"},
        "networkEndpoints": [
            {"ipAddress": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", "port": 8470,
             "accessConfig": {"externalIp": "203.0.113.7"}},
        ],
        "networkConfig": {"network": "default", "enableExternalIps": True},
        "schedulingConfig": {"preemptible": False, "spot": True},
        "serviceAccount": {"email": "1-compute@developer.gserviceaccount.com"},
        "metadata": {},
    }  # fmt: skip
