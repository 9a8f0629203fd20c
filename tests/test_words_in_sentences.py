"""No sentence needs explaining: what people and docstrings read names who acts, in the words of the glossary."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.source import nodes

pytestmark = pytest.mark.usefixtures("code_read_once")
ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.name for path in (ROOT / "orchestrator").iterdir() if (path / "__init__.py").exists())
SAY_INSTEAD = {
    # What a new user stumbled over, each as it was printed once.
    r"asked for in [a-z]+-": "Creating NAME in ZONE",
    r"deletion (is )?asked for": "Deleting NAME",
    r"this incarnation is not there": "Creating TPU NAME",
    r"has its notice": "Preemption notice sent to NAME",
    r"(took|has taken) one away": "ZONE is preempting",
    r"nobody is at a terminal": "cannot ask without a terminal; pass --yes",
    r"\bheard [\d{][^ ]* ": "last heartbeat 8 s ago",
    r"loop: none": "watcher: not running",
    r"nothing ends the TPU by itself": "Auto-delete: off",
    r"at the latest in [\d{]": "expires: in 6 d",
    r"\btells? nobody\b": "no notification targets",
    r"\bhook for \S+: told": "hook done: delivered",
    r"\bto be looked at\b": "1 warning",
    r"\bof no known encoding": "cannot detect the terminal's encoding",
    r"no cloud was asked": "offline (assumes that nothing exists yet)",
    r"runs all the time: [\d{]": "Maximum until TTL (1d)",
    r"lasts for about": "Budget 5 USD covers about 1.2 h",
    r"^On top: ": "Not included: storage",
    r"If nobody watches: ": "Does the cost end when no watcher runs?",
    r"Ways back after": "Recovery times",
    r"What each machine did$": "Timeline",
    r"is over \(done\)": "job has finished; nothing to push to",
    r"this watch goes on": "paused for tpuctl push; resuming afterwards",
    r"the VM anew": "recreate the VM",
    r"Verdict: ": "PASS, FAIL or INCONCLUSIVE",
    r"not proven, the job": "INCONCLUSIVE",
    r"Let the next calls": "Inject FAILURES into the next calls",
    r"One line end at": "A single trailing newline is stripped",
    r"order of the alphabet": "glossary",
    r"looks? into your trouble": "whoever investigates your issue",
    r"Three things make it survive": "the number of sections that follow",
    r"queue has given it up": "the queue dropped the request",
    r"Try who is told": "Test notifications",
    r"Run and disturb": "Manage the local cloud and inject faults",
    r"what there is of": "NAME is unchanged",
    r"\b(is|are|runs on) as (it was|they were)(?! saved)": "unchanged",
    r"(?<!here )\bis no (file|folder|name|text|list|plan|archive|user|whole)\b": "is not a file, does not exist",
    r"there are workers 0 to": "the only worker is 0",
    r"begins with a colon": "begins with :, w1: or vm:",
    r"is in another region than": "is not in the same region as",
    r"as said then": "as chosen at adopt",
    r"finding says stop": "a finding has the level stop",
    r"has no column": "is not shown",
    r"all that steers a terminal": "terminal control codes",
    r"runs until you delete it": "nothing deletes it by itself",
    r"first seen absent|it is (not over|kept up): ": "first found absent; the job is not done",
    r"\bof this one, not the newest": "the TPU's number",
    r"requested the lease \(": "`tpuctl down` is deleting the machines",
    r"the rest estimated|\bare certain; about": "what a lost TPU made after its last report is an estimate",
    r"% less than .* on demand": "N% against USD on demand",
    r"bars of a TPU begin with it": "a TPU has bars only while it exists",
    r"solid and dashed in turn": "every second line is dashed",
    r"last renewed [\d{]": "last sign of life 2 s ago",
    r"only by the next tpuctl command|deletes the machines first": "nothing does it by itself; after 7d the next "
    "tpuctl command deletes what is left",
    r"write all but records": "machines write all but code, data sets and tpuctl's record",
    r"only with its manifest|of the whole `ttl`": "once all its files have arrived; until watch.ttl",
    r"use the upper end": "a budget counts the highest price",
    r"\blimit (on|of) creates\b": "create budget",
    r"the agent restarted": "new code was installed",
    r"; checks again ": "the watcher checks again",
    # And their kind.
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\b(begin|begins|begun|made|make|runs|counts|compiles) anew\b": "again, start over, recreate",
    r"\bnobody (here|watches|watched|is (logged in|told))": "no watcher runs, no login, no notification",
    r"\bgoes on running\b": "keeps running",
    r"\b(is|are|was|were) asked for\b": "is requested",
    r"\bnot told (of|yet)\b": "no notification was sent",
}
"""Sentences that people read and that need explaining, and what is said instead."""
ANY_OLD = re.compile("|".join(f"(?:{old})" for old in SAY_INSTEAD))
PRINTED = sorted(
    path
    for folder, kind in (("templates", "*"), ("tests/golden", "*"), ("docs", "*.md"), (".", "README.md"))
    for path in (ROOT / folder).glob(kind if folder == "." else f"**/{kind}")
    if path.is_file() and "decisions" not in path.parts
)


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a module may print: its texts, and the docstrings of commands, which are their help."""
    silent = {
        id(node.value)
        for node in nodes(path)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef) and any(
            "command" in ast.unparse(d) for d in node.decorator_list
        ):
            yield node.lineno, ast.get_docstring(node) or ""
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def old_sentences(text: str) -> dict[str, str]:
    """Return the old sentences that *text* holds, and what is said instead."""
    flat = " ".join(text.split())
    if not ANY_OLD.search(flat):
        return {}
    return {found[0]: instead for old, instead in SAY_INSTEAD.items() if (found := re.search(old, flat))}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_sentence_that_is_printed_needs_explaining(package):
    """What was an odd sentence once does not come back, nor does its kind."""
    found = {
        f"{path.relative_to(ROOT)}:{line}": bad
        for path in (ROOT / "orchestrator" / package).rglob("*.py")
        for line, text in texts_of(path)
        if (bad := old_sentences(text))
    }
    assert found == {}


