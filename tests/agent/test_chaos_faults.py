"""A disk that is full, a bucket that is away for long, links that break, and checkpoints that are cut."""

import itertools
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.context import AgentContext
from orchestrator.clock import Clock, VirtualClock
from orchestrator.contract.machine_errors import DamagedError
from orchestrator.emulator.http.router import Request, Response
from tests.agent.agent_lab import AgentMachine
from tests.agent.chaos_lab import MANIFEST, STATES, ChaosLab, chaos_lab, whole_steps
from tests.agent.chaos_script import files
from tests.ssh.chaos_machine import ServerLoop
from tests.ssh.toxics import Proxy

OUTAGE = 600.0
FROM_20 = Attempt(1, 20, 1, 0, "test", 0)
STORED_20 = "checkpoints/00000020/g1/w0"
BEGUN_30 = "checkpoints/00000030/g2/w0"


class Waits(VirtualClock):
    """A virtual clock that knows its longest wait."""

    longest = 0.0

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        super().wait(seconds, wake)
        self.longest = max(self.longest, seconds)


class FillableDisk:
    """The disk of one machine, which can be filled: a small file system of its own, or else a limit on files."""

    def __init__(self, folder: Path) -> None:
        self.machine: AgentMachine | None = None
        self._ballast = folder / "ballast"
        folder.mkdir()
        self.mounted = os.getuid() == 0 and shutil.which("mount") is not None and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode  # fmt: skip

    def fill(self) -> None:
        """Leave no room."""
        if not self.mounted:
            return self._limit(0)
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return None

    def free(self) -> None:
        """Make room again."""
        if not self.mounted:
            return self._limit(resource.RLIM_INFINITY)
        return self._ballast.unlink()

    def _limit(self, size: int) -> None:
        assert self.machine is not None
        assert self.machine.process is not None
        resource.prlimit(self.machine.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[ChaosLab]:
    """Give a test a deployment with two whole checkpoints."""
    with chaos_lab(tmp_path / "lab") as made:
        yield made


@contextmanager
def disk_of(chaos: ChaosLab) -> Iterator[FillableDisk]:
    """Give the first machine of incarnation 2 a disk of its own."""
    folder = chaos.lab.folder / "g2-w0"
    disk = FillableDisk(folder)
    try:
        yield disk
    finally:
        for machine in chaos.lab.machines:
            machine.kill_all()
        if disk.mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def context_of(chaos: ChaosLab, clock: Clock | None = None) -> AgentContext:
    """Return the context of a new machine's agent, in this process."""
    context = chaos.slice(2)[0].context(clock)
    context.settings.layout.make()
    return context


@pytest.mark.parametrize("status", [503, 429])
def test_a_bucket_that_is_away_for_ten_minutes_is_waited_for(chaos: ChaosLab, status: int) -> None:
    """Real requests on a virtual clock: they go on, neither in a rush nor with long sleeps, and then succeed."""
    clock = Waits()
    context = context_of(chaos, clock)
    reported: dict[float, str] = {}

    def away(_request: Request) -> Response | None:
        reported[clock.monotonic()] = context.heartbeat.body()["message"]
        return Response(status, b"away") if clock.monotonic() < OUTAGE else None

    chaos.lab.fault = away
    newest = context.patiently("look for checkpoints", context.checkpoints.newest)

    assert newest is not None
    assert newest.step == 20
    assert OUTAGE <= clock.monotonic() < OUTAGE + 60
    assert clock.longest <= 16
    assert 40 < len(reported) < 400
    assert all(f": {status} away" in text for at, text in reported.items() if 61 < at < OUTAGE)
    assert context.heartbeat.body()["message"] == ""


@pytest.mark.parametrize("moment", [f"{STORED_20}/part/weights.bin", f"{BEGUN_30}/part/weights.bin"])
def test_a_full_disk_is_reported_and_waited_out(chaos: ChaosLab, moment: str) -> None:
    """Full while a checkpoint is restored, and full while the next one is committed: nothing is lost."""
    with disk_of(chaos) as disk:
        filled = []

        def fill(request: Request) -> Response | None:
            name = request.query.get("name") or request.path.replace("%2F", "/")
            if name.endswith(moment) and not filled:
                filled.append(name)
                disk.fill()
            return None

        chaos.lab.fault = fill
        (machine,) = chaos.slice(2)
        disk.machine = machine.start()
        words = "No space left" if disk.mounted else "File too large"
        machine.until(lambda: words in machine.heartbeat().get("message", ""), "the full disk is reported")
        if moment.startswith(BEGUN_30):
            machine.until(lambda: 30 in whole_steps(chaos.lab), "the checkpoint is committed all the same")
        disk.free()

        assert machine.wait() == 0, machine.agent_log()
        assert list(chaos.wrong([machine])) == []


def test_an_upload_that_is_reset_leaves_no_checkpoint_and_is_done_again(chaos: ChaosLab) -> None:
    """The connection ends in the middle of a file, until the network is well again."""
    loop = ServerLoop()
    host, port = chaos.lab.url.removeprefix("http://").split(":")
    proxy = Proxy((host, int(port)), "127.0.0.1")
    loop.run(proxy.open())
    loop.run(proxy.arm("reset_peer", 3000))
    (machine,) = chaos.slice(2)
    chaos.lab.proxies.add(f"127.0.0.1:{proxy.port}")
    machine.env["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{proxy.port}"
    machine.start()
    machine.until(lambda: proxy.struck, "an upload of more than 3,000 bytes")
    machine.until(lambda: proxy.refused > 3, "more tries")
    assert whole_steps(chaos.lab) == {10, 20}
    assert not [name for name in chaos.lab.names(BEGUN_30) if name.endswith(("weights.bin", MANIFEST))]

    loop.run(proxy.heal())

    assert machine.wait() == 0, machine.agent_log()
    assert list(chaos.wrong([machine])) == []
    assert len(chaos.lab.attempts(2)) == 1
    loop.run(proxy.close())
    loop.close()


def cuts(step: int) -> Iterator[dict[str, bytes]]:
    """Yield a save of a step that ended early: at every file boundary, and inside every file."""
    whole = files(step, STATES[step])
    for number, (name, data) in enumerate(whole.items()):
        before = dict(itertools.islice(whole.items(), number))
        yield before
        for length in sorted({0, 1, len(data) // 2, len(data) - 1} & set(range(len(data)))):
            yield {**before, name: data[:length]}


def test_a_save_that_was_cut_anywhere_is_put_aside_and_never_sent(chaos: ChaosLab) -> None:
    """The disk of a killed machine: the unfinished step is quarantined, and a note names it."""
    context = context_of(chaos)
    folder = Path(context.local.folder)
    for cut in cuts(30):
        for name, data in cut.items():
            path = folder / "step-000030" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        context.committer.begin(1, 20)
        assert context.committer.commit() is False
        notes = " ".join(context.restorer.restore(FROM_20).notes)
        assert {one.step for one in context.local.checkpoints()} == {20}
        assert not cut or ("step-000030 is unfinished (no COMPLETE in it)" in notes and "quarantine" in notes)
    assert chaos.lab.names(BEGUN_30) == []
    assert chaos.watch.wrong == []


@pytest.mark.parametrize("name", [*files(20, STATES[20])][:-1])
def test_a_stored_file_that_was_cut_anywhere_is_found_out(chaos: ChaosLab, name: str) -> None:
    """The restore refuses it, and then the checkpoint before is the newest."""
    context, data = context_of(chaos), files(20, STATES[20])[name]
    manifest = chaos.lab.read(STORED_20 + MANIFEST)
    for length in (0, 1, len(data) // 2, len(data) - 1):
        chaos.lab.put(f"{STORED_20}/{name}", data[:length])
        with pytest.raises(DamagedError, match=name):
            context.restorer.restore(FROM_20)
        assert not (Path(context.local.folder) / "step-000020").exists()
        context.restorer.discard(FROM_20)
        newest = context.checkpoints.newest()
        assert newest is not None
        assert newest.step == 10
        chaos.lab.put(STORED_20 + MANIFEST, manifest)


def test_a_manifest_that_was_cut_anywhere_is_no_manifest(chaos: ChaosLab) -> None:
    """Half a manifest never makes a checkpoint."""
    context, whole = context_of(chaos), chaos.lab.read(STORED_20 + MANIFEST)
    for length in range(0, len(whole), 25):
        chaos.lab.put(STORED_20 + MANIFEST, whole[:length])
        newest = context.checkpoints.newest()
        assert newest is not None
        assert newest.step == 10, length
