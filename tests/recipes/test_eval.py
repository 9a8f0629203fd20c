"""examples/eval: a job without steps is done with its results in the bucket, and computes no shard twice."""

import json
import re

import pytest

from tests.recipes.run import RUN_TIMEOUT
from tests.stock.survive import use_example

pytestmark = pytest.mark.recipes


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab):
    """Killed after its third shard, it goes on with the first one that is missing; then it is done."""
    use_example(lab, "eval")
    fast = ["--set", "watch.poll=1s", "--set", "vm=none", "--set", "job.env.EVAL_SHARD_SECONDS=4"]
    lab.tpuctl("local", "start")
    lab.tpuctl("up", *fast, seconds=RUN_TIMEOUT)
    watch = lab.start("watch", *fast)

    def shards():
        return [name for name in lab.objects("checkpoints/") if "scores-" in name]

    lab.wait_for("three shards", lambda: len(shards()) >= 3, RUN_TIMEOUT, 0.1)
    assert lab.heartbeats(1)[0]["phase"] == "run", "results alone do not make it done"
    lab.tpuctl("local", "preempt", "eval-tpu-g1", "--no-notice")
    there = shards()
    assert "done:" in lab.end(watch, seconds=RUN_TIMEOUT).err

    logs = [re.findall(r"^shard (\d+): ", lab.logs(number), re.MULTILINE) for number in (1, 2)]
    assert int(logs[1][0]) >= len(there)
    summary = json.loads(lab.read("checkpoints/summary.json"))
    assert summary["files"] > 50
    assert 3.0 < summary["bits"] < 4.0
    assert len(shards()) == -(-summary["files"] // 10)
    assert lab.heartbeats(2)[0]["phase"] == "done"
