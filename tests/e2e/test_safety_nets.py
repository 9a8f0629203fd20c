"""An abandoned TPU deletes itself: real cron, the real agent, and the local cloud's TPU API."""

import json
import time
import urllib.error
import urllib.request

import pytest

from orchestrator.domain.checksum import with_checksum
from tests.e2e.process_lab import ProcessLab

pytestmark = pytest.mark.e2e
NODE = "/v2/projects/local-project/locations/europe-west4-b/nodes/e2e-tpu-g1"


def age(lab: ProcessLab, seconds: float) -> None:
    """Let the deployment have ended *seconds* ago by its record."""
    record = json.loads(lab.read(".tpuctl/record.json"))
    assert record["history"]["expires_at"] == record["history"]["started_at"] + 1800
    record["history"]["expires_at"] = time.time() - seconds
    endpoint = json.loads((lab.cloud / "daemon.json").read_text())["endpoint"]
    url = f"{endpoint}/upload/storage/v1/b/{lab.bucket()}/o?uploadType=media&name=.tpuctl/record.json"

    def write() -> bool:
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, json.dumps(with_checksum(record)).encode())
            ) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as error:
            if error.code == 429:
                return False
            raise

    # An object takes one write a second, and `up` may just have written it.
    lab.wait_for("the aged record", write)


def test_an_abandoned_tpu_saves_and_deletes_itself(lab):
    """Nobody watches, nobody comes back: the job saves, the node goes, the data stays."""
    lab.use_example(steps=600, watch=", ttl: 30m, self_delete: true")
    lab.tpuctl("up")
    lab.wait_for("a checkpoint", lambda: [n for n in lab.objects("checkpoints/") if "manifest" in n])
    assert json.loads(lab.get(NODE))["serviceAccount"]["scope"] == [
        "https://www.googleapis.com/auth/cloud-platform"
    ]

    age(lab, 400)

    lab.wait_for("the node's end", lambda: lab.get(NODE) == b"")
    lab.wait_for("the machine's end", lambda: not [m for m in lab.machines() if m["running"]])
    (heartbeat,) = lab.heartbeats()
    # The bucket takes one report a second: the agent's own last word may come after that of the self-deletion.
    assert any(text in heartbeat["message"] for text in ("this TPU deletes itself", "is being taken away"))
    saved = max(int(n.split("/")[1]) for n in lab.objects("checkpoints/") if n.endswith("manifest.json"))
    assert heartbeat["step"] - saved <= 5, "it saved before it went"
