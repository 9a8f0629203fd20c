"""
Commands as real processes that kill themselves: `python -m tests.crash.remote_commands`, controlled line by line.

The process that reads the lines has the official clients imported and does nothing else; each command runs
in a fork of it, with real threads, real files and locks, and calls over HTTP. At its n-th step it sends
itself SIGKILL. Time is the server's and passes only where somebody waits.
"""

import gc
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import requests

from orchestrator.app.this_computer.holder import process_ended, this_process
from orchestrator.app.this_computer.process_lock import only_here
from orchestrator.domain.ports import CloudAccount
from orchestrator.domain.remote import MachinePush, RunResult
from orchestrator.engine.reconcile import artifacts
from orchestrator.engine.records import atomic_files, journal, record_store
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.factory import open_cloud
from tests.crash import commands
from tests.crash.crash_lab import CrashLab, one_thread
from tests.crash.scenarios import SCENARIOS, SPEC
from tests.engine.engine_lab import PROJECT, LabController
from tests.memory_disk import MEMORY

CONTROL = "/control/"
WARM = []
ACCOUNT = CloudAccount(PROJECT, "123456789012-compute@developer.gserviceaccount.com")
READING = "getGuestAttributes"


class Server:
    """Talk to the server about what is not Google's: time, and the machines that are stood in for."""

    def __init__(self, address):
        self._address, self._lock = address, threading.Lock()
        self._line = None

    def ask(self, what, **about):
        """Make one request and return the answer."""
        with self._lock:
            self._line = self._line or http.client.HTTPConnection(*self._address)
            self._line.request("POST", CONTROL + what, json.dumps(about))
            return json.loads(self._line.getresponse().read())


class FarClock:
    """Return the server's time; a wait moves it on."""

    def __init__(self, server):
        self._server = server
        self._read(server.ask("clock", seconds=0.0))

    def _read(self, answer):
        self._now, self._elapsed = answer["now"], answer["elapsed"]

    def now(self):
        return self._now

    def monotonic(self):
        return self._elapsed

    def advance(self, seconds):
        self._read(self._server.ask("clock", seconds=max(0.0, seconds)))

    def wait(self, seconds, wake=None):
        if wake is None or not wake.is_set():
            self.advance(seconds)


class FarMachines:
    """Ask the server's stand-ins for machines to report, and to start a job that was brought over SSH."""

    def __init__(self, lab):
        self._lab = lab

    def report(self):
        self._lab.server.ask("report")

    def push(self, hosts, bundle, digest, root):
        self._lab.point("before Remote.push")
        return [MachinePush(host.name, 1000, 0.1) for host in hosts]

    def put(self, hosts, data, target, mode):
        self._lab.point("before Remote.put")
        if target == "startup":
            self._lab.server.ask("startup", text=data.decode())

    def run(self, hosts, command, deadline):
        return [RunResult(0) for _ in hosts]

    def run_elevated(self, hosts, script, deadline):
        self._lab.point("before Remote.run_elevated")
        self._lab.server.ask("start", addresses=[host.address for host in hosts], script=asdict(script))
        return [RunResult(0) for _ in hosts]


class Afar:
    """What a lab is for its controllers, seen from another process."""

    def __init__(self, request):
        address = ("127.0.0.1", request["port"])
        self.folder, self.bucket = Path(request["folder"]), request["bucket"]
        self.server, self.at, self.count, self._lock = Server(address), request["at"], 0, threading.Lock()
        self.clock, self.machines = FarClock(self.server), FarMachines(self)
        self.cloud = SimpleNamespace(tick=lambda: None, calls=Counter())
        self.ended, self.processes, self.dead = set(), [], process_ended

    def open(self, spec):
        cloud = open_cloud(WARM[0].settings, spec, self.machines, ask_account=False)
        for adapter in (cloud.buckets, cloud.vms, cloud.nodes, cloud.store):
            adapter._clients = WARM[0]
        return replace(cloud, account=ACCOUNT)

    def holder(self, who, yields):
        return this_process("up", self.clock.now(), yields)

    def controller(self, spec, place, **parts):
        return LabController(self, spec, self.folder / place, **parts)

    def step(self, what, make):
        self.point(f"before {what}")
        return make()

    def point(self, what):
        """Count a step; at the one that was requested, say which it is and die."""
        with self._lock:
            self.count += 1
            if self.count == self.at:
                say({"killed": what})
                os.kill(os.getpid(), signal.SIGKILL)


def say(what):
    """Send something to the tests, at once."""
    os.write(1, json.dumps(what).encode() + b"\n")


def with_points(lab):
    """Return the changes by which each mutating call and each write to the disk has its points."""
    send = requests.adapters.HTTPAdapter.send

    def sent(self, request, **options):
        if request.method == "GET" or READING in request.url:
            return send(self, request, **options)
        what = f"{request.method} {request.path_url.partition('?')[0]}"
        lab.point(f"before {what}")
        answer = send(self, request, **options)
        if "/o" not in request.path_url:
            # After an object is written nothing changes until the next step, which has a point before it.
            lab.point(f"after {what}")
        return answer

    def synced(_):
        lab.point("before a new file gets its name")

    def saved(what, write):
        return lambda *words: lab.step(what, lambda: write(*words))

    return [
        mock.patch.object(requests.adapters.HTTPAdapter, "send", sent),
        # Data is in the system's hands once it is written; that it is not under its name yet is a point.
        mock.patch.object(atomic_files.os, "fsync", synced),
        mock.patch.object(
            record_store, "write_private", saved("save the record", record_store.write_private)
        ),
        mock.patch.object(artifacts, "write_private", saved("save the code", artifacts.write_private)),
        mock.patch.object(journal, "append_synced", saved("write the journal", journal.append_synced)),
    ]


def run(request):
    """Run one command of a scenario in this process, as the only one of its computer."""
    scenario = next(found for found in SCENARIOS if found.name == request["scenario"])
    go = scenario.run if request["way"] is None else scenario.ways[request["way"]].go
    lab = Afar(request)
    place = lab.folder / request["place"]
    for patch in with_points(lab):
        patch.start()
    with only_here(place, this_process("up", lab.clock.now()), lambda: None):
        go(lab, scenario.spec, request["place"])
    return lab.count


def child(request):
    """Run one command and say how it ended; nothing of this process outlives it."""
    try:
        say({"points": run(request)})
    except BaseException as error:  # reported to the tests, whatever it is
        traceback.print_exc()
        say({"error": f"{type(error).__name__}: {error}"})
    os._exit(0)


def warm(port):
    """
    Do once what every child would have to do: import and make the clients, fill caches.

    No connection is opened and no thread is left, so that a fork is as good as a new process.
    """
    clients = Clients(CloudSettings(PROJECT, f"http://127.0.0.1:{port}", read_retry=0))
    assert all((clients.tpu, clients.instances, clients.zone_operations, clients.storage))
    WARM.append(clients)
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as folder,
        one_thread(CrashLab(Path(folder), latency="instant")) as lab,
    ):
        commands.up(lab, SPEC)
    assert threading.active_count() == 1
    gc.freeze()


def main():
    """Fork once for each line of requests; say how each child ended."""
    warm(sys.argv[1])
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        _, status = os.waitpid(pid, 0)
        say({"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})


if __name__ == "__main__":
    main()
