"""
Agree on attempts, and on the saves to commit: all workers of a slice have the same ones.

An attempt is an object that only one worker can create. The rules are pure functions; `Gang` stores attempts,
`SaveAgreement` the step from which on the next save is committed.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from orchestrator.agent.cloud.storage import SECONDS, JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.contract.bucket.claim import claim_name, claim_of, named_by
from orchestrator.contract.bucket.completeness import Checkpoint, made_progress
from orchestrator.contract.bucket.manifest import folder_name, parse_name
from orchestrator.contract.bucket.object_names import GANG, HEARTBEAT
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import PreconditionError, TransientError
from orchestrator.contract.preemption_notice import AT_REST, REPORT_COUNTS

EXCUSES = 5
PATIENCE = 3.0
"""Times that worker 0 waits for others as long as for itself: for their commits, and for their reading a name."""
LOOKS_EACH = 4
"""Looks for the named save in the time between two saves, so that none is deleted unseen."""
QUICKEST = 0.1
"""Least seconds between two such looks."""


@dataclass(frozen=True)
class Attempt:
    """
    One start of the gang.

    *failures* counts consecutive starts without progress, *excused* those among them that were not the job's
    fault, *same* the last ones with the same exit status *code*. *suspects* are the checkpoints (step,
    incarnation) set aside since the last progress.
    """

    attempt: int
    resume_step: Optional[int]
    resume_incarnation: Optional[int]
    failures: int
    reason: str
    worker: int
    excused: int = 0
    code: Optional[int] = None
    same: int = 0
    suspects: Tuple[Tuple[int, int], ...] = ()

    @property
    def reached(self) -> Optional[int]:
        """Return the step to pass before a start counts as progress; repeating a suspect's step does not count."""
        steps = [step for step, _ in self.suspects]
        return max(steps + ([] if self.resume_step is None else [self.resume_step]), default=None)


def next_attempt(
    last: Optional[Attempt],
    newest: Optional[Checkpoint],
    reason: str,
    worker: int,
    counted: bool,
    excused: bool = False,
    code: Optional[int] = None,
) -> Attempt:
    """
    Return the attempt after *last*, from the *newest* complete checkpoint.

    Progress resets the failures. Without it, a *counted* end adds one; any other end resets them as well,
    because a user requested the new start. An *excused* end adds none, up to EXCUSES times in a row.
    """
    incarnation = newest.incarnation if newest is not None and newest.incarnation >= 0 else None
    number = last.attempt + 1 if last is not None else 1
    wanted = Attempt(number, newest.step if newest else None, incarnation, 0, reason, worker)
    if last is None or not counted or made_progress(newest, last.reached):
        return wanted
    wanted = replace(wanted, failures=last.failures, excused=last.excused, suspects=last.suspects)
    if excused and last.excused < EXCUSES:
        return replace(wanted, excused=last.excused + 1, code=last.code, same=last.same)
    same = last.same + 1 if code is not None and code == last.code else 1
    return replace(wanted, failures=last.failures + 1, code=code, same=same)


