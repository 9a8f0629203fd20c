"""F13: what a fleet asks of the TPU API. All of tpuctl and Google's clients on a virtual clock; no machines."""

import json
import tempfile
from pathlib import Path

from benchmarks.fleet.figures import Figure
from tests.kit.cloud import VirtualCloud
from tests.kit.queue_of_nodes import NodeQueue
from tests.kit.user import User

ZONES, POLL = ("us-central1-b", "us-central1-c"), 15.0
GOAL = 100
QUIET, STORM = 150.0, 240.0
LIST, CREATE = "tpu.nodes.list", "tpu.nodes.create"


def calls(size: int) -> list[Figure]:
    """Bring up *size* nodes, watch them, take all away at once, and watch on; Slurm is a model."""
    with tempfile.TemporaryDirectory(prefix="bench-calls-") as name, VirtualCloud(
        Path(name), latency="scaled"
    ).open() as cloud:  # fmt: skip
        asked: list[float] = []

        def recorded(method: str, response: object) -> object:
            if method == LIST:
                asked.append(cloud.clock.monotonic())
            return response

        cloud.distort, cloud.queue = recorded, NodeQueue(cloud)
        user = User(cloud)
        body = {key: value for key, value in user.file.items() if key != "job"}
        body |= {"tpu": {"type": "v2-8", "zones": list(ZONES)}, "vm": {}, "fleet": {"nodes": size}}
        body["watch"] = {"poll": f"{POLL:g}s"}
        (user.folder / "tpuctl.yaml").write_text(json.dumps(body))
        up = user.run("fleet", "up", "--yes", timeout=14_400)
        if f"{size} of {size} nodes are up" not in up.err:
            raise RuntimeError(up.err)
        first = _fastest(cloud.asked(CREATE))
        began = cloud.clock.monotonic()
        user.run("fleet", "watch", interrupt=QUIET, timeout=QUIET + 14_400)
        quiet = [at for at in asked if at > began]
        for node in list(cloud.nodes()):
            cloud.model.preempt(node, notice=False)
        lost = cloud.clock.monotonic()
        user.run("fleet", "watch", interrupt=STORM, timeout=STORM + 14_400)
        again = [at for at in cloud.asked(CREATE) if at > lost]
        back = len(cloud.in_use())
    passes = QUIET / POLL
    fits = len(quiet) <= passes * len(ZONES) * 1.1 and max(first, _fastest(again)) <= 60
    return [
        Figure(
            "F13",
            f"{len(quiet) / passes:.2f} lists a pass of {size} nodes in {len(ZONES)} zones of a page each; at most "
            f"{max(first, _fastest(again))} creates in a minute, at `up` and after the preemption of all {size}, "
            f"{back} of them back in {STORM / 60:.0f} min",
            None if fits and size < GOAL else fits,
        )
    ]


def _fastest(moments: list[float]) -> int:
    """Return the largest number of calls within a minute."""
    return max((sum(at <= one < at + 60 for one in moments) for at in moments), default=0)
