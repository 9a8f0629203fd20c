"""A plan on paper: no blanks at the ends of its lines, and the prices of the TPU that it is about."""

import pytest
from rich.table import Table

from orchestrator.cli.console import page
from tests.scenarios.desk import Desk
from tests.scenarios.town import Town

ZONES = ["europe-west4-b", "europe-west4-a"]


@pytest.fixture
def desk(tmp_path):
    """Give a computer whose deployment may use two zones."""
    with Town(tmp_path).open() as town:
        yield Desk(town, vm={}, tpu__zones=ZONES)


def test_no_line_ends_with_a_blank(desk):
    """What commands print can be copied and compared as it is."""
    desk.up()
    for words in (["plan"], ["plan", "--offline", "--show", "scripts"], ["explain"], ["cost"], ["doctor"]):
        lines = desk.run(*words).out.splitlines()
        assert len(lines) > 5
        assert [line for line in lines if line.endswith(" ")] == [], words


def test_colours_stay_when_blanks_go(monkeypatch, capsys):
    """The blanks of a table inside a colour go too, and the colour still ends where it did."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with page() as console:
        table = Table.grid(padding=(0, 2))
        table.add_row("a", "b", style="bold")
        table.add_row("long", "longer still", style="bold")
        console.print(table)
    first, second = capsys.readouterr().out.splitlines()
    assert " " not in first.split("b")[-1]
    assert first.endswith("\x1b[0m")
    assert second.endswith("longer still\x1b[0m")


def test_prices_are_those_of_the_zone_that_the_tpu_is_in(desk):
    """A TPU that could be had in the second zone only is priced there, also when nothing would change."""
    desk.town.change(stockouts=frozenset({"europe-west4-b/spot"}))
    desk.up()
    document = desk.run("plan", "--json").document
    assert (document["changes"], document["price"]["zone"]) == ([], "europe-west4-a")
    assert "USD per hour in europe-west4-a" in desk.run("plan").out
    assert desk.run("plan", "--offline", "--json").document["price"]["zone"] == "europe-west4-b"
