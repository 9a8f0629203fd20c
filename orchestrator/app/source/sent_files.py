"""
List what a deployment sends from this computer, and what it does not: code, data, excluded files.

A deployment file of other people runs programs too, so its hooks are listed.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Any

from orchestrator.app.source.local_data import DataSet
from orchestrator.app.source.source_files import SourceEntry, source_files
from orchestrator.domain.source.excluded_paths import ExcludedPath
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.amounts import size_text

MAX_SHOWN = 5
_GIB = 2**30


@dataclass(frozen=True)
class Sent:
    """
    What is sent: the code's files, the data sets, and the excluded paths, the largest first.

    *usd* is the monthly price of a GiB in the bucket, None if unknown. *leads* maps a data set to the place
    outside of the project that its links lead to. *hooks* are the programs that run on this computer, by
    event.
    """

    code: tuple[SourceEntry, ...]
    data: tuple[DataSet, ...]
    excluded: tuple[ExcludedPath, ...]
    usd: float | None = None
    leads: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the list as in `--json`."""
        return {
            "sent": {
                "files_count": len(self.code),
                "bytes": sum(entry.size for entry in self.code),
                "largest": [{"path": e.path, "bytes": e.size} for e in self.code[:MAX_SHOWN]],
            },
            "data": [
                {
                    "name": one.name, "source": one.source,
                    "bytes": None if one.in_bucket else one.size,
                    "files_count": None if one.in_bucket else len(one.files),
                    "usd_month": self._month(one),
                    **({"leads_to": self.leads[one.name]} if one.name in self.leads else {}),
                }
                for one in self.data
            ],
            "excluded": [
                {"path": one.path, "pattern": one.pattern, "files_count": one.files, "bytes": one.size}
                for one in self.excluded
            ],
            "hooks": dict(self.hooks),
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield the text: the code, each data set, and the excluded paths with their patterns."""
        total = sum(entry.size for entry in self.code)
        largest = ", ".join(f"{entry.path} {size_text(entry.size)}" for entry in self.code[:MAX_SHOWN])
        yield f"Code: {_files(len(self.code))}, {size_text(total)}; largest: {largest or 'none'}"
        for one in self.data:
            if one.in_bucket:
                yield f"Data: {one.name}: from {one.source}, which the machines read themselves"
                continue
            usd = self._month(one)
            cost = "" if usd is None else f", {usd:.2f} USD a month in the bucket"
            size, files = size_text(one.size), _files(len(one.files))
            leads = (
                f", which leads out of the project to {self.leads[one.name]}"
                if one.name in self.leads
                else ""
            )
            yield f"Data: {one.name}: {size} in {files} from {one.source}{leads}{cost}"
        yield from _hooks(self.hooks)
        if self.excluded:
            count = sum(one.files for one in self.excluded)
            more = "more than " if any(one.more for one in self.excluded) else ""
            names = ", ".join(_excluded(one) for one in self.excluded[:MAX_SHOWN])
            yield (
                f"Excluded: {more}{_files(count)} by patterns: {names}"
                f"{', ...' if len(self.excluded) > MAX_SHOWN else ''}. What the job reads of it: job.data"
            )

    def _month(self, one: DataSet) -> float | None:
        return None if one.in_bucket or self.usd is None else round(one.size / _GIB * self.usd, 4)


def what_is_sent(
    path: Path, spec: Spec, source: Path, sets: tuple[DataSet, ...], usd: float | None = None
) -> Sent:
    """Survey the folder *source*; files that a data set sends do not count as excluded."""
    found = source_files(source)
    code = [entry for entry in found.entries if S_ISREG(entry.mode) and not entry.link]
    base, root = path.absolute().parent, source.resolve()
    # Such files are sent as data, although a pattern excludes them from the code.
    sent_as_data = [
        (base / Path(place).expanduser()).resolve()
        for place in spec.job.data.values() if not place.startswith("gs://")
    ]  # fmt: skip
    excluded = [
        one for one in found.excluded
        if not any((root / one.path).is_relative_to(place) for place in sent_as_data)
    ]  # fmt: skip
    return Sent(
        tuple(sorted(code, key=lambda entry: -entry.size)),
        sets,
        tuple(sorted(excluded, key=lambda one: -one.size)),
        usd,
        {name: lead for name, lead in _leads(base, sets) if lead},
        {str(event): command for event, command in spec.notify.hooks.items()},
    )


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _leads(base: Path, sets: tuple[DataSet, ...]) -> Iterator[tuple[str, str]]:
    """Yield where links lead each set out of the project; nothing if its source is named directly."""
    project = base.resolve()
    for one in sets:
        named = Path(os.path.normpath(base / Path(one.source).expanduser()))
        if one.in_bucket or not named.is_relative_to(base):
            continue
        links = (path for file in one.files for path in [file.path] if path.is_symlink())
        # Resolved, since a link in another person's repository may lead to the user's keys.
        ends = (path.resolve() for path in (named, *links))
        yield one.name, next((str(end) for end in ends if not end.is_relative_to(project)), "")


def _hooks(hooks: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each program, with its kinds of notifications."""
    for command in dict.fromkeys(hooks.values()):
        kinds = ", ".join(kind for kind, one in hooks.items() if one == command)
        yield f"Runs on this computer, as you, for notifications of kind {kinds}: {command}"


def _excluded(path: ExcludedPath) -> str:
    line = path.line
    message = f"{line.file} line {line.number}" if line else "a key, by its name"
    return f"{path.path} {size_text(path.size)} ({message})"
