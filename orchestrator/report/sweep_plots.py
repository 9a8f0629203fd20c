"""Prepare the results of a sweep for the page: the result by each parameter, the best tasks, and the table."""

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from orchestrator.report import charts
from orchestrator.report.results_table import ResultsTable, Value, numbers

MAX_ROWS, MAX_PLOTS, MAX_DOTS, BEST = 200, 6, 1000, 8
WIDE_RANGE = 50.0
"""Ratio of a parameter's largest to smallest value from which on its axis is logarithmic."""
MAX_WORDS = 12
"""Most values of a non-numeric parameter that are plotted."""


def sweep(table: ResultsTable) -> dict[str, Any]:
    """Return the data of one job's section: a plot for each parameter, its best tasks, and all of them."""
    result = _result(table)
    plots = [] if result is None else [
        plot for one in table.parameters if (plot := _plot(table, one, result)) is not None
    ]  # fmt: skip
    columns = [name for name in table.columns if name != "node_seconds"]
    order = numbers(table.rows, result) if result else []
    best = sorted((value, n) for n, value in enumerate(order) if value is not None)[:BEST]

    def shown(row: Mapping[str, Value]) -> list[str]:
        return [_cell(row.get(one)) for one in columns]

    return {
        "name": table.job, "plots": plots[:MAX_PLOTS], "result": result,
        "columns": [{"name": one, "number": _numeric(table, one)} for one in columns],
        "best": [shown(table.rows[n]) for _, n in best] if len(table.rows) > BEST else [],
        "rows": [shown(row) for row in table.rows[:MAX_ROWS]], "tasks": len(table.rows),
        "omitted": max(0, len(table.rows) - MAX_ROWS),
    }  # fmt: skip


def _result(table: ResultsTable) -> str | None:
    """Return the column to plot: a loss from the task, else its first number, else one of ours."""
    drawn = [
        one
        for one in (*table.collected, "loss", "task_loss")
        if one in table.columns and _numeric(table, one)
    ]
    losses = [one for one in drawn if "loss" in one.lower() or "error" in one.lower()]
    return next(iter((*losses, *drawn)), None)


def _numeric(table: ResultsTable, column: str) -> bool:
    """Return whether a column contains only numbers and unknown values."""
    found = numbers(table.rows, column)
    given = [row.get(column) for row in table.rows]
    return any(one is not None for one in found) and all(
        number is not None or value is None or value in {"nan", "inf", "-inf"}
        for number, value in zip(found, given, strict=True)
    )


def _cell(value: Value) -> str:
    if value is None:
        return "-"
    return (
        f"{value:.5g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _plot(table: ResultsTable, parameter: str, result: str) -> dict[str, Any] | None:
    """Return the plot of the result by one parameter; None if the parameter has fewer than two values."""
    heights = numbers(table.rows, result)
    given = [str(row.get(parameter, "")) for row in table.rows]
    words = list(dict.fromkeys(given))
    if len(words) < 2 or all(one is None for one in heights):
        return None
    amounts, numeric = numbers(table.rows, parameter), _numeric(table, parameter)
    logarithmic = False
    if numeric:
        known = [one for one in amounts if one is not None]
        logarithmic = _is_wide(known)
        values = [None if one is None else log10(one) if logarithmic else one for one in amounts]
    else:
        if len(words) > MAX_WORDS:
            return None
        values = [float(words.index(one)) for one in given]
    inside = [one for one in values if one is not None]
    room = (max(inside) - min(inside)) * 0.06
    across = charts.axis(min(inside) - room, max(inside) + room, outwards=False)
    reached = [one for one in heights if one is not None]
    steep = _is_wide(reached)
    tall = [None if one is None else log10(one) if steep else one for one in heights]
    upwards = charts.axis(*_ends([one for one in tall if one is not None]))
    dots: list[dict[str, Any]] = [
        {"x": across.position(x), "y": round(100 - upwards.position(high), 3), "value": y,
         "text": f"task {number}: {parameter}={word}, {result} {y:.5g}"}
        for number, (x, y, high, word) in enumerate(zip(values, heights, tall, given, strict=True))
        if x is not None and y is not None and high is not None
    ]  # fmt: skip
    if not dots:
        return None
    return {
        "title": result, "parameter": parameter, "logarithmic": logarithmic, "high": charts.HIGH,
        "steep": steep,
        "ys": [
            charts.Tick(100 - upwards.position(v), f"{10**v:.3g}" if steep else upwards.text(v))
            for v in upwards.values
        ],
        "xs": _marks(values, given, across), "dots": dots[:MAX_DOTS],
        "best": min(dots, key=lambda one: float(one["value"])),
    }  # fmt: skip


def _is_wide(values: Sequence[float]) -> bool:
    """Return whether a logarithmic axis separates more of the values."""
    return min(values) > 0 and max(values) / min(values) >= WIDE_RANGE


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _marks(values: Sequence[float | None], words: Sequence[str], across: charts.Axis) -> list[charts.Tick]:
    """Return the marks of an axis: values of tasks, as written, as many as fit."""
    found = sorted(
        {(across.position(at), word) for at, word in zip(values, words, strict=True) if at is not None}
    )
    chosen: list[tuple[float, str]] = []
    for at, word in found:
        if not chosen or at - chosen[-1][0] >= 3.2 * max(4, min(len(word), 12)):
            chosen.append((at, word))
    return [
        charts.Tick(at, word[:12], "start" if at < 4 else "end" if at > 96 else "middle")
        for at, word in chosen
    ]
