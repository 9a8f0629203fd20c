"""Run all of tpuctl once on a cloud, delete everything, and prove that nothing is left."""

import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from orchestrator.advice.selftest.compare import Difference, Topic, differences
from orchestrator.advice.selftest.recording import Recording, parse
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.rehearsal.sandbox import interruptible, signals_ignored
from orchestrator.app.selftest.stages import FOLDER, RunCommand, SelfTest, WantedProofs, take_down
from orchestrator.app.this_computer.state_folders import state_folder
from orchestrator.config.load import FILE_NAME
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import LeftoverError, UsageError
from orchestrator.pricing.cost import Hourly, Meter, estimate


@dataclass(frozen=True)
class Limits:
    """The time to live in seconds, and the usual and the greatest cost in USD."""

    ttl: float
    usual_usd: float
    upper_usd: float


@dataclass(frozen=True)
class Prepared:
    """
    A self-test before anything is created: what it runs, its limits, and the age of the prices.

    *recorded* is the recording to compare it with, if any.
    """

    test: SelfTest
    limits: Limits
    prices: str
    recorded: Recording | None


@dataclass(frozen=True)
class SelfTested:
    """The result of a self-test: *leftovers*, and *differences* to a recording (None without one)."""

    test: SelfTest
    leftovers: Sequence[str]
    interrupted: bool
    differences: Sequence[Difference] | None

    @property
    def failed(self) -> bool:
        """Return whether a stage failed or anything but a time differs from the recording."""
        stages = self.test.recording.stages.values()
        different = any(one.topic is not Topic.TIME for one in self.differences or ())
        return different or any(stage["result"] not in {"ok", "skipped"} for stage in stages)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as in `--json`."""
        differ = self.differences
        found = None if differ is None else [{**asdict(one), "topic": one.topic.value} for one in differ]
        body = {"name": self.test.name, "cloud": self.test.cloud, "leftovers": list(self.leftovers)}
        stages = self.test.recording.stages
        return {**body, "interrupted": self.interrupted, "stages": stages, "differences": found}


def as_recorded(wanted: WantedProofs, recording: Recording) -> WantedProofs:
    """Return the settings that repeat a recording on the local cloud."""
    head = recording.head
    tpu_type, zone = str(head.get("type", wanted.type)), str(head.get("zone", wanted.zone))
    return replace(wanted, cloud="local", tpu=bool(head.get("tpu", True)), type=tpu_type, zone=zone)


def costs_money(wanted: WantedProofs, compare: Path | None) -> bool:
    """Return whether the cloud bills it; a comparison runs on the local cloud."""
    return compare is None and wanted.cloud != "local"


def prepare(
    wanted: WantedProofs, compare: Path | None, run_command: RunCommand, reporter: Reporter
) -> Prepared:
    """
    Delete what killed self-tests left, and compute the limits of a new one; creates nothing.

    With the recording in *compare* it repeats that on the local cloud instead. Raise UsageError.
    """
    recorded = read_recording(compare) if compare else None
    wanted = as_recorded(wanted, recorded) if recorded else wanted
    _clean_up_before(wanted.cloud, run_command, reporter)
    test = SelfTest(f"selftest-{secrets.token_hex(3)}", wanted, run_command, reporter)
    price = test.price()
    # Before anything is created: a budget that cannot be kept is refused instead of watched.
    found = limits(price, wanted.budget, wanted.ttl, tpu=wanted.tpu)
    if found is None:
        what = f"no price is known for {', '.join(price.unpriced)}" if price.unpriced else "it is too small"
        raise UsageError(
            f"a budget of {wanted.budget:g} USD cannot be kept: {what}",
            hint="choose another --zone or --type, a greater --budget or --ttl, or --no-tpu",
            changed="nothing was created",
        )
    return Prepared(test, found, price.date_text, recorded)


def carry_out(prepared: Prepared, reporter: Reporter) -> SelfTested:
    """Run the stages, delete everything in any case and verify that; compare with the recording."""
    test, ttl, recorded = prepared.test, prepared.limits.ttl, prepared.recorded
    interrupted = False
    # Its commands' output goes to stderr, since stdout gets the result of all of them.
    with test.prepared(ttl), redirect_stdout(sys.stderr):
        try:
            with interruptible():
                test.stages(ttl)
        except KeyboardInterrupt:
            interrupted = True
            reporter.say("interrupted; deleting everything first, which takes a few minutes", style="warning")
        finally:
            # A second Ctrl-C here would leave machines that are billed.
            with signals_ignored():
                leftovers = test.end()
    differ = None if recorded is None else differences(recorded, test.recording)
    return SelfTested(test, leftovers, interrupted, differ)


def _clean_up_before(cloud: str, run_command: RunCommand, reporter: Reporter) -> None:
    for folder in _earlier(cloud):
        reporter.say(f"{folder.name}: an earlier self-test was cut off; deleting what is left of it first")
        if take_down(folder, cloud, run_command) != 0:
            raise LeftoverError(
                f"{folder.name} could not be taken down",
                hint=f"run: tpuctl down --delete-data --file {folder / FILE_NAME}",
                changed="no new self-test was begun",
            )


def _earlier(cloud: str) -> Iterator[Path]:
    """Yield the folders of interrupted self-tests, whose lock is free."""
    for file in sorted((state_folder(cloud) / FOLDER).glob(f"*/{FILE_NAME}")):
        try:
            # A free lock means that its process has ended in some way; a running self-test holds it.
            with FileLock(file.parent / "lock", timeout=0):
                pass
        except Timeout:
            continue
        yield file.parent


def write_recording(recording: Recording, path: Path) -> None:
    """Write a recording as JSON lines."""
    write_private(path, "".join(f"{line}\n" for line in json_lines(recording)).encode())


def json_lines(recording: Recording) -> list[str]:
    """Return the lines of a recording's file."""
    return [json.dumps(line, sort_keys=True) for line in recording.lines()]


