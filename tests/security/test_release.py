"""What runs in GitHub's name: pinned to commits, with the least permissions, and the line that the README names."""

import re

import pytest
from ruamel.yaml import YAML

from tests.cli.cli_kit import ROOT

FOLDER = ROOT / ".github/workflows"
FILES = (*sorted(FOLDER.glob("*.yml")), ROOT / "examples/ci/tpuctl.yml")
ACTION = ROOT / ".github/actions/tpuctl/action.yml"
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
OURS = re.compile(r"uses: \./\.github/workflows/\w+\.yml")


def workflow(path):
    """Return a workflow as GitHub reads it."""
    return YAML(typ="safe").load(path.read_text())


def jobs(path):
    """Return the jobs of a workflow by name."""
    return workflow(path)["jobs"]


def test_the_workflows_to_check_are_there():
    """Else the others would look at nothing."""
    assert {"ci.yml", "release.yml", "tpuctl.yml"} == {path.name for path in FILES}


@pytest.mark.parametrize("path", [*FILES, ACTION], ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit(path):
    """With its version for the reader; the same action has the same commit everywhere."""
    lines = [line.strip(" -") for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    assert [line for line in lines if not (PINNED.fullmatch(line) or OURS.fullmatch(line))] == []


def test_one_action_has_one_commit():
    """A second one would be forgotten by the next update."""
    found = {
        line.strip(" -") for path in (*FILES, ACTION) for line in path.read_text().splitlines() if "@" in line
    }
    actions = [line.partition("@")[0] for line in found if "uses:" in line]
    assert sorted(actions) == sorted(set(actions))


@EACH
def test_permissions_are_the_least(path):
    """A workflow reads or may nothing; more is given to single jobs of a release, and named here."""
    assert workflow(path)["permissions"] in ({"contents": "read"}, {})
    given = {name: job.get("permissions", {}) for name, job in jobs(path).items()}
    more = {name: held for name, held in given.items() if held not in ({}, {"contents": "read"})}
    attest = {"contents": "read", "id-token": "write", "attestations": "write"}
    expected = {"attest": attest, "publish": {"id-token": "write"}}
    assert more == (expected if path.name == "release.yml" else {})


@EACH
def test_no_text_of_others_becomes_code_and_no_token_stays_behind(path):
    """An expression in a script is how a title of a pull request becomes a command."""
    for job in jobs(path).values():
        for step in job.get("steps", ()):
            assert "${{" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    assert "secrets." not in path.read_text()
    assert "pull_request_target" not in path.read_text()


def test_the_tests_are_those_of_the_readme():
    """One line, here and there."""
    (line,) = re.findall(r"^python3 -m venv .*pytest.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert line in [step.get("run") for step in jobs(FOLDER / "ci.yml")["tests"]["steps"]]


def test_a_release_is_published_after_everything_else_and_without_a_token():
    """By trusted publishing from an environment, with attestations, of the files that were compared."""
    found = jobs(FOLDER / "release.yml")
    assert set(found) - {"publish"} == set(found["publish"]["needs"])
    assert found["publish"]["environment"]["name"] == "pypi"
    last = found["publish"]["steps"][-1]
    assert last["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert last["with"] == {"packages-dir": "out/dist", "attestations": True}
    assert ".ci/release out" in [step.get("run") for step in found["build"]["steps"]]


def test_what_builds_a_release_is_pinned_by_content():
    """Each line is a version and a checksum, and what pyproject.toml builds with is among them."""
    lines = (ROOT / ".github/build-requirements.txt").read_text().splitlines()
    pinned = [re.fullmatch(r"([a-z_-]+)==[\d.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines[1:]]
    assert None not in pinned
    assert {"build", "hatchling"} <= {found[1] for found in pinned}
