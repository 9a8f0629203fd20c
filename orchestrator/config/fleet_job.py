"""Read the file of a fleet's job: its name, its tasks, and a section `job` as in a deployment file."""

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config.config_error import ConfigError, FileFinding
from orchestrator.config.document import Document, parse
from orchestrator.config.layers import lay
from orchestrator.config.load import content, shown
from orchestrator.config.rules.fleet import MAX_NODES
from orchestrator.config.rules.names_and_zones import NAME_PATTERN
from orchestrator.config.setting_types import at
from orchestrator.config.validate import validate
from orchestrator.domain.spec import JobSpec
from orchestrator.planning.fleet.tasks import MAX_TASKS, grid

TASKS = ("array", "matrix", "list")
"""Keys that define the tasks; a file has exactly one of them."""
KEYS = ("name", *TASKS, "collect", "after", "priority", "slices", "job")
MAX_BEFORE = 8
"""Most jobs that one job waits for: Slurm shows a task's dependencies in a column of limited width."""
MAX_NAME = 40
MAX_COLLECTED = 8
_RANGE = re.compile(r"(\d{1,6})\.\.(\d{1,6})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLLECTED = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]{0,119}\.(json|csv)")
_INTO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\.csv")


@dataclass(frozen=True)
class JobFile:
    """
    A job as its file describes it; *parameters* has those of each task.

    *collect* names small files of each task, whose values go *into* a table of that name. *after* maps the
    jobs to wait for to `ok` (they must succeed) or `any`. *slices* is the smallest and the largest number of
    nodes for one task.
    """

    name: str
    parameters: tuple[Mapping[str, str], ...]
    job: JobSpec
    collect: tuple[str, ...] = ()
    into: str = ""
    after: Mapping[str, str] = field(default_factory=dict)
    slices: tuple[int, int] = (1, 1)
    priority: str = ""


def read_job(path: Path, fleet: Path, overrides: Mapping[str, str]) -> JobFile:
    """Return the job in *path* for the fleet of a deployment file. Raise ConfigError with all findings."""
    document = parse(content(path), shown(path))
    for key in document.data:
        if key not in KEYS:
            _add_finding(document, key, "is not a key of a job's file", f"its keys are {', '.join(KEYS)}")
    name = document.data.get("name")
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name) or len(name) > MAX_NAME:
        text = "is missing" if name is None else f"{name!r} cannot name a job"
        _add_finding(document, "name", text, f"use at most {MAX_NAME} lower-case letters, digits and '-'")
    parameters = _parameters(document, path.parent)
    collect, into = _collected(document)
    after, slices = _after(document), _slices(document)
    priority = document.data.get("priority", "")
    if not _is_text(priority):
        _add_finding(document, "priority", "is not a name", "use one of fleet.priorities")
    job = _job(document, fleet, overrides)
    if job is not None and slices[0] < slices[1] and job.checkpoint.dir != "bucket":
        text = "goes with checkpoints that the job writes to the bucket: each worker's own part fits their number"
        _add_finding(
            document, "slices", text, "write job: {checkpoint: {dir: bucket}}, or one number of slices"
        )
    if document.findings or job is None:
        raise ConfigError(tuple(document.findings))
    return JobFile(str(name), parameters, job, collect, into, after, slices, priority)


def _job(document: Document, fleet: Path, overrides: Mapping[str, str]) -> JobSpec | None:
    """Validate the section `job` as a part of the fleet's file, so that all rules about jobs apply."""
    around = parse(content(fleet), shown(fleet))
    lay(around, overrides, os.environ)
    around.data.pop("fleet", None)
    if not isinstance(document.data.get("job"), Mapping):
        _add_finding(document, "job", "is missing", "write it as in tpuctl.yaml: job: {command: ...}")
        return None
    around.data["job"] = document.data["job"]
    around.name, around.marks, around.findings = document.name, document.marks, []
    spec, findings = validate(around, {})
    document.findings.extend(findings)
    if spec is None:
        return None
    job = spec.job
    refused = {
        "job.run_on": (job.run_on == "vm", "tasks run on nodes"),
        "job.secrets": (
            bool(job.secrets) and spec.tpu.scope != "cloud-platform",
            "nodes may not read them: write tpu: {scope: cloud-platform} in the fleet's file, and run fleet up",
        ),
        "job.checkpoint.dir": (
            job.checkpoint.dir.startswith("/"),
            "tasks share a machine; write local or bucket",
        ),
    }
    for key, (wrong, message) in refused.items():
        if wrong:
            _add_finding(document, key, "is not for tasks of a fleet", message)
    return job


def _slices(document: Document) -> tuple[int, int]:
    given = document.data.get("slices", 1)
    both = (given.get("min"), given.get("max")) if isinstance(given, Mapping) else (given, given)
    least, most = both
    if (
        not isinstance(least, int) or not isinstance(most, int) or isinstance(given, bool)
        or not 1 <= least <= most <= MAX_NODES or (isinstance(given, Mapping) and len(given) != 2)
    ):  # fmt: skip
        hint = f"write 1 to {MAX_NODES}, or {{min: 2, max: 4}} for a program that goes on with either"
        _add_finding(document, "slices", f"{given!r} is not a number of slices", hint)
        return 1, 1
    return least, most


