"""The examples' deployment files are valid, and the machines' scripts render from them."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.config.load import load, read
from orchestrator.config.starter import init_text
from orchestrator.scripts.render import MachineTarget, machine_scripts

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("numpy-lm", "jax-lm", "tokenizer", "hf-clm", "alexnet-ddp", "keras-jax", "flax-nnx")
# The program is the framework's own, there are no steps, or the framework knows the last one itself.
OTHERS = {
    "trl-sft": "prepare.py", "lightning": "train.py", "accelerate": "train.py", "eval": "evaluate.py",
    "maxtext": "tpuctl.yaml",
}  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_deployment_file_is_valid(name, tmp_path):
    """The file loads without a finding, is named after its folder, and gives scripts that bash can read."""
    spec = load(EXAMPLES / name / "tpuctl.yaml", environ={})
    assert spec.name == name
    assert (spec.job.target_steps is not None) == (name in NAMES)
    target = MachineTarget(
        "tpu", "proj", "bucket", 1, "a" * 64, "b" * 64, True, node="n", zone=spec.tpu.zones[0]
    )
    startup = tmp_path / "startup"
    startup.write_text(machine_scripts(spec, target).startup)
    subprocess.run(["bash", "-n", startup], check=True)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in EXAMPLES.glob("*/tpuctl.yaml")))
def test_example_uses_the_tpu_or_asks_for_the_smallest(name):
    """A list for the TPU brings what drives it; who trains on CPUs does not pay for chips, and says so."""
    lists = [path.read_text() for path in (EXAMPLES / name).glob("requirements*.txt")]
    text = (EXAMPLES / name / "tpuctl.yaml").read_text()
    if any("libtpu" in one or "[tpu]" in one for one in lists):
        assert "CPUs" not in text
    else:
        assert load(EXAMPLES / name / "tpuctl.yaml", environ={}).tpu.type == "v5litepod-1"
        assert "# trains on the machine's CPUs: the smallest there is" in text


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_example_has_what_a_user_needs(name):
    """Each example has its file, its script, its requirements and a page that says how to run it."""
    assert {path.name for path in (EXAMPLES / name).iterdir()} >= {
        "tpuctl.yaml", OTHERS.get(name, "train.py"), "requirements.txt", "README.md",
    }  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_init_copies_it(name, tmp_path):
    """`tpuctl init --recipe` gives the folder as it is here."""
    done = CliRunner().invoke(cli, ["init", str(tmp_path / "mine"), "--recipe", name])
    assert done.exit_code == 0, done.output
    there = {path.name for path in (EXAMPLES / name).iterdir() if path.name != "__pycache__"}
    # Editors complete the file by its schema, which lies beside it in a copy.
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {*there, "tpuctl.schema.json"}
    copied, original = (
        one.read_text() for one in (tmp_path / "mine/tpuctl.yaml", EXAMPLES / name / "tpuctl.yaml")
    )
    # The first line says where the schema is.
    assert copied.partition("\n")[2] == original.partition("\n")[2]


@pytest.mark.parametrize("name", ["tokenizer", "hf-clm", "alexnet-ddp"])
def test_environment_script_is_one_text(name):
    """Each folder works when copied out, so each has the script; a change to one must reach all."""
    assert (EXAMPLES / name / "venv.sh").read_text() == (EXAMPLES / "hf-clm/venv.sh").read_text()


@pytest.mark.parametrize("name", ["trl-sft", "keras-jax", "flax-nnx", "lightning", "accelerate", "eval"])
def test_environment_script_for_a_tpu_is_one_text(name):
    """Those that have pins of their own for a TPU share the script that chooses between the two lists."""
    assert (EXAMPLES / name / "venv.sh").read_text() == (EXAMPLES / "jax-lm/venv.sh").read_text()
    assert (EXAMPLES / name / "requirements-tpu.txt").exists()


@pytest.mark.parametrize("name", ["trl-sft", "keras-jax", "lightning", "accelerate"])
def test_what_survives_needs_no_word_about_checkpoints(name):
    """How these save is what `init` writes for everybody: `auto` finds out."""
    fresh = read(init_text("mine").encode(), "tpuctl.yaml", environ={}).job
    assert load(EXAMPLES / name / "tpuctl.yaml", environ={}).job.checkpoint == fresh.checkpoint
