"""A job's results as a table: what machines leave is bounded, and runs in no spreadsheet."""

import csv
import io
import json

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.spec import JobSpec
from orchestrator.planning.fleet.fleet_cost import Amount, FleetCost
from orchestrator.planning.fleet.tasks import Submission, TaskState
from orchestrator.planning.fleet.use import JobHistory, TaskEnd, TaskStart
from orchestrator.report.results_table import MAX_COLUMNS, numbers, results_table, values_in


def a_table(parameters=({"lr": "0.1"}, {"lr": "0.2"}), files=None):
    """Return the table of a job whose first task is done."""
    submission = Submission("sweep", tuple(parameters), JobSpec("x"), "b", "s", 1.0)
    heartbeat = Heartbeat(1, 0, Phase.DONE, 5.0, step=9, loss=0.25)
    job = JobHistory(
        submission, {0: (TaskStart(0, 1, "n", 1.0, heartbeat),)}, {0: TaskEnd(TaskState.DONE, 5.0)}
    )
    costs = FleetCost({}, {("sweep", 0): Amount(60, 0.5)}, {})
    return results_table(job, costs, frozenset(), files or {})


def test_a_row_has_parameters_then_how_it_went_then_the_values_of_the_task():
    """What is not known is empty."""
    found = a_table(files={0: {"out/metrics.json": b'{"accuracy": 0.9, "eval": {"loss": 1.5}, "list": [1]}'}})
    assert found.columns == (
        "task", "lr", "state", "restarts", "steps_redone", "node_seconds", "usd", "step", "loss",
        "accuracy", "eval.loss",
    )  # fmt: skip
    first, second = csv.DictReader(io.StringIO(found.csv()))
    assert (first["lr"], first["state"], first["step"], first["accuracy"]) == ("0.1", "done", "9", "0.9")
    assert (second["state"], second["step"], second["accuracy"]) == ("waiting", "", "")


def test_names_that_are_taken_stay_apart():
    """A parameter may be called as a column of ours, and a file may have a loss of its own."""
    found = a_table([{"task": "x", "step": "3"}], {0: {"metrics.json": b'{"loss": 7, "step": 8}'}})
    (row,) = found.rows
    assert (row["task"], row["step"], row["task_number"], row["task_step"]) == ("x", "3", 0, 9)
    assert (row["loss"], row["metrics.loss"], row["metrics.step"]) == (0.25, 7, 8)


@pytest.mark.parametrize(
    ("file", "data", "values"),
    [
        ("a.csv", b"step,loss,name\n1,0.5,x\n2,0.25,y\n\n", {"step": 2, "loss": 0.25, "name": "y"}),
        ("a.csv", b"step,loss\n", {}),
        ("a.json", b"[1, 2]", {}),
        ("a.json", b"{", {}),
        ("a.json", b"\xff\xfe", {}),
        ("a.json", b"[" * 60_000, {}),
        ("a.json", b'{"a": NaN, "b": -Infinity, "c": null, "d": true}',
         {"a": "nan", "b": "-inf", "c": None, "d": True}),
        ("a.json", b'{"a\\u001b[2J": "x\\u001b[2J\\ny"}', {"a\\x1b[2J": "x\\x1b[2J y"}),
        ("a.json", b'{"n": 12345678901234567890123}', {"n": "12345678901234567890123"}),
    ],
)  # fmt: skip
def test_what_cannot_be_used_gives_nothing_and_steers_nothing(file, data, values):
    """Numbers that are none come as words, so that all of it is JSON."""
    found = values_in(file, data)
    assert found == values
    json.dumps(found, allow_nan=False)


def test_a_file_cannot_make_columns_without_end():
    """Nor names or values."""
    wide = json.dumps({f"k{n}": "v" * 5000 for n in range(1000)}).encode()
    assert len(values_in("a.json", wide)) == MAX_COLUMNS
    files = {n: {"a.json": json.dumps({f"{n}-{k}": 1 for k in range(50)}).encode()} for n in range(2)}
    assert len(a_table(files=files).collected) == MAX_COLUMNS
    assert all(len(str(value)) < 300 for value in values_in("a.json", wide).values())


def test_a_spreadsheet_runs_nothing_of_it():
    """Text that begins as a formula does is text; a negative number is a number."""
    found = a_table(files={0: {"a.json": b'{"f": "=HYPERLINK(1)", "m": "-x", "n": -1.5}'}})
    row = next(csv.DictReader(io.StringIO(found.csv())))
    assert (row["f"], row["m"], row["n"]) == ("'=HYPERLINK(1)", "'-x", "-1.5")


def test_numbers_of_a_column_are_those_that_can_be_drawn():
    """Parameters are text."""
    rows = [{"a": "1e-3"}, {"a": 2}, {"a": True}, {"a": "nan"}, {"a": "x"}, {}]
    assert numbers(rows, "a") == [0.001, 2.0, None, None, None, None]
