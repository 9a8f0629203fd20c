"""Show an explanation as text of at most 80 columns."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.advice.explain.explanation import Evidence, ExplainedItem, Explanation
from orchestrator.cli.console import page, print_json
from orchestrator.domain.text.amounts import span_text
from orchestrator.domain.text.phase_words import phase_words

WIDTH = 80
NO_STEP = {"", "nothing"}
"""What programs read as the next step where there is none."""
_SOURCES = {
    "cloud": "from the cloud's lists", "record": "recorded by tpuctl", "journal": "requested by this computer",
    "heartbeat": "from the machine's report", "lease": "its last sign of life",
}  # fmt: skip


def show(found: Explanation, *, as_json: bool) -> None:
    """Print the explanation to stdout."""
    if as_json:
        print_json("explain", found.as_dict())
        return
    with page() as console:
        render(found, console)


def render(found: Explanation, console: Console) -> None:
    """Print the explanation on *console*: items that need attention with all evidence, others as what was seen."""
    width = min(WIDTH, console.width)
    console.print(f"{found.name}: {found.headline}", style="bold", markup=False, width=width)
    settled = False
    for item in found.items:
        style = "green" if item.ok else "yellow"
        # Items with nothing to say stand together, so that the others are found on one screen.
        before, settled = settled, _is_settled(item)
        if not (before and settled):
            console.print()
        # Programs read the phases themselves.
        state = ", ".join(map(phase_words, item.state.split(", "))) if item.what == "job" else item.state
        console.print(f"{item.title}: {state}", style=style, markup=False, width=width)
        known = found.says_first_message and item is found.items[0]
        _rows(item, found, console, width, message_known=known)


def _is_settled(item: ExplainedItem) -> bool:
    """Return whether an item is as it should be and nothing comes next: what was seen says it all."""
    return item.ok and bool(item.evidence) and item.next in NO_STEP and not item.hint


def _rows(
    item: ExplainedItem, found: Explanation, console: Console, width: int, *, message_known: bool
) -> None:
    rows = [] if message_known or _is_settled(item) else [("why", item.message)]
    rows += [] if item.ok else [("rule", found.rules[item.rule])]
    evidence = item.evidence[:1] if item.ok else item.evidence
    rows += [("seen", _evidence(one, found.observed_at)) for one in evidence]
    when = _when(item, found.observed_at)
    # "next nothing" would say nothing: what a person can do is in the next row.
    rows += [("next", f"{item.next}{f' ({when})' if when else ''}")] if item.next not in NO_STEP else []
    rows += [("do", item.hint)] if item.hint else []
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=6)
    table.add_column(overflow="fold")
    last = ""
    for label, text in rows:
        table.add_row("" if label == last else f"  {label}", Text(text))
        last = label
    console.print(table, width=width)


def _evidence(one: Evidence, now: float) -> str:
    age = "" if one.at is None else f", {_ago(now - one.at)}"
    return f"{one.message} ({_SOURCES.get(one.source, one.source)}{age})"


def _ago(seconds: float) -> str:
    return "now" if seconds < 1 else f"{span_text(seconds)} ago"


def _when(item: ExplainedItem, now: float) -> str:
    """Return when the next step comes; "not" if it needs a pass and no watcher runs."""
    if item.when is not None:
        wait = item.when - now
        return "now" if wait < 1 else f"in {span_text(wait)}"
    return "as soon as a watcher runs" if item.needs_watcher and item.next not in NO_STEP else ""
