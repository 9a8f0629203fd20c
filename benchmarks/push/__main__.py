"""
python -m benchmarks.push: 2,000 files of 12 MB in all to a real sshd on loopback, beside other ways.

Every way is a whole process, begun from nothing; the ratios are of medians of one run, taken in turn. The
part `push` of docs/performance.md is written unless --print is given.
"""

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from benchmarks import document
from benchmarks.push import ways
from benchmarks.push.machines import SshdMachine, machines
from benchmarks.push.ours import push
from benchmarks.push.relay import far_away
from benchmarks.table import goal, table, words
from orchestrator.ssh.keys import ensure_key

FILES, FILE_BYTES, WORKERS, TURNS = 2000, 6000, 16, 3
WORDS = ("def", "self", "return", "import", "for", "in", "range", "model", "loss", "step", "tensor", "None")


FEW, ROUND_TRIP = 320, 0.040
WARM, GZIP = "the same, through an open connection", "the same from nothing, with gzip -1"
TAR, TAR_TO_ALL = "`tar \\| ssh tar x`", "`tar \\| ssh tar x`, all at once"
WHOLE, HERE, OURS_TO_ALL = "tpuctl", "tpuctl, in a process that runs already", "tpuctl, in one process"
LOG_IN, LOAD = "`ssh` that logs in and runs `true`", "Python that imports fabric and ends"


def main() -> None:
    """Measure, print, and write the table."""
    with tempfile.TemporaryDirectory(prefix="bench-push-") as name:
        folder = Path(name)
        key = ensure_key(folder / "key")
        source = folder / "source"
        fill(source)
        with machines(folder / "machines", key.path, key.public, WORKERS) as hosts:
            text = PushLab(folder, source, key.path, hosts).table()
    print(text)
    if "--print" not in sys.argv:
        document.put("push", text)


def fill(source: Path, files: int = FILES) -> None:
    """Write the files: words of a program, which compress about as source code, and some random bytes."""
    draw = random.Random(1)
    for number in range(files):
        path = source / f"package{number % 40}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = " ".join(draw.choices(WORDS, k=FILE_BYTES // 8)).encode()
        path.write_bytes((text + draw.randbytes(FILE_BYTES))[:FILE_BYTES])


class PushLab:
    """The machines, and what was measured on them."""

    def __init__(self, folder: Path, source: Path, key: Path, hosts: list[SshdMachine]) -> None:
        self.folder, self.source, self.key, self.hosts = folder, source, key, hosts
        self.turn = 0

    def table(self) -> str:
        """Return the part of the document."""
        with ways.connection(self.hosts[0]):
            cold = self.first_pushes()
        cold["fabric `put` loop (once)"] = self.once(
            lambda name: ways.fabric_put(self.source, self.hosts[0], name)
        )
        again = self.compare(
            {
                WHOLE: lambda _: self.ours(1, fresh=False),
                HERE: lambda _: self.ours_here(1, fresh=False),
                LOG_IN: lambda _: ways.log_in(self.hosts[0]),
                LOAD: lambda _: ways.load_fabric(),
                **self.with_rsync(
                    "rsync -a", lambda _: ways.rsync(self.source, self.hosts[0], "rsync-again")
                ),
            },
            TURNS + 1,
        )
        many = self.compare(
            {
                OURS_TO_ALL: lambda _: self.ours_here(WORKERS),
                TAR_TO_ALL: self.tar_to_all,
                "tpuctl, nothing has changed": lambda _: self.ours_here(WORKERS, fresh=False),
            },
            2,
        )
        return page(cold, again, many, self.from_afar(), self.client_seconds())

    def first_pushes(self) -> dict[str, float]:
        """Return the seconds of each way to bring all files to a machine that has none."""
        return self.compare(
            {
                TAR: lambda name: ways.tar_over_ssh(self.source, self.hosts[0], name),
                WARM: lambda name: ways.warm_tar(self.source, self.hosts[0], name),
                GZIP: lambda name: ways.gzip_over_ssh(self.source, self.hosts[0], name),
                WHOLE: lambda _: self.ours(1),
                HERE: lambda _: self.ours_here(1),
                "`scp -O -r`": lambda name: ways.old_scp(self.source, self.hosts[0], name),
                "`scp -r`": lambda name: ways.scp(self.source, self.hosts[0], name),
                **self.with_rsync("rsync -a", lambda name: ways.rsync(self.source, self.hosts[0], name)),
            },
            TURNS,
        )

    def from_afar(self) -> dict[str, float]:
        """Return the seconds of each way to a machine far away, with fewer files."""
        few = self.folder / "few"
        fill(few, FEW)
        with far_away(self.hosts[0], ROUND_TRIP) as host, ways.connection(host):
            self.forget(1)
            return self.compare(
                {
                    TAR: lambda name: ways.tar_over_ssh(few, host, name),
                    WARM: lambda name: ways.warm_tar(few, host, name),
                    GZIP: lambda name: ways.gzip_over_ssh(few, host, name),
                    HERE: lambda _: self.ours_to(few, host),
                    **self.with_rsync("rsync -a", lambda name: ways.rsync(few, host, name)),
                    "`scp -O -r`": lambda name: ways.old_scp(few, host, name),
                },
                1,
            )

    def ours_to(self, source: Path, host: SshdMachine) -> None:
        """Push a folder from this process to one machine that has seen nothing yet."""
        self.forget(1)
        push(source, self.folder / "bundles", self.key, [host.host])

    def with_rsync(self, name: str, way: Callable[[str], None]) -> dict[str, Callable[[str], None]]:
        """Return the way where rsync is installed."""
        return {f"`{name}`": way} if shutil.which("rsync") else {}

    def compare(self, found: dict[str, Callable[[str], None]], turns: int) -> dict[str, float]:
        """Return the median of each way, all of them taken in turn *turns* times."""
        times: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(turns):
            for name, way in found.items():
                times[name].append(self.once(way))
        return {name: statistics.median(taken) for name, taken in times.items()}

    def once(self, way: Callable[[str], None]) -> float:
        """Return the seconds of one way, to a folder that is not there yet."""
        self.turn += 1
        name = f"copy{self.turn}"
        # What the way before has left unwritten would count for the first one that syncs, which is ours.
        os.sync()
        begun = time.monotonic()
        way(name)
        taken = time.monotonic() - begun
        for one in self.hosts:
            shutil.rmtree(one.root / name, ignore_errors=True)
        return taken

    def ours(self, count: int, *, fresh: bool = True) -> None:
        """Push as a process of its own; *fresh* is a machine and a computer that have seen nothing yet."""
        if fresh:
            self.forget(count)
        hosts = [json.dumps(asdict(one.host)) for one in self.hosts[:count]]
        program = [sys.executable, "-m", "benchmarks.push.ours"]
        words = [*program, str(self.source), str(self.folder / "bundles"), str(self.key), *hosts]
        subprocess.run(words, check=True)

    def ours_here(self, count: int, *, fresh: bool = True) -> None:
        """Push from this process."""
        if fresh:
            self.forget(count)
        push(self.source, self.folder / "bundles", self.key, [one.host for one in self.hosts[:count]])

    def forget(self, count: int) -> None:
        """Take away what earlier pushes left, by renames, which cost nothing that is measured."""
        self.turn += 1
        old = self.folder / f"old{self.turn}"
        old.mkdir()
        places = [self.folder / "bundles"] + [
            m.root / n for m in self.hosts[:count] for n in ("bundle", "current")
        ]
        for number, place in enumerate(places):
            if place.is_symlink() or place.exists():
                place.rename(old / str(number))

    def tar_to_all(self, name: str) -> None:
        """Run one tar for each worker, all at the same time."""
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda one: ways.tar_over_ssh(self.source, one, name), self.hosts))

    def client_seconds(self) -> tuple[float, float]:
        """Return the seconds of computing on our side for one worker and for all."""

        def spent(count: int) -> float:
            before = resource.getrusage(resource.RUSAGE_SELF)
            self.ours_here(count)
            after = resource.getrusage(resource.RUSAGE_SELF)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        return spent(1), spent(WORKERS)


