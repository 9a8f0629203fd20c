"""
The pins of every recipe can be installed on Google's images: Ubuntu 22.04's Python 3.10, and newer ones.

Nothing is installed; uv asks the package index, as `pip install --dry-run --python-version` would.
"""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.agent.layout import Layout
from orchestrator.agent.machine.uv import for_uv
from orchestrator.config.load import load
from orchestrator.emulator.machines.machine_image import IMAGES
from orchestrator.emulator.machines.machine_python import package_sources
from orchestrator.scripts import uv_program
from tests.recipes.kit import EXAMPLES

pytestmark = pytest.mark.recipes
# Ubuntu 22.04 has glibc 2.35; libtpu's wheels need 2.31.
PLATFORM = "x86_64-manylinux_2_35"
NEWER = "3.11"
AT_ONCE = 8
SOURCE_ONLY = ("fairseq", "antlr4-python3-runtime", "bitarray")
"""What is built on the machine, because it has no wheel."""
OWN = {"maxtext": "3.12"}
"""Recipes whose command names a Python (`tpuctl-venv -p`)."""


def pythons(name: str) -> tuple[str, ...]:
    """Return the versions that a recipe may meet: its own, or the image's and a newer one."""
    wanted = OWN.get(name) or load(EXAMPLES / name / "tpuctl.yaml", environ={}).job.python
    return (wanted,) if wanted else (IMAGES["tpu"].python, NEWER)


def lists() -> list[tuple[str, str, str]]:
    """Return recipe, list and Python version of each case."""
    return [
        (path.parent.name, path.name, version)
        for path in sorted(EXAMPLES.glob("*/requirements*.txt"))
        for version in pythons(path.parent.name)
    ]


def resolve(path: Path, version: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Ask the index for everything in a list; lists that are installed bare are asked for bare."""
    bare = "no-deps" in path.name or path.parent.name.endswith("-xla")
    words = ["pip", "compile", "--quiet", "--no-header", "--python-version", version]
    words += ["--python-platform", PLATFORM, "--only-binary", ":all:"]
    words += [word for name in SOURCE_ONLY for word in ("--no-binary", name)]
    words += ["--no-deps"] if bare else []
    environ = {**os.environ, **package_sources(os.environ)}
    environ["UV_CACHE_DIR"] = str(uv_program.shared_folder() / "packages")
    return subprocess.run(
        [uv_program.program(), *words, str(path)], env=for_uv(environ, Layout(folder)), cwd=folder,
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> Iterator[dict[tuple[str, str, str], Future]]:
    """Ask for all lists side by side: an answer takes ten seconds of waiting, and hardly any computing."""
    folder = tmp_path_factory.mktemp("pins")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            (name, pins, version): pool.submit(resolve, EXAMPLES / name / pins, version, folder)
            for name, pins, version in lists()
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", lists(), ids="-".join)
def test_the_pins_of_a_recipe_resolve(case, answers):
    """With wheels for Ubuntu 22.04, so nothing is compiled on a machine but what the recipe says."""
    done = answers[case].result()
    assert done.returncode == 0, done.stderr


def test_a_pin_that_needs_a_newer_python_is_noticed(tmp_path):
    """The check above can fail."""
    (tmp_path / "requirements.txt").write_text("numpy==2.4.6\n")
    assert resolve(tmp_path / "requirements.txt", "3.10", tmp_path).returncode != 0
