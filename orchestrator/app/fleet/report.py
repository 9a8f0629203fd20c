"""Make the table of a job's results, and a fleet's report page."""

from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.fleet.queue import submitted_job
from orchestrator.app.fleet.sessions import Fleet
from orchestrator.app.fleet.usage import UsageReader
from orchestrator.engine.fleet.history import read_collected
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.planning.fleet.fleet_cost import FleetUsage
from orchestrator.report.fleet_page import fleet_page
from orchestrator.report.results_table import ResultsTable, results_table

MAX_TABLES = 10
"""Jobs whose results the report shows, the newest ones."""


def results(choice: Choice, name: str, reporter: Reporter) -> ResultsTable:
    """Return the table of one job's results."""
    return _results(choice, name, reporter)[0]


def write_results(
    choice: Choice, name: str, output: Path | None, reporter: Reporter
) -> tuple[ResultsTable, Path | None]:
    """
    Write the table of one job's results as CSV to *output*; return it and the path.

    Without *output* it goes to the file that the job's settings name; if they name none, nothing is written
    and the path is None.
    """
    found, into = _results(choice, name, reporter)
    path = output or (Path(into) if into else None)
    if path is not None:
        write_private(path, found.csv().encode())
    return found, path


def _results(choice: Choice, name: str, reporter: Reporter) -> tuple[ResultsTable, str]:
    """Return the table of one job's results, and the file for it in the job's settings ("" if none)."""
    reader = UsageReader(choice, reporter)
    submission = submitted_job(reader.fleet.head.store, name)
    found = reader.observe()
    return table_of(reader.fleet, found, name), submission.into


def table_of(fleet: Fleet, found: FleetUsage, name: str) -> ResultsTable:
    """Return the table of one job: parameters, state, cost, and the values from its tasks' result files."""
    job = found.job(name)
    return results_table(job, found.cost, found.at_work, read_collected(fleet.head.store, job.submission))


def write_fleet_report(choice: Choice, output: Path | None, reporter: Reporter) -> tuple[Path, FleetUsage]:
    """Write the page to *output*, by default NAME-report.html; return its path and the usage."""
    reader = UsageReader(choice, reporter)
    found = reader.observe()
    shown = [job for job in found.jobs if any(job.submission.parameters) or job.submission.collect]
    tables = [table_of(reader.fleet, found, job.submission.name) for job in shown[-MAX_TABLES:]]
    path = output or Path(f"{found.name}-report.html")
    # Atomically, since a browser may reload the page at any moment.
    write_private(path, fleet_page(found, tables).encode())
    return path, found
