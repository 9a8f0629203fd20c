"""The README says what works: its two set-up lines, its commands, its exit codes."""

import re
import shlex

import pytest

from orchestrator.cli.main import COMMANDS
from tests.cli.cli_kit import ROOT, here

README = (ROOT / "README.md").read_text()
OVERVIEW = (ROOT / "docs/overview.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
COMMAND_LINES = [
    line.split("#")[0].strip()
    for block in (*BLOCKS, OVERVIEW)
    for line in block.splitlines()
    if line.startswith("tpuctl ")
]


def line_with(word):
    """Return the only line of a shell block that sets up an environment and runs *word*."""
    (line,) = [
        text for block in BLOCKS for text in block.splitlines() if "python3 -m venv" in text and word in text
    ]
    return line


@pytest.mark.parametrize(("word", "extra"), [("tpuctl demo", "[local]"), ("pytest", "[dev]")])
def test_one_line_sets_up_and_runs(word, extra):
    """It makes a virtual environment, installs this tree and runs; each step after the one before."""
    steps = [step.strip() for step in line_with(word).split("&&")]
    assert len(steps) == 3
    venv = shlex.split(steps[0])
    assert venv[:3] == ["python3", "-m", "venv"]
    install = shlex.split(steps[1])
    assert install[0] == f"{venv[3]}/bin/pip"
    assert install[-1] == f".{extra}"
    assert steps[2].startswith(f"{venv[3]}/bin/")


def test_the_check_script_runs_exactly_these_lines():
    """.ci/run takes them out of the README, so they cannot part."""
    script = (ROOT / ".ci" / "run").read_text()
    for word in ("tpuctl demo", "pytest"):
        assert f"\"$(readme_line '{word}')\"" in script
        block = [line for line in README.splitlines() if word in line and "python3 -m venv" in line]
        assert block == [line_with(word)]


def test_the_readme_shows_each_step_of_a_deployment():
    """Whoever reads on knows how to start, watch and end."""
    assert {line.split()[1] for line in COMMAND_LINES} >= {
        "init",
        "plan",
        "up",
        "watch",
        "status",
        "logs",
        "down",
    }


@pytest.mark.parametrize("line", sorted(set(COMMAND_LINES)))
def test_a_command_of_the_readme_exists_with_its_flags(line, capsys):
    """The help of that command knows each flag."""
    _, name, *words = line.split()
    assert name in COMMANDS
    code, text, _ = here(capsys, name, "--help")
    assert code == 0
    for flag in (word for word in words if word.startswith("-")):
        assert re.search(rf"(^|\s){re.escape(flag)}\b", text)


def test_flags_and_variables_in_the_text_exist(capsys):
    """Also those that are only mentioned."""
    helps = "".join(here(capsys, name, "--help")[1] for name in COMMANDS)
    for flag in set(re.findall(r"`(--[a-z-]+)", README)) - {"--help"}:
        assert flag in helps
    for variable in set(re.findall(r"TPUCTL_[A-Z]+", re.sub(r"\$TPUCTL_\w+", "", README))):
        assert variable in helps


def test_the_readme_is_read_in_two_minutes():
    """At 240 words a minute, with its commands; what is longer has a page of its own."""
    assert len(README.split()) <= 2 * 270


def test_the_exit_codes_of_the_readme_are_those_of_the_errors():
    """Scripts rely on them; the page of all commands has the list."""
    from orchestrator.cli.main import READER_GONE
    from orchestrator.error_codes import CODES

    (text,) = re.findall(r"Exit codes: (.*?)\n\Z", OVERVIEW, re.DOTALL)
    said = {int(number) for number in re.findall(r"(?:^|, |\s)(\d+) ", text)}
    assert said == {kind.exit_code for kind, _ in CODES.values()} | {0, 130, READER_GONE}


@pytest.mark.parametrize("page", ["README.md", "docs/ko/README.md", "docs/ja/README.md", "docs/machines.svg"])
def test_the_vm_watches_only_with_its_flag(page):
    """By default `watch` runs on the computer where it is typed, which must stay on."""
    text = (ROOT / page).read_text("utf-8")
    picture = text if page.endswith(".svg") else next(iter(re.findall(r"^!\[(.*)\]", text, re.MULTILINE)))
    assert "watch --on-vm" in picture
    assert page.endswith(".svg") or re.search(r"^tpuctl watch +# .*--on-vm", text, re.MULTILINE)
