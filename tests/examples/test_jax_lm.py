"""
examples/jax-lm: killed at any moment it goes on with the same losses, from a folder or a bucket.
"""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

MISSING = [name for name in ("jax", "optax", "orbax", "gcsfs") if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(
        bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; they come with tpuctl[dev]"
    ),
    pytest.mark.xdist_group("jax-lm"),  # one process at a time, and one unbroken run for all
]

EXAMPLE = Path(__file__).parents[2] / "examples/jax-lm"


class Run:
    """One start of train.py, with output in a file."""

    def __init__(
        self, folder: Path, out: str, name: str = "run", step_seconds: float = 0, **environment: str
    ) -> None:
        self.log = folder / f"{name}.log"
        flags = {"steps": 24, "save-every": 8, "log-every": 1, "batch": 16, "layers": 1, "width": 32}
        words = [
            f"--{key}={value}" for key, value in {**flags, "out": out, "step-seconds": step_seconds}.items()
        ]
        base = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "JAX_PLATFORMS": "cpu",
            "PYTHONDONTWRITEBYTECODE": "1",
            # All runs of a session share compiled programs: compiling takes most of a short run.
            "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "jax-cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8", **environment,
        }  # fmt: skip
        with self.log.open("ab") as log:
            command = [sys.executable, EXAMPLE / "train.py", *words]
            self.process = subprocess.Popen(command, env=base, stdout=log, stderr=log, cwd=folder)

    def text(self) -> str:
        return self.log.read_text()

    def wait(self, seconds: float = 120) -> int:
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()

    def until(self, found, seconds: float = 120) -> "Run":
        deadline = time.monotonic() + seconds
        while not found(self):
            assert time.monotonic() < deadline, self.text()
            assert self.process.poll() is None, self.text()
            time.sleep(0.01)
        return self

    def losses(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for step, loss in re.findall(r"step (\d+) loss (\S+)", self.text()):
            assert found.setdefault(int(step), loss) == loss, f"step {step} had two losses"
        return found


def reached(step: int):
    """Return a check for a step that was logged."""
    return lambda run: f"step {step} loss" in run.text()


def committed(place: Path, step: int):
    """Return a check for a checkpoint that is there; the file is what the agent looks at in a bucket."""
    return lambda run: (place / str(step) / "commit_success.txt").exists()


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> dict[int, str]:
    """Return the losses of a run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("straight")
    run = Run(folder, "out")
    assert run.wait() == 0, run.text()
    losses = run.losses()
    assert float(losses[24]) < float(losses[1]) - 0.5
    return losses


def test_killed_and_stopped_run_resumes_with_the_same_losses(tmp_path, straight):
    """SIGKILL after a save, SIGTERM later, then to the end: every loss equals that of the unbroken run."""
    out = tmp_path / "out"
    run = Run(tmp_path, "out", step_seconds=0.1).until(committed(out, 8)).until(reached(10))
    run.process.kill()
    run.wait()

    run = Run(tmp_path, "out", step_seconds=0.1).until(reached(18))
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 143, run.text()
    saved = int(re.findall(r"saved step (\d+)", run.text())[0])
    assert committed(out, saved)(run)

    run = Run(tmp_path, "out")
    assert run.wait() == 0, run.text()
    resumed = [int(step) for step in re.findall(r"resumed from step (\d+)", run.text())]
    assert len(resumed) == 2
    assert resumed[1] == saved
    assert run.losses() == straight


def test_bucket_takes_and_gives_back_checkpoints(tmp_path, straight):
    """Straight to gs://: killed and resumed, with `commit_success.txt` as the last object of a step."""
    pytest.importorskip("uvicorn", reason="uvicorn comes with tpuctl[local]")
    pytest.importorskip("google_crc32c", reason="google-crc32c comes with tpuctl[local]")
    from tests.local.http_fixture import serve
    from tests.local.storage_kit import a_storage, routed

    storage = a_storage()

    def complete(step: int):
        return lambda run: f"checkpoints/{step}/commit_success.txt" in names()

    def names() -> list[str]:
        with storage.lock:
            return [item.name for item in storage.objects.all()]

    with serve(routed(storage)) as url:
        places = {
            "STORAGE_EMULATOR_HOST": url, "TENSORSTORE_GCS_HTTP_URL": url,
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false", "GOOGLE_CLOUD_PROJECT": "p", "NO_GCE_CHECK": "true",
        }  # fmt: skip
        run = Run(tmp_path, "gs://data/checkpoints", step_seconds=0.1, **places).until(complete(8))
        run.process.kill()
        run.wait()
        run = Run(tmp_path, "gs://data/checkpoints", **places)
        assert run.wait() == 0, run.text()
        assert complete(24)(run)
    assert "resumed from step" in run.text()
    assert run.losses() == straight
