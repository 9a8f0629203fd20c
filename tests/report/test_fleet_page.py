"""The page of a fleet: what is known of nodes, queue, jobs, results and money, and what is not known is said so."""

import re
from dataclasses import replace

import pytest

from orchestrator.planning.fleet.fleet_cost import Amount, FleetCost, FleetUsage
from orchestrator.report.fleet_page import fleet_page
from orchestrator.report.results_table import ResultsTable
from tests.report.fleet_kit import Afternoon


@pytest.fixture(scope="module")
def afternoon():
    """Play a few nodes."""
    return Afternoon(nodes=40, hours=3.0)


def words(page):
    """Return the text of a page, without tags and with single blanks."""
    text = re.sub(r"<style>.*?</style>|<title>.*?</title>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(text.split())


def test_the_fleet_page_shows_nodes_jobs_results_and_money(afternoon):
    """Each job with its colour, each node with a row, all money with its share."""
    usage = afternoon.usage()
    page = fleet_page(usage, afternoon.tables(usage))
    said = words(page)
    assert page.count('class="track" x="0" y=') == 40
    assert all(one in said for one in ("lr-sweep", "tokenize", "(idle)", "(VM)", "eval_loss by lr"))
    shares = [float(one) for one in re.findall(r'data-label="share" class="n">([\d.]+)%', page)]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))
    assert {"job0", "job1", "idle", "starting", "lost"} <= set(re.findall(r'<rect class="(\w+)"', page))


def test_two_runs_of_the_same_facts_give_the_same_page(afternoon):
    """Nothing of it comes from the moment."""
    usage = afternoon.usage()
    assert fleet_page(usage, ()) == fleet_page(usage, ())


def test_an_empty_fleet_has_a_page():
    """Nothing was asked for yet."""
    none = FleetUsage("grant", 5.0, (), (), FleetCost({}, {}, {}), frozenset(), {}, None, unbilled=True)
    said = words(fleet_page(none, ()))
    assert "No node has been requested yet." in said
    assert "No job was submitted yet." in said


def test_what_is_missing_is_said_and_no_sum_hides_it(afternoon):
    """A record that could not be read, a price and an end that nobody knows."""
    usage = replace(afternoon.usage(), unread=("grant-007",), eta={})
    said = words(fleet_page(usage, ()))
    assert "grant-007" in said
    assert "at least $" in said
    assert "saved" not in said
    assert "not known" in said


def test_no_text_of_others_is_taken_for_a_part_of_the_page(afternoon):
    """Names of columns and values come from files that tasks have left."""
    evil = "<script>alert(1)</script>"
    table = ResultsTable(
        "lr-sweep", ("task", "lr", "state", evil),
        ({"task": 0, "lr": "1", "state": "done", evil: 1.0}, {"task": 1, "lr": evil, "state": evil, evil: 2.0}),
        ("lr",), (evil,),
    )  # fmt: skip
    page = fleet_page(afternoon.usage(), [table])
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_results_are_drawn_over_numbers_and_words_and_the_best_is_named():
    """A range of some decades is drawn by its logarithm; a parameter with one value is not drawn."""
    rows = tuple(
        {"task": n, "lr": lr, "kind": kind, "same": "1", "loss": loss}
        for n, (lr, kind, loss) in enumerate([("1e-5", "a", 3.0), ("1e-3", "b", 1.5), ("1e-1", "a", None)])
    )
    table = ResultsTable("s", ("task", "lr", "kind", "same", "loss"), rows, ("lr", "kind", "same"), ())
    none = FleetUsage(
        "grant", 5.0, (), (), FleetCost({}, {}, {"VM": Amount()}), frozenset(), {}, None, unbilled=True
    )
    page = fleet_page(none, [table])
    assert "loss by lr (logarithmic)" in page
    assert "loss by kind" in page
    assert "loss by same" not in page
    assert "lowest: task 1: lr=1e-3, loss 1.5" in page
    # One task that has run away does not press all others onto the axis.
    away = replace(table, rows=(*rows, {**rows[0], "task": 3, "loss": 3000.0}))
    assert "loss (logarithmic) by lr" in fleet_page(none, [away])
