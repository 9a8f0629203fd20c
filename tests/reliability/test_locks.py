"""
Who may act on a deployment: real processes contend for the lease in the bucket and for a computer's lock.

The bucket is the local cloud's over HTTP, asked by the official client; in one process, threads contend. Where a
lease must run out, all clocks go faster than real time.
.ci/reliability plays 500 rounds (TPUCTL_LOCK_ROUNDS) with 2 to 8 processes (TPUCTL_LOCK_PROCESSES).
"""

import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from orchestrator.clock import SystemClock
from orchestrator.contract.bucket.object_names import LEASE, RECORD
from orchestrator.domain.lease import EXPIRES_AFTER, Holder
from orchestrator.emulator.client import BASE, InProcess
from orchestrator.emulator.http.router import Router
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.state.cloud_settings import LocalCloudSettings
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.engine.lease.lease_object import Lease
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.errors import LeaseHeldError, PreconditionError
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.objects import GcsStore
from tests.agent.agent_lab import is_alive
from tests.emulator.http_fixture import serve
from tests.kit.figures import record_figures
from tests.kit.records import record_of
from tests.kit.waiting import until
from tests.reliability.contenders import TIMEOUT, FastClock, read
from tests.reliability.damage import depth

ROOT = Path(__file__).parents[2]
ROUNDS = depth("TPUCTL_LOCK_ROUNDS", 12)
PROCESSES = {2, 4, 8} if ROUNDS >= 100 else {4}
RATE = 20.0
FIGURES: dict[str, object] = {}


@pytest.fixture(scope="module", autouse=True)
def figures():
    """Print what the tests of this module have counted."""
    yield
    record_figures(
        "locks",
        "One holder at a time (R4)",
        "Real processes contend for the lease in the bucket, over HTTP and by the official client, and for "
        "the lock of a computer; threads contend within one process.",
        dict(sorted(FIGURES.items())),
    )


class ContenderLab:
    """A folder for notes and a bucket, where processes play their roles."""

    def __init__(self, folder, storage, url, rate):
        self.folder, self.storage, self.url, self.rate = folder, storage, url, rate
        folder.mkdir()
        storage.buckets.create("p", {"name": folder.name})
        record = encode(record_of(bucket_observed=True), "demo")
        storage.objects.insert(folder.name, RECORD, record, {}, Preconditions())

    def role(self, kind, name="", **more):
        """Return one role for `contenders`."""
        place = {"url": self.url, "folder": str(self.folder), "bucket": self.folder.name, "rate": self.rate}
        return {**place, "kind": kind, "name": name, **more}

    def object(self, name):
        """Return an object of the bucket, None when it is not there."""
        with self.storage.lock:
            found = [o for o in self.storage.objects.all() if (o.bucket, o.name) == (self.folder.name, name)]
            return found[0] if found else None

    def data(self, name):
        """Return an object's bytes."""
        return self.storage.objects.read(self.object(name))

    def signal(self, name):
        """Give a sign to the processes that wait for it."""
        (self.folder / name).write_text("{}")

    def wait_for(self, name):
        """Wait for a note of a process and return it."""
        return until(lambda: read(self.folder, name), f"{name} in {self.folder}", TIMEOUT, 0.005)


@contextmanager
def bucket_server(rate):
    """Serve an empty storage over HTTP."""
    storage, router = Storage(FastClock(rate)), Router()
    storage_routes(router, storage)
    with serve(router) as url:
        yield storage, url


