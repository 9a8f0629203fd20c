"""The job's data in commands: what the file names, the list that goes with the code, and the way to the bucket."""

from pathlib import Path

from orchestrator.app.reporter import Reporter, leaving
from orchestrator.app.sent import what_is_sent
from orchestrator.app.session import Session
from orchestrator.app.source_folder import source_folder
from orchestrator.app.state_folders import state_folder
from orchestrator.contract.object_names import DATA_LIST
from orchestrator.domain.data_spec import bucket_sources
from orchestrator.domain.names import home_region
from orchestrator.domain.observation import Absent, Present, Unknown, World
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.ports import Store
from orchestrator.domain.spec import Spec
from orchestrator.engine.apply import Actor
from orchestrator.engine.reconcile import lease_in_new_bucket
from orchestrator.errors import TransientError, UsageError
from orchestrator.google.project_probe import Probe
from orchestrator.ssh.local_data import DataFile, DataSet, listing, missing, scan, send

SUMS = "data-sums.json"
"""What this computer remembers of files of data, so that unchanged ones are not read again."""
_REPORT_EVERY = 30.0
"""Seconds between two lines about the progress."""
_SLOW = 1 << 28
"""Bytes from which on reading the data is said, because it takes seconds."""


def read_data(path: Path, spec: Spec, cloud: str, reporter: Reporter) -> tuple[DataSet, ...]:
    """Return the sets of `job.data`, their files read; none without `job.data`. Raise UsageError as `scan` does."""
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
    """Return what goes into the bundle beside the code."""
    return {DATA_LIST: listing(sets)} if sets else {}


def say_what_is_sent(session: Session, sets: tuple[DataSet, ...]) -> None:
    """Say what leaves this computer, and what ignore rules keep."""
    source = source_folder(session.path, session.spec)
    for line in what_is_sent(session.path, session.spec, source, sets).lines():
        session.reporter.say(line)


def check_sources(session: Session) -> None:
    """Raise UsageError when a folder of a bucket is not there or empty; say so when it cannot be seen from here."""
    for source in bucket_sources(session.spec):
        sight = Probe(session.clients).holds_objects(source)
        # An empty folder is treated as a wrong name: found now, and not by a job that trains on nothing.
        if isinstance(sight, Absent) or sight == Present(False):
            raise UsageError(
                f"job.data names {source}, and nothing is there", hint="correct job.data: tpuctl doctor",
                changed="nothing was changed", code="TPU-144",
            )  # fmt: skip
        if isinstance(sight, Unknown):
            session.reporter.say(
                f"data: {source} cannot be seen from here ({sight.why}); the machines may", style="warning"
            )


def bucket_is_there(session: Session) -> bool:
    """Say whether the deployment has its bucket by now. Raise what hides it."""
    sight = session.cloud.buckets.observe(session.blueprint.bucket)
    if isinstance(sight, Unknown):
        raise TransientError(
            f"the bucket cannot be seen, so the data cannot be sent: {sight.why}",
            hint="the same command again", changed="nothing was changed",
        )  # fmt: skip
    return not isinstance(sight, Absent)


def send_data(session: Session, sets: tuple[DataSet, ...], store: Store | None = None) -> None:
    """Bring to the bucket what it does not have; leave when all of it is there. A second try sends the rest."""
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
        # Where nobody looks at a terminal there is no live line.
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
    Make the bucket of a first `up` before anything else, so that no TPU waits for data that is still sent.

    A kill after this leaves an empty bucket, which the next `up` takes and `down` names. Raise what refuses it.
    """
    parts, unasked = session.deployment, Unknown("not asked for")
    why = "the job's data goes there before a TPU is requested"
    change = Change(Kind.BUCKET, Verb.CREATE, "", why, home_region(parts.spec))
    # Only the bucket may be made from this world: all else is Unknown, of which nothing is concluded.
    world = World(Absent(), unasked, unasked, unasked, observed_at=parts.clock.now())
    for failure in Actor(parts).act(Plan((change,)), world):
        raise failure.error
    # Data may take hours to send: meanwhile no other computer may begin the same.
    lease_in_new_bucket(parts)
