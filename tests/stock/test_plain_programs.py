"""
Programs as people write them, without a word of tpuctl in them: killed twice, they lose no save.

They have the layouts and the lines of the real ones, and need no framework; .ci/recipes runs the frameworks.
"""

import io
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.stock.survive import fill_in, survive

PROGRAMS = Path(__file__).parent / "programs"
STEPS = 400
OUT = '"$TPUCTL_CHECKPOINT_DIR"'


@pytest.fixture
def programs(lab, monkeypatch):
    """Put the programs into the user's folder; they end when the test says so."""
    for path in PROGRAMS.glob("*.py"):
        shutil.copy(path, lab.work)
    return {"STOCK_HURRY": str(lab.folder / "fast")}


@pytest.fixture
def layouts():
    """Return the module that writes the files."""
    sys.path.insert(0, str(PROGRAMS))
    import layouts

    yield layouts
    sys.path.remove(str(PROGRAMS))


def newest(lab, run, name):
    """Return the content of the file *name* in the newest committed checkpoint."""
    found = sorted(one for one in run.objects if one.endswith(f"/{name}"))
    assert found, run.objects
    return io.BytesIO(lab.read(found[-1]))


@pytest.mark.e2e
def test_one_file_of_numpy_replaced_in_place(lab, programs):
    """`latest.npz` and `final.npz`, the first script of many: both are in the bucket when the TPU is gone."""
    fill_in(lab, "flat", command=f"python3 flat_numpy.py {OUT} {STEPS}", env=programs)
    run = survive(lab, hurry=True)
    assert "resumed from step" in run.logs[1]
    assert "resumed from step" in run.logs[2]
    assert np.load(newest(lab, run, "latest.npz"))["step"] == [STEPS]
    assert np.load(newest(lab, run, "final.npz"))["weights"] == pytest.approx([0.5 * 0.99**STEPS] * 4096)


@pytest.mark.e2e
def test_one_checkpoint_of_pytorch_replaced_in_place(lab, programs, layouts):
    """`ckpt.pt` of the small GPT repositories, started with --init_from=resume only when there is one."""
    command = (
        f"python3 one_file_gpt.py --out_dir={OUT} --max_iters={STEPS} ${{TPUCTL_RESUME:+--init_from=resume}}"
    )
    fill_in(lab, "gpt", command=command, env=programs)
    run = survive(lab, hurry=True)
    assert "Resuming training" not in run.logs[0]
    assert "Resuming training" in run.logs[1]
    assert "Resuming training" in run.logs[2]
    assert layouts.load(newest(lab, run, "ckpt.pt"))["iter_num"] == STEPS


@pytest.mark.e2e
def test_a_file_of_pytorch_for_each_save(lab, programs, layouts):
    """`model_000005.pt`, `model_000010.pt` and so on: the one with the largest number is never lost."""
    fill_in(lab, "numbered", command=f"python3 numbered_torch.py {OUT} {STEPS}", env=programs)
    run = survive(lab, hurry=True)
    assert "resumed from step" in run.logs[2]
    assert layouts.load(newest(lab, run, f"model_{STEPS:06d}.pt"))["step"] == STEPS


def test_the_layouts_are_those_of_numpy(layouts, tmp_path):
    """What the programs write is what numpy reads, and the other way round."""
    layouts.savez(tmp_path / "a.npz", weights=[1.0, 2.5])
    assert list(np.load(tmp_path / "a.npz")["weights"]) == [1.0, 2.5]
    np.savez(tmp_path / "b.npz", weights=np.array([3.0, 4.0]))
    assert layouts.loadz(tmp_path / "b.npz") == {"weights": [3.0, 4.0]}
    layouts.save(str(tmp_path / "c.pt"), {"model": layouts.Tensor([1.0, 2.0]), "iter_num": 3})
    assert layouts.load(tmp_path / "c.pt") == {"model": [1.0, 2.0], "iter_num": 3}
