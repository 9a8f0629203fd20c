"""What all tests of recipes need: a copy of a recipe, its virtual environment, and runs that can be killed."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from orchestrator.agent.layout import Layout
from orchestrator.agent.machine.venv import install_command
from orchestrator.emulator.machines.machine_python import package_sources
from orchestrator.scripts import uv_program
from orchestrator.scripts.agent_zipapp import build
from tests.kit.waiting import until

HELD = Path(__file__).parent / "held.py"
EXAMPLES = Path(__file__).parents[2] / "examples"
VENVS = Path(os.environ.get("TPUCTL_VENV_CACHE") or Path.home() / ".cache/tpuctl/venvs")
# The deadlines only end what would never end: two recipes at once on a busy computer are slow.
INSTALL_TIMEOUT, RUN_TIMEOUT = 1200, 300


@cache
def tools() -> Path:
    """Return a folder with `tpuctl-venv`: recipes here share environments with machines."""
    folder = Path(tempfile.mkdtemp(prefix="recipe-tools-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    build(folder / "agent.pyz")
    install_command(Layout(folder), folder / "agent.pyz")
    return Layout(folder).programs


def copy(name: str, folder: Path) -> Path:
    """Copy a recipe out of the repository into *folder*, as a user does; return *folder*."""
    ignore = shutil.ignore_patterns("__pycache__", "data", "checkpoints", "venv", ".venv")
    shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True, ignore=ignore)
    return folder


def held(command: str) -> str:
    """Return a command that starts its script through held.py."""
    return re.sub(r"(?<!held\.py )\b(?=(?:train|launch)\.py\b)", "held.py ", command)


def hold(folder: Path) -> None:
    """Let the copy of a recipe in *folder* start its script through held.py."""
    shutil.copy(HELD, folder)
    for name in ("tpuctl.yaml", "train.sh"):
        if (folder / name).exists():
            text = (folder / name).read_text()
            (folder / name).write_text(held(text))


def hold_at(gate: Path, step: int) -> None:
    """Let what runs through held.py wait from *step* on."""
    building = gate.with_suffix(".new")
    building.write_text(str(step))
    building.replace(gate)


@dataclass
class RecipeCommand:
    """One start of a command of a recipe in its own session, with its output in a file."""

    folder: Path
    log: Path
    process: subprocess.Popen

    def text(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text(errors="replace")

    def wait(self, expect: int | None = 0, seconds: float = RUN_TIMEOUT) -> str:
        """Wait for its end; return its output. *expect* is the status that it must leave with."""
        try:
            code = self.process.wait(seconds)
        finally:
            self.kill()
        assert expect is None or code == expect, f"status {code}, not {expect}:\n{self.text()[-6000:]}"
        return self.text()

    def until(self, pattern: str, seconds: float = RUN_TIMEOUT) -> "RecipeCommand":
        """Wait until its output matches."""
        printed = re.compile(pattern, re.MULTILINE)
        return self.wait_for(lambda: printed.search(self.text()) is not None, seconds, pattern)

    def wait_for(
        self, look: Callable[[], bool], seconds: float = RUN_TIMEOUT, what: str = "what the run does"
    ) -> "RecipeCommand":
        """Wait until *look* says yes, while the run goes on."""

        def observed() -> bool:
            ended = self.process.poll() is not None
            found = look()
            assert found or not ended, f"it has ended:\n{self.text()[-6000:]}"
            return found

        until(observed, what, seconds, 0.02, lambda: self.text()[-6000:])
        return self

    def go_on(self) -> None:
        """Let its script wait no longer."""
        self.log.with_suffix(".gate").unlink()

    def kill(self) -> None:
        """SIGKILL everything that carries this run's mark, wherever it moved, and see it gone."""
        mark = f"\0RECIPE_RUN={self.log}\0".encode()

        def gone() -> bool:
            remaining = [pid for pid, environ in _environments() if mark in environ]
            for pid in remaining:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            return not remaining

        until(gone, "the end of the run's processes", RUN_TIMEOUT, 0.02)
        self.process.wait(10)


@dataclass
class Recipe:
    """A copy of a recipe and the environment that its commands run in."""

    name: str
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: list[RecipeCommand] = field(default_factory=list)

    def start(self, command: str, held_at: int | None = None, **environment: str) -> RecipeCommand:
        """Start a shell command in the recipe's folder; its script waits from step *held_at* on."""
        log = self.folder.parent / f"{self.folder.name}-{len(self.runs)}.log"
        if held_at is not None:
            hold(self.folder)
            command, gate = held(command), log.with_suffix(".gate")
            hold_at(gate, held_at)
            environment["HELD_AT"] = str(gate)
            environment.setdefault("TPUCTL_PROGRESS_FILE", str(log.with_suffix(".step")))
        base = {
            "PATH": f"{tools()}:{os.environ['PATH']}", "HOME": os.environ["HOME"],
            "TPUCTL_VENV_CACHE": str(VENVS),
            "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "RECIPE_RUN": str(log),
            **package_sources(os.environ), "TPUCTL_LOCAL_UV": str(uv_program.program()),
            "UV_CACHE_DIR": str(uv_program.shared_folder() / "packages"),
            **self.environment, **environment,
        }  # fmt: skip
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", command], cwd=self.folder, env=base, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        run = RecipeCommand(self.folder, log, process)
        self.runs.append(run)
        return run

    def run(self, command: str, seconds: float = RUN_TIMEOUT, **environment: str) -> str:
        """Run a command to its successful end; return its output."""
        return self.start(command, **environment).wait(0, seconds)

    def close(self) -> None:
        """Leave no process behind."""
        for run in self.runs:
            run.kill()


def prepared(name: str, folder: Path, *commands: str, **environment: str) -> Recipe:
    """Return a copy of a recipe with its virtual environment made and *commands* (its data step) run."""
    recipe = Recipe(name, copy(name, folder / name), environment)
    recipe.run("sh venv.sh", INSTALL_TIMEOUT)
    for command in commands:
        recipe.run(command)
    return recipe


def losses(text: str) -> dict[int, str]:
    """Return the loss printed for each step; a step that was trained twice must have the same one twice."""
    found: dict[int, str] = {}
    for step, loss in re.findall(r"^step (\d+) loss (\S+)$", text, re.MULTILINE):
        first = found.setdefault(int(step), loss)
        assert first == loss, f"step {step} had two losses: {first}, {loss}"
    return found


def _environments() -> Iterator[tuple[int, bytes]]:
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                yield int(path.name), b"\0" + (path / "environ").read_bytes()
            except OSError:
                continue
