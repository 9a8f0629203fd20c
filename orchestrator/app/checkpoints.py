"""List the checkpoints in the bucket, and which one the next start would resume from."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.earlier_costs import last_cost, open_named
from orchestrator.app.deployment.session import Session
from orchestrator.app.source.wanted import with_reported_end
from orchestrator.domain.bucket_checkpoint import BucketCheckpoint
from orchestrator.domain.plan import Outcome
from orchestrator.domain.ports import Store
from orchestrator.domain.text.amounts import size_text
from orchestrator.engine.bucket.checkpoints import damage_of, read_checkpoints
from orchestrator.engine.bucket.heartbeats import read_heartbeats
from orchestrator.engine.bucket.uncommitted import UncommittedFiles, read_uncommitted
from orchestrator.errors import NotFoundError, TpuctlError


@dataclass(frozen=True)
class Row:
    """One checkpoint; *verified* is None without a comparison, *resumes* marks the one for the next start."""

    stored: BucketCheckpoint
    resumes: bool
    verified: bool | None
    damage: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the row as in `--json`."""
        body = asdict(self.stored)
        del body["objects"]
        body["bytes"], body["workers_count"] = body.pop("size"), body.pop("workers")
        return {**body, "resumes": self.resumes, "verified": self.verified, "damage": self.damage}


@dataclass(frozen=True)
class CheckpointListing:
    """
    The checkpoints of a deployment at the time *now*, and the files that no checkpoint contains.

    *deleted* says in words that its data was deleted on purpose, "" if it was not. *keep* is of how many
    steps the agent keeps the complete ones in the bucket, 0 if it deletes none. *done* says that the job is:
    nothing resumes.
    """

    name: str
    rows: tuple[Row, ...]
    uncommitted: tuple[UncommittedFiles, ...]
    now: float
    deleted: str = ""
    keep: int = 0
    done: bool = False

    @property
    def damaged(self) -> bool:
        """Return whether the content of a checkpoint differs from what was saved."""
        return any(row.damage for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the list as in `--json`."""
        return {
            "name": self.name, "checkpoints": [row.as_dict() for row in self.rows],
            "uncommitted": [one.as_dict() for one in self.uncommitted],
        }  # fmt: skip


def list_checkpoints(
    choice: Choice, reporter: Reporter, name: str | None = None, *, verify: bool
) -> CheckpointListing:
    """Return what the bucket holds, without changes; *verify* reads each complete checkpoint."""
    session = open_named(choice, name, reporter, "list")
    store = session.cloud.store
    try:
        with reporter:
            found = read_checkpoints(store, session.spec.job.checkpoint)
    # Before the first `up` there is no bucket, which is an empty list and no error.
    except NotFoundError:
        found = []
    uncommitted = tuple(read_uncommitted(store))
    damage = dict(_verified(store, found, reporter)) if verify else {}
    rows = tuple(_rows(found, damage, verify=verify))
    cost = None if rows or uncommitted else last_cost(session, session.records.current)
    deleted = cost.deleted_text if cost else ""
    saving = session.spec.job.checkpoint
    # With `dir: bucket` the job writes there itself, and the agent deletes nothing.
    keep = 0 if saving.dir == "bucket" else saving.keep
    done = bool(rows) and _is_done(session)
    return CheckpointListing(session.spec.name, rows, uncommitted, session.clock.now(), deleted, keep, done)


def _is_done(session: Session) -> bool:
    """Return whether record or reports say that the job is done; without a readable record the list is of use."""
    with suppress(TpuctlError):
        record = session.records.load(forgiving=True)
        # Without a watcher the end is not in the record, and `status` goes by the reports.
        heartbeats = read_heartbeats(session.store, record.node.incarnation)
        return with_reported_end(session.spec, heartbeats, record).outcome is Outcome.DONE
    return False


def _verified(
    store: Store, found: Sequence[BucketCheckpoint], reporter: Reporter
) -> Iterator[tuple[int, list[str]]]:
    """Yield index and damage of each complete checkpoint, and report the progress."""
    whole = [(place, one) for place, one in enumerate(found) if one.complete]
    for number, (place, one) in enumerate(whole, 1):
        reporter.say(f"{number} of {len(whole)}: reading step {one.step}, {size_text(one.size)}")
        yield place, damage_of(store, one)


def _rows(
    found: Sequence[BucketCheckpoint], damage: Mapping[int, Sequence[str]], *, verify: bool
) -> Iterator[Row]:
    # The agent's rule, the newest complete one; only this list also excludes wrong checksums.
    resume = next((place for place, one in enumerate(found) if one.complete and not damage.get(place)), None)
    for place, one in enumerate(found):
        wrong = damage.get(place, ())
        # Objects without a checksum prove nothing, so such a checkpoint is never called verified.
        compared = any(checksum for _, checksum in one.objects)
        verified = compared and not wrong if verify and one.complete else None
        yield Row(one, place == resume, verified, list(wrong))
