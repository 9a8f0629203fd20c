"""Handle `job.data` in commands: read it, add its list to the code, upload it."""

from pathlib import Path

from orchestrator.advice.check.lost_writes import checkpoint_dir_unused
from orchestrator.advice.check.needs import program_missing, requirements_file_missing
from orchestrator.advice.check.rules import run_rules
from orchestrator.app.context.reporter import Reporter, leaving
from orchestrator.app.deployment.session import Session
from orchestrator.app.source.local_data import DataFile, DataSet, listing, missing, scan, send
from orchestrator.app.source.sent_files import what_is_sent
from orchestrator.app.source.source_facts import gather
from orchestrator.app.source.source_folder import source_folder
from orchestrator.app.this_computer.state_folders import state_folder
from orchestrator.contract.bucket.object_names import DATA_LIST
from orchestrator.domain.level import Level
from orchestrator.domain.names import home_region
from orchestrator.domain.observation import Absent, Present, Unknown, World
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.ports import Store
from orchestrator.domain.source.data_spec import bucket_sources
from orchestrator.domain.spec import Spec
from orchestrator.engine.reconcile.apply import Actor
from orchestrator.errors import TransientError, UsageError
from orchestrator.google.project_reader import ProjectReader

SUMS = "data-sums.json"
"""Name of the file with checksums of data files, so that unchanged ones are not read again."""
_REPORT_EVERY = 30.0
"""Seconds between two progress lines."""
_SLOW = 1 << 28
"""Bytes above which reading the data is announced, because it takes seconds."""


def read_data(path: Path, spec: Spec, cloud: str, reporter: Reporter) -> tuple[DataSet, ...]:
    """Return the data sets of `job.data`, () without any; reads all files. Raise UsageError as `scan` does."""
    if not spec.job.data:
        return ()

    reported = False

    def report(done: int, total: int) -> None:
        nonlocal reported
        if not reported and total > _SLOW:
            reported = True
            reporter.say(f"reading {total / 1e9:.1f} GB of data, to know what has changed ...")

    return scan(spec.job.data, path.absolute().parent, state_folder(cloud) / SUMS, report)


def with_code(sets: tuple[DataSet, ...]) -> dict[str, bytes]:
    """Return the files that `job.data` adds to the bundle."""
    return {DATA_LIST: listing(sets)} if sets else {}


def say_what_is_sent(session: Session, sets: tuple[DataSet, ...]) -> None:
    """Report what will leave this computer, and what patterns exclude."""
    source = source_folder(session.path, session.spec)
    for line in what_is_sent(session.path, session.spec, source, sets).lines():
        session.reporter.say(line)


def warn_of_work_in_vain(session: Session) -> None:
    """
    Report the findings of `check` for which machines are billed in vain: no program, or no save that counts.

    Other warnings are counted, and `check` has them.
    """
    facts = gather(source_folder(session.path, session.spec), skip=session.path)
    in_vain = {rule.id for rule in (program_missing, requirements_file_missing, checkpoint_dir_unused)}
    warnings = [one for one in run_rules(session.spec, session.catalog, facts) if one.level is not Level.NOTE]
    for found in (one for one in warnings if one.rule in in_vain):
        session.reporter.say(f"{found.where}: {found.message}. To change: {found.hint}", style="warning")
    others = [one.rule for one in warnings if one.rule not in in_vain]
    if others:
        count = f"{len(others)} warning{'s' if len(others) > 1 else ''}"
        names = ", ".join(dict.fromkeys(others))
        session.reporter.say(f"{count} of `tpuctl check`: {names}", style="warning")


def check_sources(session: Session) -> None:
    """Raise UsageError if a source folder in a bucket is missing or empty; report one that is not readable."""
    for source in bucket_sources(session.spec):
        observed = ProjectReader(session.clients).holds_objects(source)
        # An empty folder means a wrong name; better found now than by a job that trains on nothing.
        if isinstance(observed, Absent) or observed == Present(False):
            raise UsageError(
                f"job.data names {source}, and nothing is there", hint="correct job.data: tpuctl doctor",
                changed="nothing was changed", code="TPU-144",
            )  # fmt: skip
        if isinstance(observed, Unknown):
            session.reporter.say(
                f"data: {source} cannot be seen from here ({observed.message}); the machines may",
                style="warning",
            )


def bucket_is_there(session: Session) -> bool:
    """Return whether the deployment's bucket exists. Raise TransientError if that is unknown."""
    observed = session.cloud.buckets.observe(session.blueprint.bucket)
    if isinstance(observed, Unknown):
        raise TransientError(
            f"the bucket cannot be seen, so the data cannot be sent: {observed.message}",
            hint="run the same command again", changed="nothing was changed",
        )  # fmt: skip
    return not isinstance(observed, Absent)


def send_data(session: Session, sets: tuple[DataSet, ...], store: Store | None = None) -> None:
    """Upload to the bucket the data that it lacks. A repeated call sends the rest."""
    store = store or session.cloud.store
    files = missing(store, sets)
    if not files:
        return
    total, done, count, reported_at = sum(file.size for file in files), 0, 0, session.clock.monotonic()

    def report(file: DataFile) -> None:
        nonlocal done, count, reported_at
        done, count = done + file.size, count + 1
        text = f"data: {done / 1e9:.2f} of {total / 1e9:.2f} GB, {count} of {len(files)} files"
        session.reporter.now(text)
        # Progress lines for output without a live line.
        if session.clock.monotonic() - reported_at >= _REPORT_EVERY and count < len(files):
            reported_at = session.clock.monotonic()
            session.reporter.say(text)

    session.reporter.say(
        f"data: {len(files)} file{'' if len(files) == 1 else 's'}, {total / 1e6:,.1f} MB go to the bucket"
    )
    with leaving("the data that is in the bucket stays there", "the same command again sends the rest"):
        send(store, files, report)
    session.reporter.say("data: all of it is in the bucket")


def first_bucket(session: Session) -> None:
    """
    Create the bucket of a first `up` before anything else, so that no TPU waits for the upload of data.

    After a kill the empty bucket is used by the next `up` and listed by `down`. Raise what refuses it.
    """
    parts, unasked = session.deployment, Unknown("not asked for")
    message = "the job's data goes there before a TPU is requested"
    change = Change(Kind.BUCKET, Verb.CREATE, "", message, home_region(parts.spec))
    # In this world everything but the absent bucket is Unknown, so the plan can create nothing else.
    world = World(Absent(), unasked, unasked, unasked, observed_at=parts.clock.now())
    for failure in Actor(parts).apply(Plan((change,)), world):
        raise failure.error
    # The lease now, since the upload may take hours in which no other computer may start the same.
    parts.lease_in_new_bucket()
