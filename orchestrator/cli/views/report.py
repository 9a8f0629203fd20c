"""Say where the report is, or the dashboard."""

from pathlib import Path

from orchestrator.cli.console import bug_report_of, print_json, say, talk
from orchestrator.contract.secrets.redaction import masked
from orchestrator.report.page import PageFacts


def show(path: Path, facts: PageFacts, *, as_json: bool) -> None:
    """Print the file's path, with --json also the summary."""
    if as_json:
        body = {"name": facts.status.name, "file": str(path), "events_count": len(facts.events)}
        print_json("report", {**body, "summary": facts.summary.as_dict()})
    else:
        say(f"{path}: open it in a browser; it needs no network", style="green")


def show_address(url: str, port: int, *, as_json: bool) -> None:
    """Print the address of the dashboard."""
    if as_json:
        print_json("dashboard", {"url": url, "port": port})
        return
    say(url)
    talk("  Ctrl-C ends it; the address is good for this run only")


class Bugs:
    """Reports each bug once, because the page reloads every few seconds and fails in the same way."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, error: Exception) -> None:
        """Report the bug in one line, with the file of its traceback."""
        what = masked(f"{type(error).__name__}: {error}")
        if what != self._said:
            say(f"the page could not be made, this is a bug in tpuctl: {what} (see {bug_report_of(error)})")
        self._said = what
