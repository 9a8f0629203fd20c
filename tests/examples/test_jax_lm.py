"""
examples/jax-lm without JAX: which text belongs to which step, and which pins a machine takes.

What needs the frameworks is in tests/recipes/test_jax_lm.py.
"""

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/jax-lm"


@pytest.fixture(scope="module")
def corpus() -> ModuleType:
    """Return the example's module."""
    spec = importlib.util.spec_from_file_location("jax_lm_corpus", EXAMPLE / "corpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_text_is_ascii_from_the_standard_library(corpus):
    """There is enough of it, and every code is in the vocabulary."""
    text = corpus.load()
    assert len(text) > 500_000
    assert 0 <= text.min() <= text.max() < corpus.VOCABULARY
    assert "def " in bytes(text[:20_000].astype(np.uint8)).decode()


def test_batch_depends_on_seed_and_step_only(corpus):
    """A resumed run, on whatever worker, sees the windows that an unbroken one sees."""
    text = np.arange(5000, dtype=np.int32)
    sizes = {"size": 16, "context": 32}
    first = corpus.batch(text, 7, seed=0, **sizes)
    assert first.shape == (16, 33)
    assert (np.diff(first, axis=1) == 1).all(), "a window is a piece of the text"
    assert (first == corpus.batch(text, 7, seed=0, **sizes)).all()
    assert (first != corpus.batch(text, 8, seed=0, **sizes)).any()
    assert (first != corpus.batch(text, 7, seed=1, **sizes)).any()


@pytest.mark.parametrize(
    ("environment", "pins"),
    [
        ({}, "requirements.txt"),  # one's own computer
        ({"PJRT_DEVICE": "TPU", "JAX_PLATFORMS": "cpu"}, "requirements.txt"),  # a rehearsal
        ({"PJRT_DEVICE": "TPU"}, "requirements-tpu.txt"),
        ({"PJRT_DEVICE": "TPU", "JAX_PLATFORMS": "tpu,cpu"}, "requirements-tpu.txt"),
    ],
)
def test_only_a_real_tpu_gets_the_tpu_library(environment, pins, tmp_path):
    """Each kind of machine has an environment of its own; here making it fails, and the script says so."""
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TPUCTL_VENV_CACHE": str(tmp_path), **environment}
    done = subprocess.run(
        ["sh", EXAMPLE / "venv.sh", "true"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"installing {pins} into {tmp_path}/" in done.stderr
    assert "apt-get install python3-venv" in done.stderr


def test_a_tpu_has_the_pins_of_a_rehearsal_and_its_library():
    """Both files name the same releases of JAX, for each Python."""
    plain = {line for line in (EXAMPLE / "requirements.txt").read_text().splitlines() if line[:5] == "jax=="}
    first, *tpu = (EXAMPLE / "requirements-tpu.txt").read_text().splitlines()
    assert first == "-r requirements.txt"
    assert {line.replace("jax[tpu]", "jax") for line in tpu} == plain
    assert len(plain) == 2
