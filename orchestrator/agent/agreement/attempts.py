"""
Agree on attempts: all workers of a gang start, and start again, together.

An attempt is an object that only one worker can create. Which one comes next is a pure function.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Optional, Tuple

from orchestrator.agent.cloud.storage import TIMEOUT, JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.contract.bucket.completeness import CompleteCheckpoint, made_progress
from orchestrator.contract.bucket.object_names import GANG
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import PreconditionError, TransientError

EXCUSES = 5


@dataclass(frozen=True)
class Attempt:
    """
    One start of the gang.

    *failures* counts consecutive attempts without progress, *excused* those among them that were not the job's
    fault, *same* the last ones with the same exit status *code*. *suspects* are the checkpoints (step,
    incarnation) set aside since the last progress. *ended* is how the attempt before failed, *ended_line* the last
    line that it printed, *passed_over* which
    newer checkpoints are not complete; both are in *message* too.
    """

    attempt: int
    resume_step: Optional[int]
    resume_incarnation: Optional[int]
    failures: int
    message: str
    worker: int
    excused: int = 0
    code: Optional[int] = None
    same: int = 0
    suspects: Tuple[Tuple[int, int], ...] = ()
    ended: str = ""
    ended_line: str = ""
    passed_over: str = ""

    @property
    def reached(self) -> Optional[int]:
        """Return the step to pass before a start counts as progress; repeating a suspect's step does not count."""
        steps = [step for step, _ in self.suspects]
        return max(steps + ([] if self.resume_step is None else [self.resume_step]), default=None)

    def stored(self) -> Dict[str, Any]:
        """Return the attempt as the bucket has it, with its older key `reason`."""
        return {"reason" if key == "message" else key: value for key, value in asdict(self).items()}


def next_attempt(
    last: Optional[Attempt],
    newest: Optional[CompleteCheckpoint],
    message: str,
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
    wanted = Attempt(number, newest.step if newest else None, incarnation, 0, message, worker)
    if last is None or not counted or made_progress(newest, last.reached):
        return wanted
    wanted = replace(wanted, failures=last.failures, excused=last.excused, suspects=last.suspects)
    if excused and last.excused < EXCUSES:
        return replace(wanted, excused=last.excused + 1, code=last.code, same=last.same)
    same = last.same + 1 if code is not None and code == last.code else 1
    return replace(wanted, failures=last.failures + 1, code=code, same=same)


class AttemptStore:
    """The stored attempts of this incarnation, and the check for a newer incarnation."""

    def __init__(self, settings: Settings, bucket: JobBucket) -> None:
        self._settings = settings
        self._bucket = bucket
        self._prefix = f"{GANG}{settings.incarnation}/"

    def latest(self, timeout: float = TIMEOUT) -> Optional[Attempt]:
        """Return the newest attempt, None if there is none. Raise TransientError if that is unknown."""
        # Listed, not counted up from the last known one, because a machine that lost its disk knows none.
        numbers = [_number(name) for name in self._bucket.list(self._prefix, timeout)]
        newest = max(numbers, default=0)
        return self.read(newest, timeout) if newest else None

    def read(self, number: int, timeout: float = TIMEOUT) -> Optional[Attempt]:
        """Return one attempt, None when it does not exist."""
        held = self._bucket.read(self._name(number), timeout)
        if held is None:
            return None
        try:
            return _attempt(json.loads(held.data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TransientError(f"{self._name(number)} cannot be read: {error}") from error

    def create(self, wanted: Attempt, timeout: float = TIMEOUT) -> Attempt:
        """Create the attempt; return it, or the one that another worker created first. Raise TransientError."""
        data = json.dumps(wanted.stored(), sort_keys=True).encode()
        try:
            self._bucket.write(self._name(wanted.attempt), data, 0, timeout)
        except PreconditionError:
            held = self.read(wanted.attempt, timeout)
            if held is None:
                raise TransientError(f"{self._name(wanted.attempt)} was there and is gone") from None
            return held
        return wanted

    def verdict(self, timeout: float = TIMEOUT) -> Optional[str]:
        """Return why the gang gave up, None if it did not. A verdict about another bundle does not count."""
        held = self._bucket.read(f"{self._prefix}verdict.json", timeout)
        if held is None:
            return None
        value = json_value(held.data) or {}
        # A push brings new code, which has not failed yet.
        same = value.get("bundle", self._settings.bundle) == self._settings.bundle
        return str(value.get("reason", "")) if value.get("failed") and same else None

    def give_up(self, message: str, timeout: float = TIMEOUT) -> None:
        """Write the verdict, which stops every worker."""
        value = {"failed": True, "reason": message, "bundle": self._settings.bundle}
        self._bucket.write(f"{self._prefix}verdict.json", json.dumps(value).encode(), timeout=timeout)

    def newer_incarnation(self, timeout: float = TIMEOUT) -> Optional[int]:
        """Return the newest incarnation if it is not ours; this machine must then stop writing."""
        folders = self._bucket.level(GANG, timeout)[1]
        numbers = [
            int(part) for part in (one.rstrip("/").rsplit("/", 1)[-1] for one in folders) if part.isdecimal()
        ]
        newest = max(numbers, default=0)
        return newest if newest > self._settings.incarnation else None

    def overtaken(self, attempt: int, timeout: float = TIMEOUT) -> bool:
        """Return whether the gang has a later attempt."""
        return self._bucket.stat(self._name(attempt + 1), timeout) is not None

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:06d}.json"


def _number(name: str) -> int:
    """Return the attempt number in an object's name, 0 for other objects."""
    stem = name.rsplit("/", 1)[-1].split(".", maxsplit=1)[0]
    return int(stem) if stem.isdecimal() else 0


def _attempt(value: Dict[str, Any]) -> Attempt:
    """Parse a stored attempt. Raise ValueError, KeyError, TypeError or AttributeError."""
    value = {**value, "message": value["reason"]}
    known = {key: value[key] for key in Attempt.__dataclass_fields__ if key in value}
    suspects = tuple((int(step), int(by)) for step, by in known.pop("suspects", ()))
    if any(type(known[key]) is not int for key in ("attempt", "failures")) or any(
        type(known[key]) not in (int, type(None)) for key in ("resume_step", "resume_incarnation")
    ):
        raise ValueError("a field that must be an integer is not")
    return Attempt(suspects=suspects, **known)
