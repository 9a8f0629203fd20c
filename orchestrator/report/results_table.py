"""Collect the results of a job's tasks in one table: parameters, state, and collected values."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.contract.bucket.limits import MAX_INT
from orchestrator.domain.text.clean_text import cut
from orchestrator.planning.fleet.fleet_cost import Amount, FleetCost, state_of, steps_redone
from orchestrator.planning.fleet.use import JobHistory

MAX_COLUMNS = 64
MAX_NAME, MAX_VALUE = 60, 200
OWN = ("state", "restarts", "steps_redone", "node_seconds", "usd", "step", "loss")
"""Our own columns; those of parameters come before them, collected ones after them."""

Value = str | int | float | bool | None


@dataclass(frozen=True)
class ResultsTable:
    """Rows by column, the task number first; *parameters* and *collected* are names of columns."""

    job: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Value], ...]
    parameters: tuple[str, ...]
    collected: tuple[str, ...]

    def csv(self) -> str:
        """Return the table as CSV for spreadsheets; unknown values are empty."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([_safe(one) for one in self.columns])
        for row in self.rows:
            writer.writerow([_safe(row.get(column)) for column in self.columns])
        return out.getvalue()


def results_table(
    job: JobHistory, costs: FleetCost, at_work: frozenset[tuple[str, int]],
    files: Mapping[int, Mapping[str, bytes]],
) -> ResultsTable:  # fmt: skip
    """Return the table of all tasks; *files* are what each has left, by task and name."""
    parameters = tuple(dict.fromkeys(key for one in job.submission.parameters for key in one))
    # A parameter may have the name of one of our columns; then ours is renamed.
    own = {name: name if name not in parameters else f"task_{name}" for name in OWN}
    number = "task" if "task" not in parameters else "task_number"
    taken = {number, *parameters, *own.values()}
    collected: dict[str, None] = {}
    rows: list[dict[str, Value]] = []
    for task, of_task in enumerate(job.submission.parameters):
        (step, loss), amount = job.progress(task), costs.tasks.get((job.submission.name, task), Amount())
        values: dict[str, Value] = {
            "state": state_of(job, task, at_work).value, "restarts": job.restarts(task),
            "steps_redone": steps_redone(job, task), "node_seconds": round(amount.seconds, 1),
            "usd": round(amount.usd, 6), "step": step, "loss": loss,
        }  # fmt: skip
        row: dict[str, Value] = {number: task, **of_task, **{own[k]: v for k, v in values.items()}}
        for file, data in files.get(task, {}).items():
            stem = file.rpartition("/")[2].rpartition(".")[0]
            for name, value in values_in(file, data).items():
                column = f"{stem}.{name}" if name in taken else name
                if column in collected or len(collected) < MAX_COLUMNS:
                    collected[column] = None
                    row[column] = value
        rows.append(row)
    columns = (number, *parameters, *own.values(), *collected)
    return ResultsTable(job.submission.name, columns, tuple(rows), parameters, tuple(collected))


def values_in(file: str, data: bytes) -> dict[str, Value]:
    """
    Return the values in a file from a task: those of a JSON object, or the last row of a CSV.

    A nested object gives `name.key`; lists and deeper objects are left out. An unreadable file gives nothing.
    """
    try:
        text = data.decode("utf-8-sig")
        found = _last_row(text) if file.endswith(".csv") else _flat(json.loads(text))
    except (ValueError, RecursionError, csv.Error):
        return {}
    return {cut(name, MAX_NAME): _value(value) for name, value in list(found.items())[:MAX_COLUMNS]}


def _flat(body: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in body.items() if isinstance(body, dict) else ():
        inner = value.items() if isinstance(value, dict) else ()
        found |= {f"{name}.{key}": one for key, one in inner if not isinstance(one, dict | list)}
        found |= {} if isinstance(value, dict | list) else {name: value}
    return found


def _last_row(text: str) -> dict[str, Any]:
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if any(row)]
    if len(rows) < 2:
        return {}
    return {name.strip(): _number(cell.strip()) for name, cell in zip(rows[0], rows[-1], strict=False)}


def _number(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _value(value: Any) -> Value:
    """Return a value that every JSON and CSV reader accepts; NaN and infinity become words."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INT else cut(str(value), MAX_VALUE)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return cut(str(value), MAX_VALUE)


def _safe(value: Value) -> str:
    """Return a cell in which a machine's text cannot run as a spreadsheet formula, by a leading quote."""
    if value is None:
        return ""
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@"} and isinstance(_number(value), str):
        return f"'{value}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def numbers(rows: Sequence[Mapping[str, Value]], column: str) -> list[float | None]:
    """Return a column as numbers, None for other values."""
    found: list[float | None] = []
    for row in rows:
        value = row.get(column)
        value = _number(value) if isinstance(value, str) else value
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        found.append(float(value) if good and value is not None else None)
    return found
