"""A plan on paper: no blanks at the ends of its lines, and the prices of the TPU that it is about."""

import pytest
from rich.table import Table

from orchestrator.cli.console import page
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User

ZONES = ["europe-west4-b", "europe-west4-a"]


@pytest.fixture
def user(tmp_path):
    """Give a computer whose deployment may use two zones."""
    with VirtualCloud(tmp_path).open() as cloud:
        yield User(cloud, vm={}, tpu__zones=ZONES)


def test_no_line_ends_with_a_blank(user):
    """What commands print can be copied and compared as it is."""
    user.up()
    for words in (["plan"], ["plan", "--offline", "--show", "scripts"], ["explain"], ["cost"], ["doctor"]):
        lines = user.run(*words).out.splitlines()
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


def test_prices_are_those_of_the_zone_that_the_tpu_is_in(user):
    """A TPU that could be had in the second zone only is priced there, also when nothing would change."""
    user.cloud.change(stockouts=frozenset({"europe-west4-b/spot"}))
    user.up()
    document = user.run("plan", "--json").document
    assert (document["changes"], document["price"]["zone"]) == ([], "europe-west4-a")
    assert "USD per hour in europe-west4-a" in user.run("plan").out
    assert user.run("plan", "--offline", "--json").document["price"]["zone"] == "europe-west4-b"


def test_the_plan_knows_the_format_of_what_was_saved(user):
    """`status` shows it since the first save, and `plan` of the same deployment said that it is not known."""
    assert "in any usual format, recognised at the first save" in user.run("plan").out
    user.up()
    user.watch(600)
    user.cloud.machines.say("demo", format="files")
    assert "saves    plain files, as those in the bucket are" in user.run("plan").out
    assert "(format: plain files)" in user.run("status").out
