"""examples/*/venv.sh: one environment for each list of pins, made once, never believed half made."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/hf-clm/venv.sh"


@pytest.fixture
def recipe(tmp_path) -> Path:
    """Return a folder with the script and a list of no pins, so that nothing is fetched."""
    folder = tmp_path / "recipe"
    folder.mkdir()
    shutil.copy(SCRIPT, folder)
    (folder / "requirements.txt").write_text("# nothing\n")
    return folder


def start(folder: Path, *words: str, **more: str) -> subprocess.Popen:
    """Start the script as the agent does on a machine."""
    env = {"PATH": os.environ["PATH"], "TPUCTL_ROOT": str(folder.parent / "machine"), **more}
    return subprocess.Popen(
        ["sh", str(folder / "venv.sh"), *words], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_environment_is_made_once_by_one_of_many_and_a_half_made_one_is_made_again(recipe):
    """Two starts at once share one installation; later ones find it; what a kill left is replaced."""
    key = hashlib.sha256((recipe / "requirements.txt").read_bytes()).hexdigest()
    venv = recipe.parent / "machine/venvs" / key
    (venv / "bin").mkdir(parents=True)  # an installation that was killed
    (venv / "half").write_text("")
    both = [start(recipe, "python", "-c", "import sys; print(sys.prefix)") for _ in range(2)]
    ends = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert [out.strip() for out, _ in ends] == [str(venv)] * 2
    assert sum("installing" in err for _, err in ends) == 1
    assert not (venv / "half").exists()

    again = start(recipe, "python", "-c", "raise SystemExit(7)")
    assert "installing" not in again.communicate(timeout=60)[1]
    assert again.returncode == 7


def test_environment_that_cannot_be_made_runs_nothing(recipe):
    """A pin that cannot be had: the script fails, the program is not run with another Python."""
    (recipe / "requirements.txt").write_text("/nowhere/absent-1.0-py3-none-any.whl\n")
    process = start(recipe, "python", "-c", "print('ran')", TPUCTL_VENV_CACHE=str(recipe.parent / "cache"))
    out, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "absent" in err
    assert "ran" not in out
    assert not list((recipe.parent / "cache").glob("*/complete"))


def handed_over(name: str, folder: Path, **more: str) -> str:
    """Return the lists that venv.sh of a recipe hands to tpuctl-venv, beside the command."""
    command = folder / "tpuctl-venv"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    recipe = SCRIPT.parents[1] / name
    path = f"{folder}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(folder), "CC": "true", "CXX": "true", **more}
    done = subprocess.run(
        ["sh", recipe / "venv.sh", "python", "a b"], env=env, capture_output=True, text=True, check=True
    )
    *lists, stop, program, word = done.stdout.splitlines()
    assert (stop, program, word) == ("--", "python", "a b")
    return " ".join(one.removeprefix(f"{recipe}/") for one in lists)


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("jax-lm", "-r requirements-tpu.txt"),
        ("bert-tf2", "-r requirements-tpu.txt --no-deps requirements-tpu-no-deps.txt"),
        ("hf-tf-legacy", "-r requirements-tpu.txt --no-deps requirements-tpu-no-deps.txt"),
        ("hf-clm-xla", "--no-deps requirements-tpu.txt --no-deps requirements-more.txt"),
        ("alexnet-xla", "--no-deps requirements-tpu.txt"),
        ("fairseq-mlm-xla", "--no-deps requirements-tpu.txt --no-deps requirements-more.txt"),
    ],
)
def test_on_a_tpu_the_lists_bring_what_drives_it(name, lists, tmp_path):
    """A machine of the local cloud says PJRT_DEVICE=TPU too, and JAX_PLATFORMS=cpu: it needs none of that."""
    assert handed_over(name, tmp_path, PJRT_DEVICE="TPU") == lists
    at_home = lists.replace("-tpu", "")
    assert handed_over(name, tmp_path, PJRT_DEVICE="TPU", JAX_PLATFORMS="cpu") == at_home
    assert handed_over(name, tmp_path) == at_home
    texts = [(SCRIPT.parents[1] / name / one).read_text() for one in lists.split() if one.endswith(".txt")]
    assert any("libtpu" in text or "jax[tpu]" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("hf-clm", "-r requirements.txt"),
        ("jax-lm", "-r requirements.txt"),
        ("bert-tf2", "-r requirements.txt --no-deps requirements-no-deps.txt"),
        ("hf-tf-legacy", "-r requirements.txt --no-deps requirements-no-deps.txt"),
        ("fairseq-mlm", "-r requirements.txt --no-deps requirements-no-deps.txt"),
        ("hf-clm-xla", "--no-deps requirements.txt --no-deps requirements-more.txt"),
        ("alexnet-xla", "--no-deps requirements.txt"),
        ("fairseq-mlm-xla", "--no-deps requirements.txt --no-deps requirements-more.txt"),
    ],
)
def test_on_a_machine_uv_makes_it_from_every_list(name, lists, tmp_path):
    """With tpuctl-venv on the PATH, venv.sh hands its lists and the command over."""
    assert handed_over(name, tmp_path) == lists