@pytest.mark.parametrize("path", PRINTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_and_no_template_has_an_old_sentence(path):
    """Scripts, the report, what plan and status print, and the pages."""
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    assert old_sentences(text) == {}


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("VM spiral-vm (e2-small) asked for in us-central1-a", True),
        ("mend it, then run `tpuctl up`", True),
        ("so nobody\n watches it", True),
        ("Creating VM spiral-vm (e2-small) in us-central1-a", False),
        ("recommended: fix the cause", False),
    ],
)
def test_an_old_sentence_is_found(text, old):
    """Also across the end of a line; a word inside another one is none."""
    assert bool(old_sentences(text)) is old


VAGUE = re.compile(r"\b(nobody|somebody|everybody|anybody|strangers?)\b", re.IGNORECASE)


def documented(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the docstring of a module and of what it defines."""
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("texts", [documented, texts_of])
def test_a_text_names_who_acts(texts, package):
    """Docstrings, and what is printed: "nobody" may be a user, a process, a watcher or another deployment."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {vague[0]}"
        for path in (ROOT / "orchestrator" / package).rglob("*.py")
        for line, text in texts(path)
        if text != "stranger" and (vague := VAGUE.search(text))  # but a key of the stored record
    ]
    assert found == []


COMMANDS = "|".join(
    path.stem.replace("_", "-")
    for path in sorted((ROOT / "orchestrator/cli/commands").glob("*.py"))
    if path.stem != "__init__"
)
VERBS = "(?:copies|deletes|ends|makes|replaces|runs|shows|starts|takes|trains|tries|works)"
IN_A_SENTENCE = re.compile(
    rf"(?<=[a-z0-9)] )tpuctl (?:{COMMANDS})\b|(?<![`/])\btpuctl (?:{COMMANDS})(?: [-a-z]+)*? {VERBS}\b"
)
ALONE = re.compile(r"""^f?['"]?(?:# |Made by )""")
"""Comments in files that a command writes, where a backtick would be a sign of another language."""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_command_within_a_sentence_is_in_backticks(package):
    """`tpuctl up` starts over; alone, or after the colon that ends a sentence, a command is bare: tpuctl up."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {bare[0]}"
        for path in (ROOT / "orchestrator" / package).rglob("*.py")
        for line, text in texts_of(path)
        if not ALONE.match(text) and (bare := IN_A_SENTENCE.search(" ".join(text.split())))
    ]
    assert found == []