@contextmanager
def playing(roles):
    """Start a play; at its end nobody may have failed."""
    command = [sys.executable, "-m", "tests.reliability.contenders", json.dumps(roles)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def book(folder):
    """Return the lines of the book of holders."""
    return [line.split() for line in (folder / "book").read_text().splitlines()]


def demand_no_overlap(lines):
    """Check that who entered left before the next one entered; return the number of rounds."""
    for enter, leave in zip(lines[::2], lines[1::2], strict=True):
        assert (enter[0], leave[0], enter[1:]) == ("enter", "leave", leave[1:])
    return len(lines) // 2


@pytest.mark.parametrize("processes", sorted(PROCESSES))
def test_of_many_processes_one_has_the_lease(processes, tmp_path):
    """No two are inside at the same time, the fencing token only grows, and everybody gets a turn."""
    share = -(-ROUNDS // len(PROCESSES) // processes)
    with bucket_server(1.0) as (storage, url):
        lab = ContenderLab(tmp_path / "contend", storage, url, 1.0)
        began = time.monotonic()
        with playing([lab.role("contend", str(n), rounds=share) for n in range(processes)]):
            pass
        seconds = time.monotonic() - began
        assert lab.object(LEASE) is None
    lines = book(lab.folder)
    rounds = demand_no_overlap(lines)
    assert rounds == share * processes
    tokens = [int(token) for _, _, token in lines[::2]]
    assert tokens == sorted(set(tokens))
    assert len({pid for _, pid, _ in lines}) == processes
    FIGURES[f"lease over HTTP, {processes} processes"] = f"{rounds} rounds, 0 overlaps, {seconds:.0f} s"


@contextmanager
def plays(tmp_path):
    """Play the three ways to lose a holder at once: each has a bucket of its own."""
    with bucket_server(RATE) as fast, bucket_server(1.0) as real:
        killed, stopped = (ContenderLab(tmp_path / name, *fast, RATE) for name in ("killed", "stopped"))
        here = ContenderLab(tmp_path / "here", *real, 1.0)
        roles = [lab.role("hold", "holder") for lab in (killed, stopped)]
        roles += [killed.role("take", str(n)) for n in range(3)]
        roles += [stopped.role("take", "taker")]
        roles += [here.role("hold", "holder", here=True), here.role("take", "taker", here=True)]
        with playing(roles), ExitStack() as stack:
            for lab in (killed, here, stopped):
                stack.callback(lab.signal, "end")
                stack.callback(lab.signal, "go")
            yield killed, here, stopped


def test_a_holder_that_is_lost_is_followed_and_fenced(tmp_path):
    """
    SIGKILL: other computers wait until the lease has run out, the same one knows that the process is dead.

    SIGSTOP past the lease, then SIGCONT: the late write is refused by its generation, and releasing a lease
    that is another's by now does nothing.
    """
    with plays(tmp_path) as (killed, here, stopped):
        holders = [lab.wait_for("held") for lab in (killed, here, stopped)]
        leases = [lab.object(LEASE) for lab in (killed, here, stopped)]
        for holder, sign in zip(holders, (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP), strict=True):
            os.kill(holder["pid"], sign)
        _followed_after(here, "taker", leases[1], at_least=0.0)
        _followed_after(stopped, "taker", leases[2], at_least=EXPIRES_AFTER)
        _fenced(stopped, holders[2])
        took = _first_of(killed, leases[0])
        _shown(read(killed.folder, f"refused-{took}")["said"], holders[0])
        killed.signal("end")
    lines = [line for line in book(killed.folder) if int(line[1]) != holders[0]["pid"]]
    assert demand_no_overlap(lines) == 3
    assert decode(killed.data(RECORD), "demo").node.preemptions == 3


def _followed_after(lab, name, lease, at_least):
    """Check when the next one took the lease, by the bucket's clock, and with which token."""
    took = lab.wait_for(f"took-{name}")
    assert took["token"] > lease.generation
    waited = lab.object(LEASE).updated - lease.updated
    assert waited >= at_least
    assert at_least or waited < EXPIRES_AFTER, "a dead process of this computer was waited for"


def _fenced(lab, holder):
    """Wake the paused holder, and see everything that it does refused."""
    # The taker's renewals change the generation, but not what the lease says.
    mine, record = lab.data(LEASE), lab.data(RECORD)
    lab.signal("go")
    os.kill(holder["pid"], signal.SIGCONT)
    woken = lab.wait_for("woken")
    assert woken["write"].startswith("LeaseHeldError")
    assert woken["keep"].startswith("LeaseHeldError")
    assert woken["again"].startswith("LeaseHeldError")
    assert woken["release"] == ""
    assert (lab.data(LEASE), lab.data(RECORD)) == (mine, record)
    FIGURES["SIGSTOP past the lease, then SIGCONT"] = "write, renewal and release refused"


def _first_of(lab, lease):
    """Return which of the takers came first; the others still wait then."""
    first = until(lambda: [p.name for p in lab.folder.glob("took-*")], "one takes over", TIMEOUT, 0.005)
    time.sleep(0.2)  # Long enough for a second one to come in, if it could.
    assert [p.name for p in lab.folder.glob("took-*")] == first
    assert len(first) == 1
    name = first[0].removeprefix("took-")
    _followed_after(lab, name, lease, at_least=EXPIRES_AFTER)
    FIGURES["SIGKILL of the holder"] = (
        f"taken over after {EXPIRES_AFTER:.0f} s by one of 3; at once on its computer"
    )
    return name


def _shown(said, holder):
    """Check that a refusal says who holds the lease, where, since when and with which command."""
    assert f"{getpass.getuser()}@{socket.gethostname()}" == holder["who"]
    assert said.startswith(f"{holder['who']} holds the lease since 20")
    assert "(`tpuctl watch`, last sign of life" in said
    assert "run the same command again in" in said


def test_of_many_threads_in_one_process_one_has_the_lease():
    """A cloud in this process gives the same answers: no overlap, growing tokens, a wrong one refused."""
    inside = InProcess(SystemClock(), LocalCloudSettings(fresh_project=False))
    inside.storage.buckets.create("local-project", {"name": "bucket-of-threads"})
    shared = Clients(CloudSettings("local-project", BASE, adapter=inside.adapter()))
    inside, rounds, observed, lock = [], 5 * ROUNDS, [], threading.Lock()

    def contend(number):
        store = GcsStore(shared, "bucket-of-threads")
        while len(observed) < rounds:
            lease = Lease(store, SystemClock(), Holder(f"{number}-{time.time_ns()}", "t", "up", 0.0))
            try:
                lease.acquire()
            except LeaseHeldError:
                continue
            inside.append(number)
            with lock:
                observed.append((list(inside), lease.token))
            with pytest.raises(PreconditionError):
                store.delete(LEASE, if_generation=lease.token - 1)
            lease.keep()
            inside.remove(number)
            lease.release()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(contend, range(8)))
    assert len(observed) >= rounds
    assert [who for who, _ in observed if len(who) != 1] == []
    tokens = [token for _, token in observed]
    assert tokens == sorted(set(tokens))
    FIGURES["lease in one process, 8 threads"] = f"{len(observed)} rounds, 0 overlaps"


@pytest.mark.parametrize("processes", sorted(PROCESSES))
def test_of_many_processes_of_a_computer_one_has_its_lock(processes, tmp_path):
    """No two are inside at the same time, whatever the cloud says."""
    share = -(-5 * ROUNDS // len(PROCESSES) // processes)
    with playing([{"folder": str(tmp_path), "kind": "lock", "rounds": share} for _ in range(processes)]):
        pass
    assert demand_no_overlap(book(tmp_path)) == share * processes
    FIGURES[f"lock of a computer, {processes} processes"] = f"{share * processes} rounds, 0 overlaps"


@pytest.mark.parametrize("paused", [False, True])
def test_the_lock_of_a_computer_ends_with_its_process_and_not_before(paused, tmp_path):
    """While the holder lives, paused or not, the error of others names the process; a kill frees it at once."""
    roles = [{"folder": str(tmp_path), "kind": kind} for kind in ("keep_locked", "try_lock")]
    with playing(roles):
        pid = until(lambda: read(tmp_path, "held"), "the lock is held", TIMEOUT, 0.005)["pid"]
        if paused:
            os.kill(pid, signal.SIGSTOP)
        refused = until(lambda: read(tmp_path, "refused"), "a second one is refused", TIMEOUT, 0.005)
        assert (
            f"`tpuctl watch` of {getpass.getuser()}@{socket.gethostname()}, process {pid}" in refused["said"]
        )
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_alive(pid), "the killed one is dead", TIMEOUT, 0.005)
        (tmp_path / "dead").write_text("{}")
    assert read(tmp_path, "after") == {"said": ""}
