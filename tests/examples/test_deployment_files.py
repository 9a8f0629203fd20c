"""
The examples' deployment files are valid, and the machines' scripts render from them.
"""

import subprocess
from pathlib import Path

import pytest

from orchestrator.config.load import load
from orchestrator.render import Target, machine_scripts

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("numpy-lm", "jax-lm", "tokenizer", "hf-clm", "alexnet-ddp")


@pytest.mark.parametrize("name", NAMES)
def test_deployment_file_is_valid(name, tmp_path):
    """The file loads without a complaint, is named after its folder, and gives scripts that bash can read."""
    spec = load(EXAMPLES / name / "tpuctl.yaml", environ={})
    assert spec.name == name
    assert spec.job.target_steps is not None
    target = Target("tpu", "proj", "bucket", 1, "a" * 64, "b" * 64, True, node="n", zone=spec.tpu.zones[0])
    startup = tmp_path / "startup"
    startup.write_text(machine_scripts(spec, target).startup)
    subprocess.run(["bash", "-n", startup], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_example_has_what_a_user_needs(name):
    """Each example has its file, its script, its requirements and a page that says how to run it."""
    assert {path.name for path in (EXAMPLES / name).iterdir()} >= {
        "tpuctl.yaml", "train.py", "requirements.txt", "README.md",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["tokenizer", "hf-clm", "alexnet-ddp"])
def test_environment_script_is_one_text(name):
    """Each folder works when copied out, so each has the script; a change to one must reach all."""
    assert (EXAMPLES / name / "venv.sh").read_text() == (EXAMPLES / "hf-clm/venv.sh").read_text()
