"""
python -m benchmarks.storage: 1 and 10 GB to the local cloud's bucket and back, beside other clients.

Options: --peers PYTHON (one that has google-cloud-storage, tensorstore and obstore), --gb N (sizes in GB,
repeatable), --turns N, --print. Every way is a whole process; the ways take turns in one run. The part
`storage` of docs/performance.md is written unless --print is given.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import google_crc32c

from benchmarks import document
from benchmarks.storage.service import BUCKET
from benchmarks.table import table, words

GB = 10**9
BLOCK = 1 << 20
GOAL = 0.8
WORKERS, SHARED = 4, 0.5
DISK, LINK, SUMS = "disk: `dd`, with sync", "loopback", "loopback, with the checksums of both sides"
OURS, GCLOUD = "tpuctl's agent", "`gcloud storage cp`"
PEERS = {
    "google-cloud-storage, transfer_manager": "transfer_manager",
    "tensorstore": "tensorstore",
    "obstore": "obstore",
}
Way = Callable[[Path], None]


@dataclass(frozen=True)
class Spent:
    """Hold the seconds of one transfer, and those of computing on both sides together."""

    seconds: float
    computing: float


class StorageLab:
    """The service, the file, and what moves it."""

    def __init__(self, folder: Path, url: str, service: int, options: argparse.Namespace) -> None:
        self.folder, self.url, self.service, self.options = folder, url, service, options
        self.copy = folder / "copy"
        self.checksums: dict[float, float] = {}

    def rows(self, size: int, turns: int) -> dict[str, tuple[Spent, Spent]]:
        """Return what each way up and each way down takes, by name."""
        source = self.folder / "source"
        fill(source, size)
        self.checksums[size / GB] = checksums(source)
        ways = self.ways(source, few=size > 2 * GB)
        taken: dict[str, list[tuple[Spent, Spent]]] = {name: [] for name in ways}
        for _ in range(turns):
            for name, (up, down) in ways.items():
                there = self.timed(up, source)
                back = self.timed(down, self.copy)
                if name != SUMS and self.copy.stat().st_size != size:
                    raise RuntimeError(f"{name} brought back {self.copy.stat().st_size} bytes")
                taken[name].append((there, back))
                print(
                    f"{size / GB:g} GB, {name}: {there.seconds:.1f} s, {back.seconds:.1f} s", file=sys.stderr
                )
                self.copy.unlink(missing_ok=True)
                self.empty()
        source.unlink()
        return {
            name: (_middle([a for a, _ in both]), _middle([b for _, b in both]))
            for name, both in taken.items()
        }

    def slice(self, size: int) -> dict[str, Spent]:
        """Return what it takes until all workers of a slice have the same file, from the bucket or one another."""
        source, copies = self.folder / "source", [self.folder / f"worker{n}" for n in range(WORKERS)]
        fill(source, size)
        up, down = self.client(sys.executable, "ours")
        up(source)
        source.unlink()

        def each(files: list[Path], way: Way) -> None:
            with ThreadPoolExecutor(len(files)) as pool:
                list(pool.map(way, files))

        def from_the_first(_: Path) -> None:
            down(copies[0])
            # As processes of their own, so that they share no lock of this one.
            senders = [multiprocessing.Process(target=relayed, args=(copies[0], one)) for one in copies[1:]]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()

        found = {
            "one worker alone": self.timed(down, copies[0]),
            f"{WORKERS} workers, each from the bucket": self.timed(lambda _: each(copies, down), source),
            "one from the bucket, the others from it": self.timed(from_the_first, source),
        }
        self.empty()
        for one in copies:
            one.unlink()
        return found

    def ways(self, source: Path, *, few: bool) -> dict[str, tuple[Way, Way]]:
        """Return the ways up and down; a large file goes few of them, since each takes minutes."""
        found: dict[str, tuple[Way, Way]] = {
            DISK: (lambda file: dd(file, self.copy), lambda file: dd(source, file)),
            LINK: (
                lambda file: loopback(file, self.copy, sync=False),
                lambda file: loopback(source, file, sync=True),
            ),
            OURS: self.client(sys.executable, "ours"),
        }
        if not few:
            found[SUMS] = (
                lambda file: loopback(file, self.copy, ("sha256", "md5"), ("md5",), sync=False),
                lambda file: loopback(source, file, (), ("sha256",), sync=True),
            )
        if shutil.which("gcloud") and not few:
            found[GCLOUD] = (
                lambda file: self.gcloud(str(file), f"gs://{BUCKET}/x"),
                lambda file: self.gcloud(f"gs://{BUCKET}/x", str(file)),
            )
        if self.options.peers and not few:
            found.update((name, self.client(self.options.peers, peer)) for name, peer in PEERS.items())
        return found

    def client(self, python: str, name: str) -> tuple[Way, Way]:
        """Return both ways of a client of `clients.py`."""
        program = [python, str(Path(__file__).with_name("clients.py")), name]
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]) if name == "ours" else ""}

        def moved(way: str, file: Path) -> None:
            subprocess.run([*program, way, self.url, BUCKET, "x", str(file)], check=True, env=environ)

        return lambda file: moved("up", file), lambda file: moved("down", file)

    def gcloud(self, source: str, target: str) -> None:
        """Copy by the stock gcloud, with its own settings for parts and streams."""
        settings = {
            "CLOUDSDK_CONFIG": str(self.folder / "gcloud"), "CLOUDSDK_CORE_PROJECT": "p",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{self.url}/storage/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false", "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        }  # fmt: skip
        words_ = ["gcloud", "storage", "cp", "--quiet", source, target]
        subprocess.run(words_, check=True, env={**os.environ, **settings}, capture_output=True)

    def timed(self, way: Way, file: Path) -> Spent:
        """Return what one transfer takes."""
        begun, before = time.monotonic(), self.computing()
        way(file)
        return Spent(time.monotonic() - begun, self.computing() - before)

    def computing(self) -> float:
        """Return the seconds of computing so far, of this process, those it has waited for, and the service."""
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        fields = Path(f"/proc/{self.service}/stat").read_text().rpartition(")")[2].split()
        service = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return sum(one.ru_utime + one.ru_stime for one in own) + service

    def empty(self) -> None:
        """Delete all objects; it is not measured."""
        base = f"{self.url}/storage/v1/b/{BUCKET}/o"
        for item in json.load(urllib.request.urlopen(base)).get("items", []):
            asked = urllib.request.Request(f"{base}/{quote(item['name'], safe='')}", method="DELETE")
            urllib.request.urlopen(asked).close()


def fill(path: Path, size: int) -> None:
    """Write random bytes, which nothing packs."""
    with path.open("wb") as file:
        for start in range(0, size, BLOCK):
            file.write(os.urandom(min(BLOCK, size - start)))
        file.flush()
        os.fsync(file.fileno())


def checksums(path: Path) -> float:
    """Return the seconds of computing that the checksums of a save take by themselves, on both sides."""
    sums, crc = [hashlib.new(one) for one in ("sha256", "md5", "md5")], google_crc32c.Checksum()
    seconds = 0.0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            begun = time.process_time()
            for one in (*sums, crc):
                one.update(block)
            seconds += time.process_time() - begun
    return seconds


def dd(source: Path, target: Path) -> None:
    """Copy on the disk."""
    copy = ["dd", f"if={source}", f"of={target}", "bs=1M", "conv=fsync", "status=none"]
    subprocess.run(copy, check=True)


def loopback(
    source: Path, target: Path, mine: tuple[str, ...] = (), theirs: tuple[str, ...] = (), *, sync: bool
) -> None:
    """Copy through one TCP connection between two processes, with the least that each side can do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        sender = os.fork()
        if not sender:
            with socket.create_connection(("127.0.0.1", port)) as out, source.open("rb") as file:
                sums = [hashlib.new(one) for one in mine]
                summing = threading.Thread(target=_sum, args=(source, sums))
                summing.start()
                out.sendfile(file)
                summing.join()
            os._exit(0)
        taken, _ = listener.accept()
        sums, buffer = [hashlib.new(one) for one in theirs], bytearray(BLOCK)
        with taken, target.open("wb", buffering=0) as file, memoryview(buffer) as view:
            while count := taken.recv_into(buffer):
                file.write(view[:count])
                for one in sums:
                    one.update(view[:count])
            if sync:
                os.fsync(file.fileno())
        os.waitpid(sender, 0)


