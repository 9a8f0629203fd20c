"""Wire what the agent works with, and retry what all of that depends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping, Optional, Tuple, TypeVar

from orchestrator.agent.agreement.attempts import AttemptStore
from orchestrator.agent.caches.keeper import CacheKeeper
from orchestrator.agent.caches.warm_start import Caches
from orchestrator.agent.checkpoints.bucket_checkpoints import BucketCheckpoints
from orchestrator.agent.checkpoints.commit import Committer
from orchestrator.agent.checkpoints.local_checkpoints import LocalCheckpoints
from orchestrator.agent.checkpoints.restore import Restorer
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.container import Container
from orchestrator.agent.end_requests import EndRequests
from orchestrator.agent.machine.emulator_guard import trusted
from orchestrator.agent.machine.job_secrets import JobSecrets
from orchestrator.agent.save_interval_tracker import SaveIntervalTracker
from orchestrator.agent.settings import Settings
from orchestrator.agent.telemetry.event_files import EventFiles
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent, HeartbeatWriter
from orchestrator.agent.telemetry.logs import JobLog, LogShipper
from orchestrator.contract.backoff import Backoff, retried
from orchestrator.contract.bucket.completeness import CompleteCheckpoint
from orchestrator.contract.clock import Clock
from orchestrator.contract.formats.base import Format
from orchestrator.contract.formats.choose import format_of
from orchestrator.contract.machine_errors import AgentError, FinalError
from orchestrator.contract.secrets.redaction import Redactor

T = TypeVar("T")
PAUSES = Backoff(0.5, 15.0)
"""Between tries of a call that is needed for the job to go on, for as long as it takes."""


@dataclass(frozen=True)
class AgentContext:
    """What one agent works with: its settings and clock, the bucket, and an object for each thing it does."""

    settings: Settings
    environ: Mapping[str, str]
    clock: Clock
    metadata: Metadata
    bucket: JobBucket
    shared: JobBucket
    """The bucket of data and caches: for a fleet's task the folder of its job, else the same as *bucket*."""
    heartbeat: HeartbeatContent
    heartbeat_writer: HeartbeatWriter
    log: JobLog
    shipper: LogShipper
    attempts: AttemptStore
    checkpoints: BucketCheckpoints
    format: Format
    local: LocalCheckpoints
    committer: Committer
    restorer: Restorer
    end_requests: EndRequests
    save_interval: SaveIntervalTracker
    secrets: JobSecrets
    events: EventFiles
    caches: Caches
    keeper: CacheKeeper
    container: Optional[Container]

    def checkpoint_to_resume(self) -> Tuple[Optional[CompleteCheckpoint], str]:
        """Return the newest complete checkpoint and the reason; None without one, or for a job without steps."""
        return (None, "") if self.format.at_end else self.checkpoints.choice()

    def patiently(self, doing: str, call: Callable[[], T]) -> T:
        """
        Call until it succeeds; the heartbeat shows the failure meanwhile.

        Raise FinalError and AgentMustEnd.
        """

        def failed(error: BaseException) -> None:
            if isinstance(error, FinalError):
                raise error
            self.heartbeat.warn(doing, str(error))

        self.end_requests.check()
        try:
            value = retried(
                call, (AgentError, OSError), PAUSES, now=self.clock.monotonic, wait=self.end_requests.wait,
                failed=failed,
            )  # fmt: skip
        except FinalError:
            self.heartbeat.warn(doing, "")
            raise
        self.heartbeat.warn(doing, "")
        return value


def wire(settings: Settings, environ: Mapping[str, str], clock: Clock) -> AgentContext:
    """Create the context of one agent from its settings and environment."""
    own = trusted(environ)
    metadata = Metadata.from_environ(own)
    bucket = JobBucket.from_environ(settings.bucket, own, metadata, clock)
    redactor, saves = Redactor(), settings.checkpoints
    heartbeat = HeartbeatContent(settings, clock)
    heartbeat.masked = redactor.text
    log = JobLog(settings.layout.log, clock, redactor)
    format_ = format_of(saves.format, saves.marker)
    attempts, checkpoints = AttemptStore(settings, bucket), BucketCheckpoints(settings, bucket, format_)
    container = Container(settings, own, bucket, metadata) if settings.image else None
    # The tasks of one job share what they install, on any node.
    whole = own.get("TPUCTL_JOB_PREFIX")
    shared = (
        JobBucket.from_environ(settings.bucket, {**own, "TPUCTL_PREFIX": whole}, metadata, clock)
        if whole
        else bucket
    )
    end_requests, caches = (
        EndRequests(clock),
        Caches(settings, own, shared, heartbeat, log, container.digest if container else str),
    )
    local = LocalCheckpoints(saves, format_, settings.layout.quarantine, settings.poll, clock)
    return AgentContext(
        settings=settings,
        environ=environ,
        clock=clock,
        metadata=metadata,
        bucket=bucket,
        shared=shared,
        heartbeat=heartbeat,
        heartbeat_writer=HeartbeatWriter(settings, bucket, heartbeat, clock),
        log=log,
        shipper=LogShipper(settings, bucket, log),
        attempts=attempts,
        checkpoints=checkpoints,
        format=format_,
        local=local,
        committer=Committer(
            settings,
            bucket,
            checkpoints=checkpoints,
            attempts=attempts,
            local=local,
            heartbeat=heartbeat,
            clock=clock,
        ),
        restorer=Restorer(settings, bucket, checkpoints, local),
        end_requests=end_requests,
        save_interval=SaveIntervalTracker(settings, bucket, heartbeat, clock),
        secrets=JobSecrets(own, metadata, redactor),
        # Event files are beside the job's saves or in the source folder.
        events=EventFiles([*([] if saves.in_bucket else [Path(saves.folder)]), settings.layout.current]),
        caches=caches,
        container=container,
        keeper=CacheKeeper(
            settings, shared, caches, heartbeat, log, end_requests, clock, shared=shared is not bucket
        ),
    )
