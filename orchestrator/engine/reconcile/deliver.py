"""Copy code and agent to the machines over SSH and start the job there."""

from orchestrator.domain.observation import Node, World
from orchestrator.domain.plan import Change, Verb
from orchestrator.domain.ports import Cloud
from orchestrator.domain.record import Record
from orchestrator.domain.remote import Host
from orchestrator.engine.blueprint import ROOT, Blueprint
from orchestrator.engine.reconcile.artifacts import Artifacts
from orchestrator.engine.routes import vm_host, worker_host, worker_keys
from orchestrator.errors import RemoteError
from orchestrator.scripts.render import stop_seconds
from orchestrator.scripts.shipped import begin_script, remote_script

SIDECARS_TIMEOUT = 60.0
"""Seconds for one machine to restart its sidecars."""
START_TIMEOUT = 130.0
"""Seconds for one machine to install the agent and start the job, including the wait for its boot."""


def node_hosts(cloud: Cloud, node: Node, world: World) -> list[Host]:
    """Return the workers of *node* with their pinned host keys; raise NotFoundError if one has no key yet."""
    return [
        worker_host(cloud, world, node, worker, worker_keys(cloud, node, worker.index))
        for worker in node.workers
    ]


def deliver(
    cloud: Cloud, blueprint: Blueprint, artifacts: Artifacts, record: Record, node: Node, world: World,
    change: Change,
) -> str:  # fmt: skip
    """
    Copy the bundle to every machine of the job, start it there, and return a sentence for the user.

    Raise RemoteError if one machine failed: a slice runs on all of its workers or not at all.
    """
    on_vm = blueprint.spec.job.run_on == "vm"
    hosts = [vm_host(cloud, world)] if on_vm else node_hosts(cloud, node, world)
    # Code goes to all machines first: a worker that starts with code that another one lacks breaks the gang.
    results = cloud.remote.push(hosts, artifacts.bundle, record.job.bundle, ROOT)
    failed = [r for r in results if r.error]
    if failed:
        raise RemoteError(
            f"{failed[0].host}: {failed[0].error}",
            hint="run the same command again; `tpuctl status` shows the machines",
            changed="machines hold the old code or the new one, never a mix",
        )
    # Settings go after the code, because the agent reads them when it is started below.
    env = blueprint.vm_job_env(record, node) if on_vm else _job_env(blueprint, record, node)
    cloud.remote.put(hosts, artifacts.agent.read_bytes(), "agent.pyz", 0o644)
    # Mode 0600: job.env may hold secrets of the user.
    cloud.remote.put(hosts, env.encode(), "job.env.local", 0o600)
    script = begin_script(restart=on_vm or change.verb is Verb.UPDATE)
    timeout = START_TIMEOUT + stop_seconds(blueprint.spec)
    for host, done in zip(hosts, cloud.remote.run_elevated(hosts, script, timeout), strict=True):
        if done.exit_code != 0:
            message = done.stderr.strip() or f"status {done.exit_code}"
            raise RemoteError(
                f"{host.name}: the job could not be started: {message}",
                changed="the machines have the code; the job may run on some of them",
            )
    sent = sum(r.sent_bytes for r in results)
    # A TPU loads the bundle from the bucket as it boots, so its first delivery often has nothing to send.
    first = change.verb is Verb.CREATE and not on_vm
    what = f"{sent / 1000:.0f} kB sent over SSH" if sent else "from the bucket" if first else "unchanged"
    # Not "the job runs": setup and restore come first, and the passes tell when it does.
    machines = "1 machine has" if len(hosts) == 1 else f"{len(hosts)} machines have"
    new, old = record.job.bundle, _replaced_code(record, world)
    code = f"new code {new[:12]} (was {old[:12]}, {what})" if old else f"the code ({what})"
    return f"{machines} {code} and prepare{'s' if len(hosts) == 1 else ''} the job"


def _replaced_code(record: Record, world: World) -> str:
    """Return the digest of the code with which the job ran there until now, "" if it is the same or unknown."""
    reported = (one.bundle for one in world.heartbeats_of(record.node.incarnation))
    return next((bundle for bundle in reported if bundle not in {"", record.job.bundle}), "")


def deliver_sidecars(cloud: Cloud, blueprint: Blueprint, host: Host, role: str) -> None:
    """
    Copy the settings of the sidecars to a running machine and restart those that have changed.

    Raise RemoteError if that fails; the job is not touched.
    """
    cloud.remote.put([host], blueprint.sidecars(role).encode(), "run-sidecars.local", 0o700)
    (done,) = cloud.remote.run_elevated([host], remote_script("sidecars", "apply"), SIDECARS_TIMEOUT)
    if done.exit_code != 0:
        raise RemoteError(
            f"{host.name}: {done.stderr.strip() or f'status {done.exit_code}'}",
            changed="the job was not touched",
        )


def _job_env(blueprint: Blueprint, record: Record, node: Node) -> str:
    return blueprint.scripts("tpu", record, node=node.name, zone=node.zone).job_env