def relayed(source: Path, target: Path) -> None:
    """Bring a file from the worker that has it, with the sha256 that every worker computes."""
    loopback(source, target, (), ("sha256",), sync=True)


def _sum(path: Path, sums: "list[hashlib._Hash]") -> None:
    with path.open("rb") as file:
        while sums and (block := file.read(BLOCK)):
            for one in sums:
                one.update(block)


def _middle(found: list[Spent]) -> Spent:
    return Spent(
        statistics.median(one.seconds for one in found), statistics.median(one.computing for one in found)
    )


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, int]]:
    """Run the local cloud's storage; yield its address and process."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    program = [sys.executable, "-m", "benchmarks.storage.service", str(folder), str(port)]
    process = subprocess.Popen(program)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{url}/storage/v1/b/{BUCKET}/o").close()
                break
            except OSError:
                time.sleep(0.1)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def page(
    found: dict[float, dict[str, tuple[Spent, Spent]]], shared: dict[str, Spent], sums: dict[float, float]
) -> str:
    """Return the tables and what they say about the goal."""
    about = words(
        "A file of random bytes goes to the storage of the local cloud and comes back; every way is a whole",
        f"process, medians of one run on {os.cpu_count()} cores under a load of {os.getloadavg()[2]:.0f}.",
        "A *ratio* is a share of the disk's speed,",
        "`dd conv=fsync` in the same run: 1 is as fast. *Computing* counts client and service together, in",
        "seconds of one core. The agent computes the sha256 that the manifest holds and an MD5 of each part, and",
        "syncs what it brings to the disk; the other clients sync nothing. *Loopback* is one connection between",
        "two processes that do nothing else.",
    )
    parts, goals = ["## Restore and save", about], []
    for size, rows in found.items():
        disk = rows[DISK]
        lines = [
            (
                name, f"{up.seconds:.1f}", f"{disk[0].seconds / up.seconds:.2f}", f"{up.computing:.1f}",
                f"{down.seconds:.1f}", f"{disk[1].seconds / down.seconds:.2f}", f"{down.computing:.1f}",
            )
            for name, (up, down) in rows.items()
        ]  # fmt: skip
        heads = (f"{size:g} GB", "save, s", "ratio", "computing, s", "restore, s", "ratio", "computing, s")
        parts.append(table(heads, lines))
        goals += [_goal(size, rows, number, what) for number, what in enumerate(("save", "restore"))]
        goals.append(
            words(
                f"The checksums of a save of {size:g} GB alone are {sums[size]:.1f} s of computing: sha256 and MD5",
                "by the agent, MD5 and CRC32C by the service. The rest is reading, the connection and writing.",
                item=True,
            )
        )
    alone = next(iter(shared.values())).seconds
    lines_ = [
        (name, f"{one.seconds:.1f}", f"{one.seconds / alone:.2f}", f"{one.computing:.1f}")
        for name, one in shared.items()
    ]
    parts.append(
        words(
            f"The same file of {SHARED:g} GB for the workers of one slice; here all of them, the bucket and the",
            "relay share the cores of one computer.",
        )
    )
    parts.append(table(("until all have it", "seconds", "of one alone", "computing, s"), lines_))
    goals.append(
        words(
            "Each worker fetches its own part of a checkpoint. What all need (code, data, a checkpoint that only",
            "worker 0 saved) comes to each from the bucket, and not from another worker. That is quicker here only",
            "because all share the cores; it would need a port that workers listen on, a key for it,",
            "and an answer to a worker that dies while others wait for it. Whether it would be quicker at Google's",
            "nobody has measured.",
            item=True,
        )
    )
    return "\n\n".join([*parts, "\n".join(goals)])


def _goal(size: float, rows: dict[str, tuple[Spent, Spent]], number: int, what: str) -> str:
    floor, ours = max(rows[DISK][number].seconds, rows[LINK][number].seconds), rows[OURS][number]
    share = floor / ours.seconds
    bare = rows.get(SUMS)
    sums = (
        f"With the checksums that both sides need, bare loopback takes {bare[number].seconds:.1f} s. "
        if bare
        else ""
    )
    end = "kept." if share >= GOAL else (
        f"missed. {sums}Agent and service compute {ours.computing:.1f} s, the disk's copy"
        f" {rows[DISK][number].computing:.1f} s, and on a busy computer that decides."
    )  # fmt: skip
    return words(
        f"{what.capitalize()} of {size:g} GB: {share:.2f} of the slower of disk and loopback, the goal is",
        f"{GOAL:g}: {end}",
        item=True,
    )


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers")
    parser.add_argument("--gb", type=float, action="append")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-storage-") as name:
        folder = Path(name)
        with service(folder / "service") as (url, process):
            lab = StorageLab(folder, url, process, options)
            shared, found = lab.slice(int(SHARED * GB)), {}
            for size in options.gb or (1.0, 10.0):
                found[size] = lab.rows(int(size * GB), options.turns if size <= 2 else 1)
                text = page(found, shared, lab.checksums)
                print(text, flush=True)
                # After each size: the largest takes many minutes.
                if not options.print:
                    document.put("storage", text)


if __name__ == "__main__":
    main()
