"""The script of the sweep's example goes on from its checkpoint, and leaves what the table of results reads."""

import json
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).parents[2] / "examples" / "sweep" / "train.py"


def train(folder, steps):
    """Run the script and return what it printed."""
    words = [sys.executable, str(TRAIN), "--pause", "0", "--steps", str(steps), "--out", str(folder / "c")]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_two_halves_end_with_the_loss_of_one_whole_run(tmp_path):
    """To the last bit: nothing of it depends on when it was stopped."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "halves").mkdir()
    train(tmp_path / "whole", 60)
    train(tmp_path / "halves", 30)
    assert "starts at step 30" in train(tmp_path / "halves", 60)
    one, two = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("whole", "halves"))
    assert one == two
    assert one["final_loss"] > 0