def read_recording(path: Path) -> Recording:
    """Read a recording. Raise UsageError if the file has none."""
    try:
        return parse(_objects(path))
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise UsageError(
            f"{path} is not a recording of a self-test: {error}",
            hint="make one with: tpuctl selftest --record F",
            changed="nothing was created",
        ) from None


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if not isinstance(one, dict):
            raise TypeError("a line is no JSON object")
        yield one


NO_TPU = 15 * 60.0
"""Time to live in seconds of a self-test without a TPU."""
SHORTEST = 20 * 60.0
"""Seconds that all stages with a TPU need at least; a budget for less is refused."""
USUAL = 45 * 60.0
"""Seconds that all stages usually take on the real service, by its published times (docs/selftest.md)."""
USUAL_NO_TPU = 6 * 60.0
"""Seconds that a selftest takes without a TPU: VM and bucket only."""


def limits(price: Hourly, budget_usd: float, seconds: float, *, tpu: bool) -> Limits | None:
    """
    Return the limits within *budget_usd* and *seconds*; None if a price is unknown or the budget too small.

    Within the time to live even all machines together stay within the budget.
    """
    meters = tuple(Meter) if tpu else (Meter.VM, Meter.DISK)
    found = estimate(price, dict.fromkeys(meters, 3600.0))
    # An unknown price is not zero; no sum can be promised with it.
    if found.usd is None:
        return None
    hour = found.upper_usd
    longest = seconds if tpu else min(seconds, NO_TPU)
    ttl = min(longest, budget_usd / hour * 3600 if hour else longest)
    shortest, usual = (SHORTEST, USUAL) if tpu else (USUAL_NO_TPU, USUAL_NO_TPU)
    if ttl < shortest:
        return None
    return Limits(ttl, hour * min(usual, ttl) / 3600, hour * ttl / 3600)
