"""
Take over a TPU that somebody else has made, and give it back.

In an order in which a kill at any line never lets the deployment delete a TPU that does not run our agent,
and never lets two TPUs run the job under one number.
"""

from dataclasses import dataclass, replace

from orchestrator.domain import names
from orchestrator.domain.events import Event
from orchestrator.domain.observation import ForeignBucket, ForeignNode, Node, Operation, World
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import newest_incarnation
from orchestrator.engine.deliver import START_SECONDS, node_hosts
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.loop import wait_until
from orchestrator.errors import RemoteError, TpuctlError, TransientError
from orchestrator.planning.race import accepted, asked_for
from orchestrator.scripts.render import begin_script, stop_seconds

UPDATE_SECONDS = 180.0
"""Seconds for which an update of a node is waited for: our choice."""
SSH_SECONDS = 180.0
"""Seconds until the machines' guest agent must have taken our key: our choice."""


def take_bucket(parts: Deployment, found: ForeignBucket, at_down: str) -> None:
    """
    Label a bucket as the deployment's; what its machines may do there comes with the next `up`.

    Raise ConflictError when somebody has changed its settings since it was looked at, perhaps to adopt it.
    """
    bucket = found.bucket
    change = Change(Kind.BUCKET, Verb.UPDATE, bucket.name, "adopted", bucket.location)
    # Only here: nothing of ours is written into a bucket that does not carry the label.
    entry = parts.journal.intend(change, in_bucket=False)
    labels = {**names.labels(parts.spec, "bucket"), names.ADOPTED_LABEL: at_down}
    try:
        parts.cloud.buckets.mark(bucket.name, labels, found.version)
    except TpuctlError as error:
        parts.journal.result(entry, f"{error.code} {error.message}", in_bucket=False)
        raise
    parts.journal.result(entry, "ok", in_bucket=False)


@dataclass(frozen=True)
class Adoption:
    """Hold the parts that act on one TPU; *ssh_key* is the line for its metadata."""

    deployment: Deployment
    ssh_key: str

    def take(self, found: ForeignNode, world: World, at_down: str = "yes") -> int:
        """
        Prepare the machines, let the job start there, then label the TPU; return its incarnation.

        Raise what went wrong, with what is changed.
        """
        parts, node = self.deployment, found.node
        number = newest_incarnation(parts.records.current) + 1
        # Before all else: a TPU that is made after a kill from here on gets a larger number, and fences this one.
        parts.lease.keep()
        parts.records.update(lambda r: replace(r, node=replace(r.node, highest=number)))
        change = Change(Kind.NODE, Verb.UPDATE, node.name, "adopted", node.zone, number, type=found.type)
        entry = parts.journal.intend(change, in_bucket=True)
        try:
            self._settle(parts.cloud.nodes.mark(node.name, node.zone, {}, self.ssh_key))
            self._prepare(node, number, world)
            parts.lease.keep()
            now = parts.clock.now()
            # Recorded before it is labelled: a labelled TPU that the record does not know would be deleted.
            parts.records.update(
                lambda r: accepted(asked_for(r, node.zone, number, 0, now, found.type), number)
            )
            labels = {**names.labels(parts.spec, "tpu", number), names.ADOPTED_LABEL: at_down}
            self._settle(parts.cloud.nodes.mark(node.name, node.zone, labels, self.ssh_key))
        except TpuctlError as error:
            parts.journal.result(entry, f"{error.code} {error.message}", in_bucket=True)
            raise
        parts.journal.result(entry, "ok", in_bucket=True)
        parts.sink(Event(parts.clock.now(), "node-adopted", f"TPU {node.name} is incarnation {number} now"))
        return number

    def release(self, node: Node) -> None:
        """Stop the job there as far as the machines can be reached, and take our labels and key off the TPU."""
        parts = self.deployment
        change = Change(Kind.NODE, Verb.UPDATE, node.name, "released", node.zone, node.incarnation)
        entry = parts.journal.intend(change, in_bucket=False)
        operation = parts.cloud.nodes.unmark(node.name, node.zone, names.LABELS, self.ssh_key)
        if operation is not None:
            self._settle(operation)
        parts.journal.result(entry, "ok", in_bucket=False)
        parts.sink(Event(parts.clock.now(), "node-released", f"TPU {node.name} is not part of it any more"))

    def stop_job(self, node: Node, world: World) -> None:
        """Stop agent and job on the machines, and keep cron from starting them. Raise RemoteError."""
        parts = self.deployment
        hosts = node_hosts(parts.cloud, node, world)
        seconds = stop_seconds(parts.spec)
        script = f"seconds={int(seconds)}\n{_STOP}"
        done_on_all = parts.cloud.remote.run_elevated(hosts, script, seconds + 30)
        for host, done in zip(hosts, done_on_all, strict=True):
            if done.exit_code != 0:
                raise RemoteError(f"{host.name}: {done.stderr.strip() or f'status {done.exit_code}'}")

    def _prepare(self, node: Node, number: int, world: World) -> None:
        """Run the startup script over SSH on every worker: no boot has run it there."""
        parts = self.deployment
        hosts = node_hosts(parts.cloud, node, world)
        scripts = parts.blueprint.scripts(
            "tpu", parts.records.current, incarnation=number, node=node.name, zone=node.zone
        )
        trouble: TpuctlError | None = None

        def reached() -> bool:
            nonlocal trouble
            try:
                parts.cloud.remote.run(hosts, "true", 30.0)
            except RemoteError as error:
                # The guest agent takes a moment until it has our key.
                trouble = error
                return False
            return True

        if not wait_until(reached, parts.clock, SSH_SECONDS, 3.0):
            raise trouble or RemoteError(f"{node.name} cannot be reached")
        seconds = START_SECONDS + stop_seconds(parts.spec)
        for script in (f"export TPUCTL_ROOT=$1\n{scripts.startup}", begin_script(restart=True)):
            done = parts.cloud.remote.run_elevated(hosts, script, seconds)
            for host, one in zip(hosts, done, strict=True):
                if one.exit_code != 0:
                    why = (one.stderr.strip().splitlines() or [f"status {one.exit_code}"])[-1]
                    raise RemoteError(f"{host.name}: the machine could not be prepared: {why}")

    def _settle(self, operation: Operation) -> None:
        """Wait for an update; raise TransientError when its end is not seen, or what it ended with."""
        parts, last = self.deployment, ""

        def done() -> bool:
            nonlocal last
            result = parts.cloud.nodes.poll(operation)
            last = result.message
            if result.done and result.retry is not None:
                raise TransientError(f"TPU {operation.name}: {result.message}")
            return result.done or result.forgotten

        if not wait_until(done, parts.clock, UPDATE_SECONDS, 1.0):
            raise TransientError(f"TPU {operation.name}: its update does not end {last}".rstrip())


_STOP = """\
set -u
root=$1
rm -f "${TPUCTL_CRON_DIR:-/etc/cron.d}/tpuctl"
[ -s "$root/agent.pyz" ] || exit 0
touch "$root/state/stop"
set -a
. "$root/job.env"
timeout -k 2 30 python3 -E "$root/agent.pyz" stop || exit
# The lock is free when agent and job are gone.
flock -w "$seconds" -E 75 "$root/job.lock" true || { echo "the agent has not left in $seconds s" >&2; exit 75; }
mv "$root" "$root.released-$(date +%s)"
"""
"""
Stop the job for good: the agent is asked, and lets the job save.

The folder is moved aside, not deleted: to another deployment its checkpoints would look like its own.
"""
