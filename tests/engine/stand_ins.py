"""What has no counterpart in a simulation: the machines themselves, and the way to them."""

import hashlib
import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from orchestrator.contract.bucket import object_names
from orchestrator.domain.remote import MachinePush, RunResult
from orchestrator.emulator.state.values.machine import NoMachines

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
CONTENT = {"bundle": b"the user's code", "agent": b"the agent"}
DIGEST = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}


@dataclass
class ReportingMachines(NoMachines):
    """What machines do by themselves: publish a host key at boot, and report while the job runs on them."""

    lab: Any = None
    silent: bool = False
    running: dict = field(default_factory=dict)
    starts: Counter = field(default_factory=Counter)
    incarnations: dict = field(default_factory=dict)
    """The incarnation of machines that somebody else has made, as our scripts report it over SSH."""
    waiting: set = field(default_factory=set)
    """Machines that wait for the last save of the TPU before theirs."""

    def boot(self, machine):
        self.lab.cloud.kernel.state.guest[machine.id]["hostkeys", "ssh-ed25519"] = KEY.split()[1]
        if "startup-script" not in machine.attributes:
            return
        if machine.kind == "tpu" and not self.silent and not machine.silent:
            self._report_first(machine.id)
            if self._has_code():
                self.start(machine.id)

    def _report_first(self, machine_id):
        """Write what a startup script does before all else."""
        incarnation, worker = self._place(machine_id)
        body = {"incarnation": int(incarnation), "worker": int(worker), "workers": int(worker) + 1,
                "schema": 1, "phase": "boot", "script": True}  # fmt: skip
        name = f"{object_names.HEARTBEAT}{incarnation}/{worker}"
        if self.lab.get(name) is None:
            self.lab.put(name, json.dumps(body).encode())

    def stop(self, machine_id):
        self.running.pop(machine_id, None)

    def remove(self, machine_id):
        self.running.pop(machine_id, None)

    def start(self, machine_id):
        if not self._may_start(machine_id):
            return
        self.starts[machine_id] += machine_id not in self.running
        self.running.setdefault(machine_id, {"phase": "run", "step": 1})
        self.report()

    def report(self, **news):
        """Let every running job write a heartbeat; *news* change what it says. One that is done has saved."""
        for machine_id in [m.id for m in self.lab.cloud.machines() if m.id in self.waiting]:
            self.waiting.discard(machine_id)
            self.start(machine_id)
        if news.get("phase") == "done":
            news = {"committed_step": 100, **news}
        for machine_id, state in list(self.running.items()):
            state.update(news)
            incarnation, worker = self._place(machine_id)
            group = [m for m in self.running if m.rsplit("-w", 1)[0] == machine_id.rsplit("-w", 1)[0]]
            body = {"incarnation": int(incarnation), "worker": int(worker), "workers": len(group),
                    "schema": 1, "bundle": DIGEST["bundle"], **state}  # fmt: skip
            self.lab.put(f"{object_names.HEARTBEAT}{incarnation}/{worker}", json.dumps(body).encode())

    def _place(self, machine_id):
        """Return incarnation and number of a worker."""
        found = re.search(r"(?:-tpu-g(\d+))?-\d+-w(\d+)$", machine_id)
        return self.incarnations.get(machine_id) or found[1], found[2]

    def _may_start(self, machine_id):
        """Ask as the agent does whether this machine's TPU has won its race; in no race it may."""
        machine = next(m for m in self.lab.cloud.machines() if m.id == machine_id)
        race = re.search(r"TPUCTL_ROUND='(\d+)'", machine.attributes.get("startup-script", ""))
        if race is None:
            return True
        number = int(re.search(r"-tpu-g(\d+)-\d+-w\d+$", machine_id)[1])
        if any(state.get("preempted") and state["phase"] != "stopped" for state in self.running.values()):
            self.waiting.add(machine_id)
            return False
        name = f"{object_names.CLAIM}{race[1]}"
        if self.lab.get(name) is None:
            self.lab.put(name, json.dumps({"incarnation": number}).encode())
        try:
            return json.loads(self.lab.get(name))["incarnation"] == number
        except (TypeError, ValueError, KeyError):
            return False  # The agent waits for one that can be read.

    def _has_code(self):
        return self.lab.get(f"{object_names.BUNDLES}{DIGEST['bundle']}.tar.gz") is not None


@dataclass
class Push:
    """The way to machines: note what is sent, start the job where it is asked for."""

    machines: ReportingMachines
    pushes: list = field(default_factory=list)
    error: str = ""
    startup: str = ""

    def push(self, hosts, bundle, digest, root):
        self.pushes.append([h.name for h in hosts])
        return [MachinePush(h.name, 0 if self.error else 1000, 0.1, self.error) for h in hosts]

    def put(self, hosts, data, target, mode):
        if target == "startup":
            self.startup = data.decode()
        if target == "job.env.local":
            variables = dict(part.partition("=")[::2] for part in shlex.split(data.decode(), comments=True))
            theirs = set(self.machines.incarnations.values())
            assert all(f"-g{variables['TPUCTL_INCARNATION']}-" in h.name for h in hosts if not theirs)

    def run(self, hosts, command, deadline, stdin=""):
        return [RunResult(0) for _ in hosts]

    def run_elevated(self, hosts, script, deadline):
        by_address = {m.address: m.id for m in self.machines.lab.cloud.machines()}
        text = self.startup if script.name == "run-startup" else ""
        prepared = re.search(r"^TPUCTL_INCARNATION='(\d+)'", text, re.MULTILINE)
        for host in hosts:
            machine = by_address[host.address]
            adopting = "TPUCTL_ROLE='vm'" in text or script.name in {"check-vm", "give-back"}
            if machine.startswith("vm-") and adopting:
                continue  # A VM without the job is looked at, prepared or given back.
            if prepared:
                self.machines.incarnations[machine] = prepared[1]
            self.machines.start(machine)
        return [RunResult(0) for _ in hosts]