def _parameters(document: Document, folder: Path) -> tuple[Mapping[str, str], ...]:
    array, matrix, rows = (document.data.get(key) for key in TASKS)
    given = [key for key in TASKS if document.data.get(key) is not None]
    if len(given) > 1:
        what = f"does not go with {given[1]}"
        _add_finding(
            document, given[0], what, f"write one of {', '.join(TASKS)}: it says which tasks there are"
        )
        return ()
    if rows is not None:
        return _listed(document, rows, folder)
    if matrix is not None:
        return _combined(document, matrix)
    count = 1 if array is None else array
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_TASKS:
        _add_finding(document, "array", f"{count!r} is not a number of tasks", f"write 1 to {MAX_TASKS}")
        return ()
    return tuple({} for _ in range(count))


def _combined(document: Document, matrix: Any) -> tuple[Mapping[str, str], ...]:
    """Return one task for each combination of values."""
    if not isinstance(matrix, Mapping) or not matrix:
        _add_finding(document, "matrix", "is not a mapping", "for example {lr: [0.1, 0.01], seed: 1..3}")
        return ()
    values = {}
    for key, given in matrix.items():
        if not _VARIABLE.fullmatch(str(key)):
            _add_finding(
                document, "matrix", f"{key!r} cannot name a parameter", "use letters, digits and '_'"
            )
        found = _RANGE.fullmatch(given) if isinstance(given, str) else None
        listed = range(int(found[1]), int(found[2]) + 1) if found else given
        if (
            not isinstance(listed, list | range)
            or not listed
            or any(isinstance(v, list | dict) for v in listed)
        ):
            _add_finding(document, "matrix", f"{key} is not a list of values", "write [A, B, ...] or 1..20")
        else:
            values[str(key)] = [_text(value) for value in listed]
    count = 1
    for found_values in values.values():
        count *= len(found_values)
    if count > MAX_TASKS:
        _add_finding(document, "matrix", f"makes {count:,} tasks", f"at most {MAX_TASKS:,} are possible")
        return ()
    return grid(values)


def _listed(document: Document, given: Any, folder: Path) -> tuple[Mapping[str, str], ...]:
    """Return one task for each row of a CSV file, whose first row has the names of the parameters."""
    if not isinstance(given, str) or not given.endswith(".csv"):
        _add_finding(
            document, "list", "names no CSV file", "for example list: sweep.csv, beside the job's file"
        )
        return ()
    found: list[dict[str, str]] = []

    def wrong(line: int, message: str, hint: str) -> None:
        document.findings.append(FileFinding(shown(folder / given), line, 1, ("list",), message, hint))

    # Spreadsheets save a byte order mark before the first name.
    text = content(folder / given).decode("utf-8-sig", "replace")
    rows, names = csv.reader(io.StringIO(text, newline=""), strict=True), list[str]()
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if not names:
                names = cells
                for message, hint in _bad_names(names):
                    wrong(rows.line_num, message, hint)
            elif len(row) != len(names):
                what = f"has {len(row)} values for {len(names)} parameters"
                wrong(rows.line_num, what, f"the first row has {', '.join(names)}")
            else:
                found.append(dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        wrong(rows.line_num, f"is no CSV: {error}", "close each quote on its line")
    if not document.findings and not 1 <= len(found) <= MAX_TASKS:
        wrong(1, f"has {len(found):,} tasks", f"a row of names, then 1 to {MAX_TASKS:,} rows of values")
    return tuple(found)


def _bad_names(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys(names):
        if not _VARIABLE.fullmatch(name):
            yield f"{name!r} cannot name a parameter", "use letters, digits and '_'"
        if names.count(name) > 1:
            yield f"{name} is there twice", "each column has its own parameter"


def _collected(document: Document) -> tuple[tuple[str, ...], str]:
    given = document.data.get("collect")
    if given is None:
        return (), ""
    if not isinstance(given, Mapping) or not set(given) <= {"files", "into"} or "files" not in given:
        _add_finding(
            document,
            "collect",
            "has other keys than files and into",
            "{files: [metrics.json], into: results.csv}",
        )
        return (), ""
    files, into = given["files"], given.get("into", "")
    if not isinstance(files, list) or not 1 <= len(files) <= MAX_COLLECTED or not all(
        isinstance(one, str) and _COLLECTED.fullmatch(one) for one in files
    ):  # fmt: skip
        _add_finding(
            document, "collect.files", "is not a list of files that can be collected",
            f"at most {MAX_COLLECTED} .json or .csv files of the source folder, such as [metrics.json]",
        )  # fmt: skip
        return (), ""
    if into and not (isinstance(into, str) and _INTO.fullmatch(into)):
        _add_finding(
            document, "collect.into", f"{into!r} is not a name of a table", "for example results.csv"
        )
    return tuple(files), str(into)


def _after(document: Document) -> Mapping[str, str]:
    given = document.data.get("after", [])
    found = dict.fromkeys(given, "ok") if isinstance(given, list) and all(map(_is_text, given)) else given
    if not isinstance(found, Mapping) or not all(map(_is_text, found)):
        _add_finding(document, "after", "names no jobs", "for example [prepare], or {prepare: any}")
        return {}
    if len(found) > MAX_BEFORE:
        _add_finding(document, "after", f"names {len(found)} jobs", f"name at most {MAX_BEFORE}")
    for job, how in found.items():
        if how not in ("ok", "any"):
            _add_finding(document, "after", f"{job}: {how!r} is not a way to end", "write ok or any")
        if job == document.data.get("name"):
            _add_finding(document, "after", f"{job} cannot wait for itself", "name another job")
    return {str(job): str(how) for job, how in found.items()}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _add_finding(document: Document, key: str, message: str, hint: str) -> None:
    path = at(key)
    mark = next(
        (document.marks[path[:n]] for n in range(len(path), 0, -1) if path[:n] in document.marks), None
    )
    line, col = mark.key if mark else (1, 1)
    document.findings.append(FileFinding(document.name, line, col, path, message, hint))
