"""Collect a deployment's report in one observation, and write it as an HTML page."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.cost import stored_now
from orchestrator.app.deployment.earlier_costs import open_named
from orchestrator.app.deployment.expired import end_expired
from orchestrator.app.deployment.session import Session
from orchestrator.app.status.status import observe_now, state_of, status_of, watcher_of
from orchestrator.config.rules.progress_patterns import progress_text
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Present, World
from orchestrator.domain.plan import Kind
from orchestrator.domain.ports import Store
from orchestrator.domain.record import first_incarnations, lifetimes
from orchestrator.domain.spec import VmSpec
from orchestrator.domain.status import DeploymentState
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.engine.bucket.heartbeats import Heartbeats
from orchestrator.engine.bucket.job_logs import JobLogReader, LogTail
from orchestrator.engine.publish.event_log import read_events
from orchestrator.engine.publish.publisher import Point, read_curve
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.planning.job import heartbeat_interval
from orchestrator.pricing.cost_breakdown import StoredAmount, cost_breakdown
from orchestrator.pricing.cost_so_far import cost_so_far
from orchestrator.pricing.use_spans import Use, use_spans
from orchestrator.report.curve_points import FEW, Losses, PrintedLines, losses, with_printed_steps
from orchestrator.report.page import PageFacts, page
from orchestrator.report.summary import Summary, summarise


def write_report(
    choice: Choice, name: str | None, output: Path | None, reporter: Reporter
) -> tuple[Path, PageFacts]:
    """Write the page to *output*, by default NAME-report.html; return its path and its facts."""
    session = open_named(choice, name, reporter, "report", only_observes=True)
    end_expired(session)
    with reporter:
        facts = facts_of(session)
    path = output or Path(f"{session.spec.name}-report.html")
    # Atomically, since a browser may reload the page at any moment.
    write_private(path, page(facts).encode())
    return path, facts


TAIL_LINES = 40
"""Lines of the log on the dashboard."""
SAVES_SECONDS = 30.0
"""Seconds for which a list of checkpoints is reused; each one needs several requests."""
MAX_SAVES = 200
"""Checkpoints that are marked; more would merge into a line."""


class ReportCache:
    """What repeated observations need not read again, as data read from the cloud is billed."""

    def __init__(self, store: Store) -> None:
        self.heartbeats = Heartbeats(store)
        self.log = JobLogReader(store, 0)
        self.tail = LogTail(store, 0, TAIL_LINES)
        self.printed = PrintedLines()
        self._saved: tuple[float, tuple[tuple[int, float], ...]] = (0.0, ())
        self._stored: tuple[float, tuple[StoredAmount, ...]] = (0.0, ())

    def read_log(self, progress: str) -> None:
        """Read what was added to the log, parsed by the setting *progress* of the job."""
        self.printed.add(((incarnation, line) for incarnation, _, line in self.log.new_lines()), progress)

    def stored(self, session: Session, world: World) -> tuple[StoredAmount, ...]:
        """Return what the bucket stores, as `cost` counts it; it is listed at most every SAVES_SECONDS."""
        if not self._stored[0] or world.observed_at - self._stored[0] >= SAVES_SECONDS:
            self._stored = (world.observed_at, stored_now(session, world))
        return self._stored[1]

    def checkpoints(self, session: Session) -> tuple[tuple[int, float], ...]:
        """Return step and time of each complete checkpoint; manifests are read at most every SAVES_SECONDS."""
        observed_at, found = self._saved
        if not observed_at or session.clock.now() - observed_at >= SAVES_SECONDS:
            try:
                saved = read_checkpoints(session.store, session.spec.job.checkpoint)
            except TpuctlError:
                return found  # These are only marks on an axis; the rest of the page is shown without them.
            found = tuple((one.step, one.saved_at) for one in reversed(saved) if one.complete)
            self._saved = (session.clock.now(), found[-MAX_SAVES:])
        return self._saved[1]


def facts_of(session: Session, cache: ReportCache | None = None) -> PageFacts:
    """
    Observe once and return all facts of a report. Raise UsageError if there is nothing to report.

    *cache* speeds up repeated observations.
    """
    observation = observe_now(session)
    record, world = observation.record, observation.world
    if not (record.started_at or record.spans):
        state = state_of(session, observation, None)
        gone = state is DeploymentState.DELETED
        hint = "`tpuctl cost` shows what it cost; `tpuctl up` starts over" if gone else "run: tpuctl up"
        raise UsageError(
            f"{session.spec.name} is {state.phrase}: there is nothing to report", hint=hint,
            changed="nothing was changed", code="TPU-130",
        )  # fmt: skip
    cache = cache or ReportCache(session.store)
    found = cache.heartbeats.read(None)
    points = curve_of(session)
    heartbeats = _with_printed_steps(
        session, found.value if isinstance(found, Present) else (), cache, points
    )
    return PageFacts(
        status=status_of(session, observation, watcher_of(session, world)),
        record=record,
        heartbeats=heartbeats,
        events=read_events(session.store),
        summary=_summary(session, heartbeats),
        breakdown=cost_breakdown(
            session.spec, session.catalog, record, heartbeats, world.observed_at, cache.stored(session, world)
        ),
        losses=_losses(session, heartbeats, cache, points),
        points=points,
        checkpoints=cache.checkpoints(session),
        now=world.observed_at,
        unbilled=session.choice.cloud == "local",
    )


def summary_of(session: Session) -> Summary:
    """Return the figures of a run from what the bucket holds."""
    cache = ReportCache(session.cloud.store)
    found = cache.heartbeats.read(None)
    heartbeats = found.value if isinstance(found, Present) else ()
    return _summary(session, _with_printed_steps(session, heartbeats, cache, curve_of(session)))


def curve_of(session: Session) -> list[Point]:
    """Return the steps and losses that watchers have recorded, also those of one that was killed here."""
    return read_curve(session.store, session.folder, session.records.current.started_at)


def _with_printed_steps(
    session: Session, heartbeats: Sequence[Heartbeat], cache: ReportCache, points: Sequence[Point]
) -> tuple[Heartbeat, ...]:
    """Return the last heartbeats; the log is read only for a lost machine whose heartbeat has no step."""
    mine = [heartbeat for heartbeat in heartbeats if heartbeat.worker == 0]
    newest = max((heartbeat.incarnation for heartbeat in mine), default=0)
    if any(heartbeat.step is None and heartbeat.incarnation < newest for heartbeat in mine):
        # Without the log the reports alone are shown: the figures of an end must not fail for it.
        with suppress(TpuctlError):
            cache.read_log(progress_text(session.spec))
    return with_printed_steps(heartbeats, cache.printed, points)


def _summary(session: Session, heartbeats: Sequence[Heartbeat]) -> Summary:
    record = session.records.current
    # Up to the last heartbeat instead of now, so that a report made days later shows the same cost.
    now = session.clock.now()
    ended = max((b.updated for b in heartbeats), default=now)
    # By the same times as the table of uses, so that both say the same of the same time.
    existed = [now if s.until is None else s.until for s in record.spans if s.kind is Kind.NODE]
    used = use_spans(record.spans, heartbeats, now, record.up_times)
    spec = session.spec
    vm = replace(spec.vm, spot=False) if isinstance(spec.vm, VmSpec) else spec.vm
    on_demand = replace(spec, tpu=replace(spec.tpu, spot=False), vm=vm)
    cost = cost_so_far(spec, session.catalog, record, ended)
    return summarise(
        heartbeats,
        read_events(session.cloud.store),
        preemptions=record.node.preemptions,
        wall=sum(until - since for since, until in lifetimes(record, max(ended, *existed, 0.0))),
        trained=sum(part.until - part.since for part in used if part.use is Use.TRAINING),
        usd=cost.known_usd,
        upper_usd=cost.upper_usd,
        on_demand_usd=cost_so_far(on_demand, session.catalog, record, ended).known_usd,
        unpriced=cost.unpriced,
        begun=first_incarnations(record),
        heartbeat_interval=heartbeat_interval(spec),
    )


def _losses(
    session: Session, heartbeats: Sequence[Heartbeat], cache: ReportCache, points: Sequence[Point]
) -> Losses:
    """Return the loss by step; the log is read only if the watcher recorded few *points*."""
    if len(points) >= FEW:
        return losses(points, heartbeats)
    cache.read_log(progress_text(session.spec))
    return losses(points, heartbeats, before=cache.printed)
