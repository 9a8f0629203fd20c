"""
Let the TPUs of an in-process local cloud delete themselves in time, by the agent's own code, asked each minute.

Only the network is stood in for: each request is handed to the local cloud, and answered with its clock.
"""

import re
import shlex
from email.utils import formatdate
from pathlib import Path

from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.cloud.transport import Reply
from orchestrator.agent.machine.self_delete import NodeApi, SelfDeletion, made_until, own_node
from orchestrator.agent.settings import read_settings
from orchestrator.emulator.http import metadata_tree
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.metadata_tree import MachineView
from orchestrator.emulator.http.router import Request

MINUTE = 60.0
_SETTING = re.compile(r"^(TPUCTL_\w+)=('.*')$", re.MULTILINE)


class MachineWire:
    """Answers of one machine's metadata server, of the TPU API and of the bucket."""

    def __init__(self, router, cloud, machine):
        self._router, self._cloud, self._machine = router, cloud, machine

    def send(self, method, url, headers, *, body=None, timeout=20.0, sink=None, limit=None):
        host, _, target = url.partition("://")[2].partition("/")
        request = Request.parse(method, f"/{target}", {"host": host, **headers}, body or b"")
        if host == "metadata":
            found = metadata_tree.answer(MachineView(self._cloud, self._machine), request)
        else:
            found = dispatch(self._router, self._cloud, request)
        reported = {"date": formatdate(self._cloud.kernel.clock.now(), usegmt=True)}
        return Reply(
            found.status, {**reported, **{k.lower(): v for k, v in found.headers.items()}}, found.body
        )


def environment_of(machine):
    """Return what cron's line gives the self-deletion: our settings in the job.env of the startup script."""
    script = machine.attributes.get("startup-script", "")
    reported = {name: "".join(shlex.split(value)) for name, value in _SETTING.findall(script)}
    return {**reported, "TPUCTL_WORKER_ID": machine.attributes["agent-worker-number"]}


def ask(router, cloud, folder: Path, leave=lambda machine: None):
    """
    Let each running TPU machine ask once whether it is to delete itself, as a minute of cron does.

    *leave* lets the agent of a machine make its last commit and leave. Return how many machines were asked.
    """
    machines = [m for m in cloud.machines() if m.kind == "tpu"]
    armed = [m for m in machines if "self-delete.lock" in m.attributes.get("startup-script", "")]
    for machine in armed:
        if not cloud.machine_state(machine.id).running:
            continue
        environ = {**environment_of(machine), "TPUCTL_ROOT": str(folder / machine.id)}
        settings, wire = read_settings(environ), MachineWire(router, cloud, machine)
        server, bucket = Metadata("metadata"), JobBucket(settings.bucket, "http://storage", None)
        api = NodeApi(environ, server)
        bucket._tokens = api._tokens
        server._transport = bucket._transport = api._transport = wire
        SelfDeletion(
            settings, made_until(environ), bucket, api, lambda server=server: own_node(server),
            lambda _seconds, machine=machine: leave(machine),
        ).step()  # fmt: skip
    return len(armed)
