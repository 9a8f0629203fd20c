"""The newest save is whole, but the program cannot go on from it: the one before is tried, and all say so."""

import shutil
from pathlib import Path

import pytest

from orchestrator.agent.attempt.crash_loop import ALIKE
from tests.recipes.run import start_cloud
from tests.stock.survive import committed, fill_in

PROGRAMS = Path(__file__).parent / "programs"
LAST = 60


@pytest.mark.e2e
def test_a_save_that_the_program_cannot_read(lab):
    """`ckpt.pt` without the optimizer kills each start; the save before it is gone on from, none is lost."""
    for path in PROGRAMS.glob("*.py"):
        shutil.copy(path, lab.work)
    bad = lab.folder / "bad"
    env = {"STOCK_HURRY": str(lab.folder / "fast"), "STOCK_BAD_SAVE": str(bad)}
    fill_in(lab, "bad", command=f'python3 one_bad_save.py "$TPUCTL_CHECKPOINT_DIR" {LAST}', env=env)
    start_cloud(lab, 5)
    fast = ("--set", "watch.poll=1s", "--set", "vm=none")
    lab.tpuctl("up", *fast)
    watch = lab.start("watch", *fast)
    lab.wait_for("saves in the bucket", lambda: committed(lab, 1) >= 10)
    bad.touch()
    newest = int(lab.wait_for("the bad save", bad.read_text))
    lab.wait_for("it in the bucket", lambda: committed(lab, 1) == newest)
    lab.tpuctl("local", "preempt", f"{lab.name}-tpu-g1", "--no-notice")
    bad.unlink()

    # At once: newer saves push the bad one out of what is retained.
    aside = "set aside: every start from it ended alike"
    lab.wait_for("the bad save set aside", lambda: aside in lab.tpuctl("checkpoints").out)
    lab.wait_for("a start from an older save", lambda: "with 1 states" in lab.logs(2))
    why = f"step {newest} is set aside, not deleted: 2 attempts in a row from it failed alike"
    lab.wait_for("the reason", lambda: why in _words(lab.tpuctl("status").out))
    assert why in _words(lab.tpuctl("explain").out)
    assert f"checkpoints/{newest:08d}/g1/w0/ckpt.pt" in lab.objects("checkpoints/")
    lab.hurry()
    done = lab.end(watch)
    assert "done:" in done.err
    assert why in _words(done.err)
    log = lab.logs(2)
    assert (
        log.count("\nKeyError: 'optimizer'") == ALIKE
    )  # the traceback's own line, not the reasons that quote it
    assert log.count("with 1 states") == 1
    assert lab.heartbeats()[0]["committed_step"] == LAST


def _words(text):
    """Return a text without its line ends."""
    return " ".join(text.split())
