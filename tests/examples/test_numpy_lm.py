"""examples/numpy-lm: killed at any moment it goes on as if nothing had happened, alone and in a gang."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.emulator.start_options import free_ports
from tests.kit.waiting import until

np = pytest.importorskip("numpy", reason="numpy comes with tpuctl[local]")

EXAMPLE = Path(__file__).parents[2] / "examples/numpy-lm"


class ScriptRun:
    """One start of train.py, with output in a file. *flags* are passed with their names."""

    def __init__(
        self, folder: Path, out: str = "out", environment: dict[str, str] | None = None, **flags
    ) -> None:
        self.folder, self.out = folder, folder / out
        self.log = folder / f"{out}.log"
        settings = {
            "steps": 60,
            "save_every": 10,
            "log_every": 1,
            "step_seconds": 0,
            "out": self.out,
            **flags,
        }
        words = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        base = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        with self.log.open("ab") as log:
            command = [sys.executable, EXAMPLE / "train.py", *words]
            self.process = subprocess.Popen(command, env=base, stdout=log, stderr=log, cwd=folder)

    def text(self) -> str:
        return self.log.read_text()

    def wait(self, seconds: float = 60) -> int:
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()

    def until(self, pattern: str, seconds: float = 60) -> "ScriptRun":
        def printed() -> bool:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.text()) is not None
            assert found or not ended, self.text()
            return found

        until(printed, pattern, seconds, 0.01, self.text)
        return self

    def losses(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for step, loss in re.findall(r"step (\d+) loss (\S+)", self.text()):
            assert found.setdefault(int(step), loss) == loss, f"step {step} had two losses"
        return found

    def state(self, step: int = 60) -> dict[str, bytes]:
        with np.load(self.out / f"step-{step:06d}/state.npz") as file:
            return {name: file[name].tobytes() for name in file.files}


def test_loss_falls(tmp_path):
    """It learns: the loss after 200 steps is well below that of guessing."""
    run = ScriptRun(tmp_path, steps=200)
    assert run.wait() == 0
    losses = run.losses()
    assert float(losses[1]) > 4.5
    assert sum(float(losses[step]) for step in range(191, 201)) / 10 < 3.0


def test_killed_run_resumes_bit_for_bit(tmp_path):
    """SIGKILL twice, then to the end: every loss and the last state equal those of an unbroken run."""
    straight = ScriptRun(tmp_path, "straight")
    for step in (25, 47):
        broken = ScriptRun(tmp_path, "broken", step_seconds=0.02).until(f"step {step} loss")
        broken.process.kill()
        broken.wait()
    broken = ScriptRun(tmp_path, "broken")
    assert (straight.wait(), broken.wait()) == (0, 0)
    assert re.findall(r"resumed from step (\d+)", broken.text()) == ["20", "40"]
    assert broken.losses() == straight.losses()
    assert broken.state() == straight.state()


def test_sigterm_saves_the_current_step(tmp_path):
    """SIGTERM leaves a complete checkpoint of the very step, status 143, and the same end as without."""
    straight = ScriptRun(tmp_path, "straight")
    run = ScriptRun(tmp_path, "asked", step_seconds=0.02).until("step 23 loss")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 143
    saved = int(re.findall(r"saved step (\d+)", run.text())[0])
    assert saved >= 23
    assert (run.out / f"step-{saved:06d}/COMPLETE").exists()
    again = ScriptRun(tmp_path, "asked")
    assert (straight.wait(), again.wait()) == (0, 0)
    assert f"resumed from step {saved}" in again.text()
    assert again.state() == straight.state()


def test_torn_checkpoint_is_ignored(tmp_path):
    """A step folder without its marker is not resumed from, and is written again when its step comes."""
    assert ScriptRun(tmp_path, steps=20).wait() == 0
    torn = tmp_path / "out/step-000030"
    torn.mkdir()
    (torn / "state.npz").write_bytes(b"half")
    run = ScriptRun(tmp_path, steps=30)
    assert run.wait() == 0
    assert "resumed from step 20" in run.text()
    assert run.state(30)


def test_keeps_two_and_reports_progress(tmp_path):
    """Old checkpoints go, and the progress file holds the last step."""
    progress = tmp_path / "progress.json"
    run = ScriptRun(tmp_path, environment={"TPUCTL_PROGRESS_FILE": str(progress)})
    assert run.wait() == 0
    assert sorted(path.name for path in run.out.iterdir()) == ["step-000050", "step-000060"]
    assert progress.read_text().startswith('{"step": 60, "loss": ')


def test_saves_at_the_given_interval_also_when_it_changes(tmp_path):
    """At the start the interval is 1,000 s, then a tenth of a second: saves come every few steps, not every 10."""
    reported, progress = tmp_path / "save-every", tmp_path / "progress.json"
    reported.write_text("0.1\n")
    environment = {
        "TPUCTL_SAVE_EVERY_SECONDS": "1000", "TPUCTL_SAVE_EVERY_FILE": str(reported),
        "TPUCTL_PROGRESS_FILE": str(progress),
    }  # fmt: skip
    run = ScriptRun(tmp_path, environment=environment, steps=40, step_seconds=0.05, keep=100)
    assert run.wait() == 0
    saved = sorted(int(path.name[5:]) for path in run.out.iterdir())
    assert saved[0] > 10, "nothing is saved in the first second"
    assert len(saved) >= 4
    assert {step % 10 for step in saved} != {0}
    assert json.loads(progress.read_text())["save_pause"] > 0


def gang(folder: Path, tag: str, job: str, port: int, **flags) -> list[ScriptRun]:
    """Start four workers on loopback; each worker *n* saves to `<tag><n>`."""
    hosts = ",".join(f"127.77.{port % 250}.{worker + 1}" for worker in range(4))
    common = {"TPUCTL_WORKERS": "4", "TPUCTL_WORKER_HOSTS": hosts, "TPUCTL_JOB": job}
    return [
        ScriptRun(folder, f"{tag}{worker}", {**common, "TPUCTL_WORKER_ID": str(worker)}, port=port, **flags)
        for worker in range(4)
    ]


@pytest.fixture
def port() -> int:
    """Return a free port."""
    return free_ports(1)[0]


def test_four_workers_agree_and_survive_a_loss(tmp_path, port):
    """Four workers have one loss; when one is killed all leave with 1; together they end as unbroken."""
    straight = gang(tmp_path, "straight", "demo/1/1", port)
    assert [run.wait() for run in straight] == [0] * 4, straight[0].text()
    assert len({str(run.losses()) for run in straight}) == 1

    broken = gang(tmp_path, "broken", "demo/1/2", port, step_seconds=0.02, peer_seconds=120)
    broken[2].until("step 25 loss").process.kill()
    began = time.monotonic()
    assert [run.wait() for run in broken] == [1, 1, -9, 1]
    assert time.monotonic() - began < 60
    assert "lost a peer" in broken[1].text()

    again = gang(tmp_path, "broken", "demo/1/3", port)
    assert [run.wait() for run in again] == [0] * 4, again[0].text()
    assert "resumed from step 20" in again[3].text()
    assert again[3].losses() == straight[3].losses()
    assert again[0].state() == again[3].state() == straight[0].state()


def test_gang_stops_at_one_step(tmp_path, port):
    """SIGTERM to one worker makes all four save the same step and leave with 143."""
    runs = gang(tmp_path, "asked", "demo/1/1", port, step_seconds=0.02)
    runs[3].until("step 12 loss").process.send_signal(signal.SIGTERM)
    assert [run.wait() for run in runs] == [143] * 4, runs[0].text()
    saved = {re.findall(r"saved step (\d+)", run.text())[0] for run in runs}
    assert len(saved) == 1


def test_gang_gives_up_without_a_worker(tmp_path):
    """Worker 0 says who is missing instead of waiting for ever."""
    environment = {"TPUCTL_WORKERS": "2", "TPUCTL_WORKER_HOSTS": "127.0.0.1,127.0.0.2"}
    run = ScriptRun(tmp_path, environment=environment, join_seconds=0.5, port=0)
    assert run.wait() == 1
    assert "waited in vain for workers [1]" in run.text()