class Gang:
    """The stored attempts of this incarnation, and the check for a newer incarnation."""

    def __init__(self, settings: Settings, bucket: JobBucket) -> None:
        self._settings = settings
        self._bucket = bucket
        self._prefix = f"{GANG}{settings.incarnation}/"

    def latest(self, seconds: float = SECONDS) -> Optional[Attempt]:
        """Return the newest attempt, None if there is none. Raise TransientError if that is unknown."""
        # Listed, not counted up from the last known one, because a machine that lost its disk knows none.
        numbers = [_number(name) for name in self._bucket.list(self._prefix, seconds)]
        newest = max(numbers, default=0)
        return self.read(newest, seconds) if newest else None

    def read(self, number: int, seconds: float = SECONDS) -> Optional[Attempt]:
        """Return one attempt, None when it does not exist."""
        held = self._bucket.read(self._name(number), seconds)
        if held is None:
            return None
        try:
            return _attempt(json.loads(held.data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TransientError(f"{self._name(number)} cannot be read: {error}") from error

    def create(self, wanted: Attempt, seconds: float = SECONDS) -> Attempt:
        """Create the attempt; return it, or the one that another worker created first. Raise TransientError."""
        data = json.dumps(asdict(wanted), sort_keys=True).encode()
        try:
            self._bucket.write(self._name(wanted.attempt), data, 0, seconds)
        except PreconditionError:
            held = self.read(wanted.attempt, seconds)
            if held is None:
                raise TransientError(f"{self._name(wanted.attempt)} was there and is gone") from None
            return held
        return wanted

    def verdict(self, seconds: float = SECONDS) -> Optional[str]:
        """Return why the gang gave up, None if it did not. A verdict about another bundle does not count."""
        held = self._bucket.read(f"{self._prefix}verdict.json", seconds)
        if held is None:
            return None
        value = json_value(held.data) or {}
        # A push brings new code, which has not failed yet.
        same = value.get("bundle", self._settings.bundle) == self._settings.bundle
        return str(value.get("reason", "")) if value.get("failed") and same else None

    def give_up(self, reason: str, seconds: float = SECONDS) -> None:
        """Write the verdict, which stops every worker."""
        value = {"failed": True, "reason": reason, "bundle": self._settings.bundle}
        self._bucket.write(f"{self._prefix}verdict.json", json.dumps(value).encode(), seconds=seconds)

    def newer_incarnation(self, seconds: float = SECONDS) -> Optional[int]:
        """Return the newest incarnation if it is not ours; this machine must then stop writing."""
        folders = self._bucket.level(GANG, seconds)[1]
        numbers = [
            int(part) for part in (one.rstrip("/").rsplit("/", 1)[-1] for one in folders) if part.isdecimal()
        ]
        newest = max(numbers, default=0)
        return newest if newest > self._settings.incarnation else None

    def overtaken(self, attempt: int, seconds: float = SECONDS) -> bool:
        """Return whether the gang has a later attempt."""
        return self._bucket.stat(self._name(attempt + 1), seconds) is not None

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:06d}.json"


class SaveAgreement:
    """
    The saves of an attempt that all workers commit: worker 0 names a step, all take their first save from there on.

    Without it, workers whose uploads last longer than the job keeps its saves would each commit other steps, and
    no checkpoint would be complete.
    """

    def __init__(
        self, settings: Settings, bucket: JobBucket, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._bucket = bucket
        self._now = now
        self.begin(0)

    def begin(self, attempt: int) -> None:
        """Forget what earlier attempts agreed on."""
        self._attempt = attempt
        self._named: Optional[int] = None
        self._committed: Optional[int] = None
        self._read_at = self._until = -math.inf
        self._newest: Optional[int] = None
        self._saved_at, self._interval = self._now(), math.inf
        self._rates = (0.0, 0.0)

    def committed(self, step: int, seconds: float) -> None:
        """Remember this worker's newest commit, which took *seconds*."""
        self._committed = step
        self._until = self._now() + PATIENCE * (seconds + self._settings.poll)

    def step(self, floor: int, saves: Sequence[int], fence: Callable[[], None]) -> Optional[int]:
        """
        Return the step that worker 0 has named, None if it has named none.

        *floor* is this worker's newest commit, *saves* are its complete later steps. Worker 0 calls *fence* before
        it names another step. Raise TransientError and what *fence* raises.
        """
        newest, now = max(saves, default=floor), self._now()
        if self._newest is not None and newest > self._newest:
            self._interval = max(now - self._saved_at, QUICKEST)
            self._rates = (self._rates[1], (newest - self._newest) / self._interval)
        if newest != self._newest:
            self._newest, self._saved_at = newest, now
        if self._settings.worker == 0:
            step = self._step_to_name(floor, newest)
            if step is not None:
                fence()
                self._bucket.write(self._name(), json.dumps({"from": step}).encode())
                self._named = step
        elif saves and now - self._read_at >= self._settings.poll:
            held = self._bucket.read(self._name())
            named = (json_value(held.data if held is not None else None) or {}).get("from")
            self._named, self._read_at = named if type(named) is int else None, now
        return self._named

    @property
    def pause(self) -> Optional[float]:
        """Return the seconds until the next look for the named save, None if it will be there for long."""
        if self._named is None or self._newest is None or self._named <= self._newest:
            return None
        apart = max(self._interval, self._now() - self._saved_at)
        return max(QUICKEST, apart / LOOKS_EACH) if apart / LOOKS_EACH < self._settings.poll else None

    def _step_to_name(self, floor: int, newest: int) -> Optional[int]:
        """Return the step to name now, None if the one that is named holds."""
        # What other workers need to read a name.
        margin = PATIENCE * self._settings.poll
        stays = newest > floor and self._now() - self._saved_at >= margin
        if self._named is not None and (self._committed is None or self._committed < self._named):
            return newest if stays and newest < self._named else None
        if self._committed is not None and self._now() < self._until and not self._all_have(self._committed):
            return None
        if stays:
            return newest
        # A save that comes earlier may be deleted before all workers have read its name. The slower one of two
        # rates, because of programs that save twice in a row at times.
        return newest + 1 + math.ceil(min(self._rates) * margin)

    def _all_have(self, step: int) -> bool:
        """Return whether every worker has committed its part of a step."""
        one = self._settings
        names = self._bucket.level(folder_name(step, one.incarnation))[0]
        return sum(parse_name(name) is not None for name in names) >= one.workers

    def _name(self) -> str:
        return f"{GANG}{self._settings.incarnation}/save-{self._attempt:06d}.json"


def _number(name: str) -> int:
    """Return the attempt number in an object's name, 0 for other objects."""
    stem = name.rsplit("/", 1)[-1].split(".", maxsplit=1)[0]
    return int(stem) if stem.isdecimal() else 0


def _attempt(value: Dict[str, Any]) -> Attempt:
    """Parse a stored attempt. Raise ValueError, KeyError, TypeError or AttributeError."""
    known = {key: value[key] for key in Attempt.__dataclass_fields__ if key in value}
    suspects = tuple((int(step), int(by)) for step, by in known.pop("suspects", ()))
    if any(type(known[key]) is not int for key in ("attempt", "failures")) or any(
        type(known[key]) not in (int, type(None)) for key in ("resume_step", "resume_incarnation")
    ):
        raise ValueError("a field that must be an integer is not")
    return Attempt(suspects=suspects, **known)


WIDEST = 1000
"""Largest number of TPUs in one race; their incarnations count up from the race's number."""


def still_saving(
    bucket: JobBucket, settings: Settings, now: float, seconds: float = SECONDS
) -> Optional[int]:
    """Return the newest TPU from before this race if it is being preempted and still saves, else None."""
    found = [
        (int(number), name)
        for name in bucket.list(HEARTBEAT, seconds)
        for number in [name[len(HEARTBEAT) :].partition("/")[0]]
        if number.isdecimal() and int(number) < settings.race
    ]
    newest = max((number for number, _ in found), default=0)
    for name in (name for number, name in found if number == newest):
        held = bucket.read(name, seconds)
        report = json_value(held.data if held is not None else None) or {}
        said, at = report.get("phase"), report.get("at")
        fresh = type(at) is float and now - at < REPORT_COUNTS
        if report.get("preempted") is True and said not in AT_REST and fresh:
            return newest
    return None


def winner_of(bucket: JobBucket, settings: Settings, seconds: float = SECONDS) -> int:
    """Return the incarnation that has won this machine's race: its own unless another one was named first."""
    name, data = claim_name(settings.race), claim_of(settings.incarnation)
    try:
        bucket.write(name, data, 0, seconds)
    except PreconditionError:
        held = bucket.read(name, seconds)
        number = named(held.data if held is not None else b"", settings.race)
        if number is None:
            raise TransientError(f"{name} names no TPU of this race") from None
        return number
    return settings.incarnation


def named(data: bytes, race: int) -> Optional[int]:
    """Return the incarnation named in a claim, None if it is not a TPU of this race."""
    number = named_by(data)
    return number if number is not None and 0 <= number - race < WIDEST else None
