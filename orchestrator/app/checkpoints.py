"""What is saved in the bucket, and what the next start would resume from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.app.choice import Choice
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.domain.amounts import size_text
from orchestrator.domain.ports import Store
from orchestrator.engine.checkpoints import StoredCheckpoint, faults_of, read_checkpoints
from orchestrator.engine.unclaimed import UnclaimedFiles, read_unclaimed
from orchestrator.errors import NotFoundError


@dataclass(frozen=True)
class Row:
    """Hold one checkpoint; *verified* is None where nobody compared checksums, *resumes* marks the next start's."""

    stored: StoredCheckpoint
    resumes: bool
    verified: bool | None
    faults: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        body = asdict(self.stored)
        del body["objects"]
        return {**body, "resumes": self.resumes, "verified": self.verified, "faults": self.faults}


@dataclass(frozen=True)
class CheckpointListing:
    """Hold the checkpoints of a deployment at the time *now*, and the files that no checkpoint contains."""

    name: str
    rows: tuple[Row, ...]
    unclaimed: tuple[UnclaimedFiles, ...]
    now: float

    @property
    def faulty(self) -> bool:
        """Say whether a checkpoint is not as it was saved."""
        return any(row.faults for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            "name": self.name, "checkpoints": [row.as_dict() for row in self.rows],
            "unclaimed": [one.as_dict() for one in self.unclaimed],
        }  # fmt: skip


def list_checkpoints(choice: Choice, reporter: Reporter, *, verify: bool) -> CheckpointListing:
    """Return what the bucket holds; with *verify* each complete checkpoint is read whole. Changes nothing."""
    session = Session(choice, reporter)
    store = session.cloud.store
    try:
        with reporter:
            found = read_checkpoints(store, session.spec.job.checkpoint)
    # Before the first `up` there is no bucket: a list of nothing, not an error.
    except NotFoundError:
        found = []
    unclaimed = tuple(read_unclaimed(store))
    faults = dict(_verified(store, found, reporter)) if verify else {}
    rows = tuple(_rows(found, faults, verify=verify))
    return CheckpointListing(session.spec.name, rows, unclaimed, session.clock.now())


def _verified(
    store: Store, found: Sequence[StoredCheckpoint], reporter: Reporter
) -> Iterator[tuple[int, list[str]]]:
    """Yield the faults of each complete checkpoint by its place in the list, and say how far it is."""
    whole = [(place, one) for place, one in enumerate(found) if one.complete]
    for number, (place, one) in enumerate(whole, 1):
        reporter.say(f"{number} of {len(whole)}: reading step {one.step}, {size_text(one.size)}")
        yield place, faults_of(store, one)


def _rows(
    found: Sequence[StoredCheckpoint], faults: Mapping[int, Sequence[str]], *, verify: bool
) -> Iterator[Row]:
    # As the agent chooses it: the newest complete one. A checksum that does not fit excludes it here only.
    resume = next((place for place, one in enumerate(found) if one.complete and not faults.get(place)), None)
    for place, one in enumerate(found):
        wrong = faults.get(place, ())
        # An object without a checksum proves nothing: such a checkpoint is never called verified.
        compared = any(checksum for _, checksum in one.objects)
        verified = compared and not wrong if verify and one.complete else None
        yield Row(one, place == resume, verified, list(wrong))
