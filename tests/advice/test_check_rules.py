"""The rules of `tpuctl check`: each speaks where it should, and is silent on what only looks like it."""

import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.advice.check.rules import RULES, run_rules
from orchestrator.app.source.local_data import size_of
from orchestrator.app.source.source_facts import gather
from orchestrator.config.load import load
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.level import Level
from tests.advice.check_cases import SAVES, SECRET
from tests.advice.check_cases_of_lists import LISTS
from tests.advice.check_cases_with_finding import SPEAK
from tests.advice.check_cases_without_finding import SILENT
from tests.planning.planning_kit import a_spec

ELSEWHERE = SAVES.replace("train.py", "/opt/train.py")
"""Starts a program that is not in the source folder, and need not be."""
EXAMPLES = Path(__file__).parents[2] / "examples"


def find(folder, files, spec):
    """Write the files (a number: a sparse file of that size) and return what the rules find."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, int):
            with (folder / name).open("wb") as file:
                file.truncate(text)
        else:
            (folder / name).write_text(text)
    facts = replace(gather(folder), data_bytes=size_of(spec.job.data, folder))
    return run_rules(spec, load_catalog(), facts)


@pytest.mark.parametrize("case", [*SPEAK, *LISTS], ids=str)
def test_a_rule_speaks(case, tmp_path):
    """What it says has its level, the place, the number and what to change."""
    found = find(tmp_path, case.files, case.deployment)
    said = [f for f in found if f.rule == case.rule and f.where == case.where]
    assert [f.level for f in said] == [case.level]
    assert case.number in said[0].message
    assert said[0].hint


@pytest.mark.parametrize("case", SILENT, ids=str)
def test_a_rule_is_silent_on_what_only_looks_like_it(case, tmp_path):
    """A warning that cries wolf is read once."""
    found = find(tmp_path, case.files, case.deployment)
    assert [f for f in found if f.rule == case.rule] == []


def test_each_rule_is_tried_both_ways_and_at_each_of_its_levels():
    """Every rule and level of the manual occurs in a test."""
    for rule in RULES:
        assert {c.level for c in (*SPEAK, *LISTS) if c.rule == rule.id} == set(rule.levels), rule.id
        assert any(c.rule == rule.id for c in SILENT), rule.id
    assert {c.rule for c in (*SPEAK, *LISTS, *SILENT)} == {rule.id for rule in RULES}


def test_the_worst_comes_first(tmp_path):
    """Stops, then warnings, then notes."""
    spec = a_spec(job__command="x --batch-size 10", job__env={"T": SECRET})
    assert [f.level for f in find(tmp_path, {}, spec)] == [Level.STOP, Level.WARN, Level.NOTE]


def test_a_secret_is_never_repeated(tmp_path):
    """The finding names file and line; the output may be pasted into an issue."""
    found = find(tmp_path, {}, a_spec(job__command=f"HF={SECRET} {SAVES}", job__env={"X": SECRET}))
    assert len([f for f in found if f.rule == "secret-in-env"]) == 2
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "jupyter notebook --NotebookApp.token=",
        "jupyter notebook --NotebookApp.token='' --no-browser",
        'jupyter lab --ServerApp.token="" &',
        "jupyter lab --IdentityProvider.token= --port 8888",
        "jupyter lab \\\n  --port 8888 \\\n  --ServerApp.token=\\\n",
        "bash -c 'jupyter lab --ServerApp.token='",
        "jupyter lab --NotebookApp.token ''",
        "JUPYTER_TOKEN= jupyter lab",
        'export JUPYTER_TOKEN=""; jupyter lab',
        "jupyter notebook --ip=0.0.0.0 --allow-root",
        "jupyter notebook --ip 0.0.0.0",
        "jupyter lab --ip='*'",
        "jupyter lab --ip=\\*",
        'jupyter lab --ServerApp.ip="0.0.0.0"',
        "jupyter lab --ip=::",
        "jupyter-lab --ip=",
    ],
)
def test_an_open_notebook_stops_in_every_spelling(text, tmp_path):
    """Also in the setup, where it is the same line."""
    spec = a_spec(job__command=SAVES, job__setup=text)
    in_setup, in_file = (find(tmp_path, {}, spec), find(tmp_path, {"start.sh": text}, a_spec()))
    assert "open-notebook" in {f.rule for f in in_setup if f.level is Level.STOP}
    assert "start.sh:1" in {f.where for f in in_file if f.rule == "open-notebook"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jupyter_server_config.py", "c.ServerApp.token = ''"),
        ("jupyter_notebook_config.py", 'c.NotebookApp.ip = "0.0.0.0"'),
        ("jupyter_server_config.json", '{"IdentityProvider": {"token": ""}}'),
        ("jupyter_server_config.json", '{"ServerApp": {"ip": "*"}}'),
        ("side.py", 'run(["jupyter", "lab",\n     "--ip=0.0.0.0", "--port", "8888"])'),
        ("side.py", 'run(["jupyter", "lab", "--ip", "0.0.0.0"])'),
        ("side.py", 'run(["jupyter", "lab", "--ServerApp.token="])'),
        ("Dockerfile", "CMD jupyter lab --ip=0.0.0.0"),
    ],
)
def test_an_open_notebook_stops_in_settings_files_too(name, text, tmp_path):
    """Jupyter reads Python and JSON, and programs start it with lists."""
    assert [f.rule for f in find(tmp_path, {name: text}, a_spec(job__command=ELSEWHERE))] == ["open-notebook"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "side.py",
            'token = make()\nrun(["jupyter", "lab", "--ip=127.0.0.1", f"--ServerApp.token={token}"])',
        ),
        (
            "jupyter_server_config.py",
            "c.ServerApp.token = secrets.token_hex(16)\nc.ServerApp.ip = 'localhost'",
        ),
        ("start.sh", 'jupyter lab --ip 127.0.0.1 --IdentityProvider.token="$JUPYTER_TOKEN"'),
        ("start.sh", "JUPYTER_TOKEN=$(cat token) jupyter lab --ip=::1"),
    ],
)
def test_a_closed_notebook_is_fine(name, text, tmp_path):
    """Loopback with a token is what the side programs do."""
    assert find(tmp_path, {name: text}, a_spec(job__command=ELSEWHERE)) == ()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/tpuctl.yaml")), ids=lambda p: p.parent.name)
def test_the_examples_give_no_reason_to_speak(path):
    """What we ship is what we recommend."""
    spec = load(path, environ={})
    assert run_rules(spec, load_catalog(), gather(path.parent / spec.job.source, skip=path)) == ()


def test_ordinary_python_gives_no_reason_to_speak(tmp_path):
    """Files of the standard library are read whole, and nothing in them concerns a TPU."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for folder, names in ((library, "[c-g]*.py"), (library / "asyncio", "*.py"), (library / "email", "*.py")):
        for path in folder.glob(names):
            (tmp_path / f"{folder.name}-{path.name}").write_bytes(path.read_bytes())
    facts = gather(tmp_path)
    assert facts.unread == ()
    assert len(facts.code) > 80
    assert run_rules(a_spec(job__command=ELSEWHERE), load_catalog(), facts) == ()
