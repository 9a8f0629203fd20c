"""
How a plan looks: golden texts at 80 columns, and the JSON.

Set TPUCTL_UPDATE_GOLDEN=1 to write the golden files again; then read the difference.
"""

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.advice.preview import preview
from orchestrator.app.plan import Planned
from orchestrator.app.source.sent_files import Sent
from orchestrator.cli.views.plan import count, render, show
from orchestrator.config.load import read
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.plan import Change, Kind, Outcome, Plan, Verb
from orchestrator.domain.wait import Wait

GOLDEN = Path(__file__).parent.parent / "golden"
FILE = """\
name: roberta-ja
project: my-project
tpu: {type: v5litepod-16, zones: [europe-west4-b, europe-west4-a]}
job: {command: python3 train.py}
watch: {budget_usd: 40}
"""
FRESH = Plan(
    (
        Change(Kind.BUCKET, Verb.CREATE, "", "there is none yet", "europe-west4"),
        Change(Kind.BUNDLE, Verb.CREATE, "0123456789ab", "the bucket does not have it yet"),
        Change(Kind.VM, Verb.CREATE, "roberta-ja-vm", "there is none yet", "europe-west4-b"),
        Change(Kind.NODE, Verb.CREATE, "roberta-ja-tpu-g1", "there is none yet", "europe-west4-b", 1),
    )
)
MIXED = Plan(
    (
        Change(Kind.NODE, Verb.DELETE, "roberta-ja-tpu-g1", "it was preempted", "europe-west4-b", 1),
        Change(Kind.VM, Verb.START, "roberta-ja-vm", "it is TERMINATED", "europe-west4-b"),
        Change(Kind.JOB, Verb.UPDATE, "job", "the code has changed"),
        Change(Kind.JOB, Verb.STOP, "job", "the job is done"),
    ),
    waits=(Wait("the bucket [europe-west4] is being read"),),
)
UNKNOWN = """\
name: roberta-ja
tpu: {type: v6e-8, zones: [us-central2-b]}
vm: {machine_type: e9-x}
job: {command: python3 train.py}
watch: {ttl: 1d}
"""
ELSEWHERE = Plan(
    (Change(Kind.NODE, Verb.CREATE, "roberta-ja-tpu-g1", "there is none yet", "us-central2-b", 1),)
)
REGIONS = """\
name: roberta-ja
tpu: {type: v5litepod-16, zones: [europe-west4-b, us-west4-a], across_regions: true}
job: {command: python3 train.py}
"""
CASES = {
    "plan-regions": (REGIONS, FRESH, {}),
    "plan-fresh": (FILE, FRESH, {}),
    "plan-mixed": (FILE, MIXED, {}),
    "plan-empty": (FILE, Plan(outcome=Outcome.DONE, message="all workers report that the job is done"), {}),
    "plan-unknown-prices": (UNKNOWN, ELSEWHERE, {}),
    "plan-scripts": (
        FILE,
        Plan(),
        {"startup.sh": "#!/bin/bash\n[ -d /x ] && echo '[bold]'  # " + "long " * 20},
    ),
}


def build(name):
    """Return the preview of a case."""
    text, plan, scripts = CASES[name]
    spec = read(text.encode(), "tpuctl.yaml", environ={})
    return preview(spec, plan, load_catalog(), scripts=scripts)


def planned(name):
    """Return the preview of a case with nothing that is sent."""
    return Planned(build(name), Sent((), (), ()), from_cloud=False)


def shown(name, **console):
    """Return the text of a case at 80 columns."""
    out = io.StringIO()
    render(build(name), Console(file=out, width=80, highlight=False, **console), scripts=True)
    return out.getvalue()


def matches_golden(name, text):
    """Compare with the golden file, or write it when asked to."""
    path = GOLDEN / name
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_the_golden_one(name):
    """People read exactly this."""
    text = "".join(f"{line.rstrip()}\n" for line in shown(name).splitlines())
    assert matches_golden(f"{name}.txt", text)


@pytest.mark.parametrize("name", [name for name in CASES if name != "plan-scripts"])
def test_no_line_is_wider_than_a_terminal(name):
    """Eighty columns are enough; scripts alone keep their own lines."""
    assert max(len(line.rstrip()) for line in shown(name).splitlines()) <= 80


def test_without_a_terminal_there_is_no_colour():
    """A log file gets plain text."""
    assert "\x1b" not in shown("plan-mixed")


def test_on_a_terminal_signs_have_colour_and_words_all_the_same():
    """Colour is never the only difference."""
    text = shown("plan-mixed", force_terminal=True, color_system="standard", no_color=False, _environ={})
    assert "\x1b[31mdelete" in text
    assert "\x1b[36mstart" in text


def test_programs_get_the_golden_json(capsys):
    """One document with schema_version, nothing else on stdout."""
    show(planned("plan-fresh"), as_json=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out)["schema_version"] == 1
    assert matches_golden("plan-fresh.json", json.dumps(json.loads(out), indent=2) + "\n")


def test_scripts_are_shown_on_demand_only(capsys):
    """They are long."""
    show(planned("plan-scripts"), as_json=False)
    assert "startup.sh" not in capsys.readouterr().out
    show(planned("plan-scripts"), as_json=False, scripts=True)
    assert "[ -d /x ] && echo '[bold]'  # long" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan(), "No changes: everything is as the file wants it"),
        (Plan(waits=(Wait("the node is CREATING"),)), "No changes: the node is CREATING"),
        (Plan(MIXED.changes[:1]), "1 change: 1 to delete"),
        (FRESH, "4 changes: 4 to create"),
    ],
)
def test_the_count_says_why_when_there_is_nothing_to_do(plan, text):
    """An empty plan has a reason too."""
    assert count(plan) == text


@pytest.mark.parametrize("unbilled", [True, False])
def test_the_price_of_a_plan_is_not_billed_on_the_local_cloud(unbilled):
    """`up` says so beside the same price."""
    out = io.StringIO()
    render(build(next(iter(CASES))), Console(file=out, width=80, highlight=False), unbilled=unbilled)
    assert ("USD an hour (nothing is billed on the local cloud)" in out.getvalue()) == unbilled


def test_the_plan_of_a_job_that_is_done_has_no_gap(capsys):
    """Without prices and notes, two blank lines stood where they would have been."""
    quiet = replace(planned("plan-empty"), preview=replace(build("plan-empty"), notes=()))
    show(quiet, as_json=False)
    assert "\n\n\n" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (
            "{format: marker, marker: DONE}",
            "folders, each complete once it has a file DONE (the job writes it last)",
        ),
        ("{format: files}", "plain files"),
        ("{format: orbax}", "in the format orbax"),
    ],
    ids=["marker", "files", "orbax"],
)
def test_what_a_save_is_needs_no_explanation(layout, words):
    """`format marker` alone said nothing to a newcomer."""
    text = FILE.replace("train.py}", f"train.py, checkpoint: {layout}}}")
    out = io.StringIO()
    found = preview(read(text.encode(), "tpuctl.yaml", environ={}), Plan(), load_catalog())
    render(found, Console(file=out, width=80, highlight=False))
    assert f" saves {words}" in " ".join(out.getvalue().split())


def test_a_format_that_the_saves_have_shown_is_named(capsys):
    """Before the first save it is any; `files` alone says nothing."""
    known = replace(planned("plan-fresh"), preview=replace(build("plan-fresh"), formats=("files",)))
    show(known, as_json=False)
    assert "saves    plain files, as those in the bucket are" in capsys.readouterr().out
