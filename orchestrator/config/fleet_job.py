"""The file of a job for a fleet: its name, its tasks, and the same section `job` that a deployment file has."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.complaints import Complaint, ConfigError
from orchestrator.config.document import Document, parse
from orchestrator.config.layers import lay
from orchestrator.config.load import content, shown
from orchestrator.config.rules.place import NAME_PATTERN
from orchestrator.config.validate import validate
from orchestrator.domain.spec import JobSpec
from orchestrator.planning.fleet import MOST_TASKS, grid

KEYS = ("name", "array", "matrix", "job")
LONGEST_NAME = 40
_RANGE = re.compile(r"(\d{1,6})\.\.(\d{1,6})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class JobFile:
    """Hold a job as its file describes it; *parameters* has the variables of each task."""

    name: str
    parameters: tuple[Mapping[str, str], ...]
    job: JobSpec


def read_job(path: Path, fleet: Path, overrides: Mapping[str, str]) -> JobFile:
    """Return the job in *path* for the fleet of another file. Raise ConfigError with every complaint."""
    document = parse(content(path), shown(path))
    for key in document.data:
        if key not in KEYS:
            _complain(document, key, "is not a key of a job's file", f"its keys are {', '.join(KEYS)}")
    name = document.data.get("name")
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name) or len(name) > LONGEST_NAME:
        text = "is missing" if name is None else f"{name!r} cannot name a job"
        _complain(document, "name", text, f"use at most {LONGEST_NAME} lower-case letters, digits and '-'")
    parameters = _parameters(document)
    job = _job(document, fleet, overrides)
    if document.complaints or job is None:
        raise ConfigError(tuple(document.complaints))
    return JobFile(str(name), parameters, job)


def _job(document: Document, fleet: Path, overrides: Mapping[str, str]) -> JobSpec | None:
    """Judge the section `job` as if it stood in the fleet's file, so that each rule about jobs holds."""
    around = parse(content(fleet), shown(fleet))
    lay(around, overrides, os.environ)
    around.data.pop("fleet", None)
    if not isinstance(document.data.get("job"), Mapping):
        _complain(document, "job", "is missing", "write it as in tpuctl.yaml: job: {command: ...}")
        return None
    around.data["job"] = document.data["job"]
    around.name, around.marks, around.complaints = document.name, document.marks, []
    spec, complaints = validate(around, {})
    document.complaints.extend(complaints)
    if spec is None:
        return None
    job = spec.job
    refused = {
        "job.run_on": (job.run_on == "vm", "tasks run on nodes"),
        "job.secrets": (bool(job.secrets), "nodes are made without access to Secret Manager"),
        "job.checkpoint.dir": (
            job.checkpoint.dir.startswith("/"),
            "tasks share a machine; write local or bucket",
        ),
        "job.data": (
            any(not one.startswith("gs://") for one in job.data.values()),
            "files of this computer are not sent with a task; write gs://BUCKET/FOLDER",
        ),
    }
    for key, (wrong, why) in refused.items():
        if wrong:
            _complain(document, key, "is not for tasks of a fleet", why)
    return job


def _parameters(document: Document) -> tuple[Mapping[str, str], ...]:
    array, matrix = document.data.get("array"), document.data.get("matrix")
    if array is not None and matrix is not None:
        _complain(document, "array", "does not go with matrix", "a matrix has a task for each combination")
        return ()
    if matrix is None:
        count = 1 if array is None else array
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_TASKS:
            _complain(document, "array", f"{count!r} is no number of tasks", f"write 1 to {MOST_TASKS}")
            return ()
        return tuple({} for _ in range(count))
    if not isinstance(matrix, Mapping) or not matrix:
        _complain(document, "matrix", "is no mapping", "for example {lr: [0.1, 0.01], seed: 1..3}")
        return ()
    values = {}
    for key, given in matrix.items():
        if not _VARIABLE.fullmatch(str(key)):
            _complain(document, "matrix", f"{key!r} cannot name a variable", "use letters, digits and '_'")
        found = _RANGE.fullmatch(given) if isinstance(given, str) else None
        listed = range(int(found[1]), int(found[2]) + 1) if found else given
        if (
            not isinstance(listed, list | range)
            or not listed
            or any(isinstance(v, list | dict) for v in listed)
        ):
            _complain(document, "matrix", f"{key} is no list of values", "write [A, B, ...] or 1..20")
        else:
            values[str(key)] = [_text(value) for value in listed]
    count = 1
    for found_values in values.values():
        count *= len(found_values)
    if count > MOST_TASKS:
        _complain(document, "matrix", f"makes {count:,} tasks", f"at most {MOST_TASKS:,} are possible")
        return ()
    return grid(values)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _complain(document: Document, key: str, message: str, hint: str) -> None:
    path = tuple(key.split("."))
    mark = next(
        (document.marks[path[:n]] for n in range(len(path), 0, -1) if path[:n] in document.marks), None
    )
    line, col = mark.key if mark else (1, 1)
    document.complaints.append(Complaint(document.name, line, col, key, message, hint))