def page(
    cold: dict[str, float],
    again: dict[str, float],
    many: dict[str, float],
    afar: dict[str, float],
    client: tuple[float, float],
) -> str:
    """Return the tables and what they say about the goals."""
    about = words(
        f"{FILES:,} files, {FILES * FILE_BYTES / 1e6:.0f} MB, to a real sshd on loopback; medians of one",
        f"run on {os.cpu_count()} cores under a load of {os.getloadavg()[2]:.0f}.",
        "A ratio below 1 is faster than `tar | ssh tar x` from nothing. Each way is a whole process",
        "unless it says otherwise. tpuctl builds the bundle, sends it, compares its sha256 there, syncs it",
        "to disk and switches by a rename; the others do neither of the last three. In the last table a",
        "relay delays each piece on its way.",
    )
    tables = [
        table(
            (title, "seconds", "ratio"),
            [(name, f"{taken:.2f}", f"{taken / yard:.2f}") for name, taken in found.items()],
        )
        for title, found, yard in (
            ("first push", cold, cold[TAR]),
            ("nothing has changed", again, cold[TAR]),
            (f"{WORKERS} workers at once", many, cold[TAR]),
            (f"first push of {FEW} files, {1000 * ROUND_TRIP:.0f} ms away", afar, afar[TAR]),
        )
    ]
    return "\n\n".join(["## Push of code", about, *tables, "\n".join(_goals(cold, again, many, client))])


def _goals(
    cold: dict[str, float], again: dict[str, float], many: dict[str, float], client: tuple[float, float]
) -> list[str]:
    yard, one, all_tar = cold[TAR], cold[HERE], many[TAR_TO_ALL]
    loads = f"To import fabric takes {again[LOAD] / yard:.2f} of it by itself"
    return [
        goal(
            "First push", cold[WHOLE] / yard, 1.3, "of `tar | ssh`",
            f"{loads}, and the push {cold[HERE] / yard:.2f} in a process that has done so.",
        ),
        goal(
            "Unchanged", again[WHOLE] / yard, 0.35, "of `tar | ssh`",
            f"{loads}, and OpenSSH takes {again[LOG_IN] / yard:.2f} to log in, which we do too: only the machine "
            "knows what it has.",
        ),
        goal(
            f"{WORKERS} workers", many[OURS_TO_ALL] / one, 3.0, "of one worker",
            f"Here all {WORKERS} unpack on one computer, as the {all_tar / yard:.1f} of `tar | ssh` shows; "
            "real"
            " ones unpack on their own.",
        ),
        words(
            f"Our side computes {client[0]:.2f} s for one worker and {client[1]:.2f} s for {WORKERS}; the",
            "bundle is built once.",
            item=True,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
