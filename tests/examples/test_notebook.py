"""The notebook runs from its first cell to its last, as a reader runs it, on the local cloud."""

import json
import subprocess
import sys

import pytest

from tests.cli.cli_kit import ROOT
from tests.e2e.conftest import lab

__all__ = ["lab"]
NOTEBOOK = json.loads((ROOT / "examples/notebook/deployment.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_is_one_without_outputs():
    """Jupyter opens it, and nobody's run is stored in it."""
    assert (NOTEBOOK["nbformat"], NOTEBOOK["metadata"]["language_info"]["name"]) == (4, "python")
    for cell in NOTEBOOK["cells"]:
        keys = {"cell_type", "metadata", "source"}
        assert set(cell) == keys | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
        assert cell.get("outputs", []) == []


@pytest.mark.e2e
def test_every_cell_runs(lab):
    """In one interpreter, in order; the job survives its preemption, and nothing is left."""
    ends = """
assert done is True
assert [p.incarnation for p in seen][-1] == 2, seen
assert seen[-1].step == 400, seen[-1]
assert cost["preemptions"] == 1
assert model.is_dir()
assert __import__("pathlib").Path("report.html").stat().st_size > 5000
gone = tpuctl.status(fresh=True)["resources"]
assert [row["state"] for row in gone] == ["absent"] * 3, gone
"""
    variables = {**lab.environment, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*CODE, ends])], cwd=lab.work, env=variables,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "the API prints nothing"
    assert "about $" in done.stdout
