"""How a source folder is read for the rules: within bounds, and never by running it."""

import os
from math import isclose
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.advice.check.code import read_code
from orchestrator.advice.check.python_values import UNKNOWN
from orchestrator.advice.check.rules import manual
from orchestrator.advice.check.saves import best_save_interval, lost_share
from orchestrator.app.source import source_facts
from orchestrator.app.source.source_facts import gather

MANUAL = Path(__file__).parents[2] / "docs" / "check.md"


def test_the_manual_is_the_one_in_the_docstrings():
    """docs/check.md is made from the rules. Set TPUCTL_UPDATE_GOLDEN=1 to write it again."""
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        MANUAL.write_text(manual())
    assert MANUAL.read_text() == manual()


def test_training_text_is_measured_and_not_read(tmp_path):
    """Hundreds of megabytes cost nothing; lists of packages are no training text."""
    with (tmp_path / "corpus.txt").open("wb") as file:
        file.truncate(400_000_000)
    (tmp_path / "more.jsonl").write_text("{}\n")
    (tmp_path / "requirements-dev.txt").write_text("numpy\n")
    facts = gather(tmp_path)
    assert facts.text_bytes == 400_000_003
    assert [r.name for r in facts.requirements] == ["numpy"]


@pytest.mark.parametrize(
    "data",
    [b"x = 1\n" * 300_000, b"print 'two'", b"x = '\0'", b"x = " + b"(" * 3000 + b")" * 3000, b"\xff\xfe\x00"],
    ids=["large", "python2", "null", "deep", "binary"],
)
def test_what_cannot_be_read_is_named(data, tmp_path):
    """The rest is read all the same."""
    (tmp_path / "bad.py").write_bytes(data)
    (tmp_path / "good.py").write_text("import jax\n")
    facts = gather(tmp_path)
    assert facts.unread == ("bad.py",)
    assert facts.uses("jax")


def test_the_number_of_files_is_bounded(tmp_path, monkeypatch):
    """A folder with a copy of a whole library does not hang the check."""
    monkeypatch.setattr(source_facts, "MAX_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.py").write_text("import jax\n")
    facts = gather(tmp_path)
    assert (len(facts.code), facts.unread) == (3, ("3.py", "4.py"))


def test_only_what_would_be_pushed_is_looked_at(tmp_path):
    """Ignored files never reach a machine, and the deployment file is read as such."""
    (tmp_path / ".tpuctlignore").write_text("old/\n")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.py").write_text("import torch_xla\n")
    (tmp_path / "tpuctl.yaml").write_text("command: echo $TPUCTL_CHECKPOINT_DIR\n")
    facts = gather(tmp_path, skip=tmp_path / "tpuctl.yaml")
    assert (facts.code, facts.variables) == ((), frozenset())


def test_scripts_without_an_ending_are_programs_too(tmp_path):
    """`command: ./run` is common."""
    (tmp_path / "run").write_text("#!/bin/bash\npython3 train.py --out \\\n  $TPUCTL_CHECKPOINT_DIR\nsync\n")
    (tmp_path / "run").chmod(0o755)
    facts = gather(tmp_path)
    assert facts.variables == {"TPUCTL_CHECKPOINT_DIR"}
    assert [(line.number, line.text.split()[0]) for line in facts.lines] == [
        (1, "#!/bin/bash"),
        (2, "python3"),
        (4, "sync"),
    ]


def test_names_and_values_are_followed_as_far_as_they_are_plain():
    """Aliases and constants that are set once are known; all else is UNKNOWN."""
    code = read_code(
        "a.py",
        "import os, torch.nn as nn\nfrom pathlib import Path as P\nA = '/tmp'\nB = 1\nB = 2\n"
        "f(A, B, A + '/x', P('~') / 'm', os.path.join(A, n), f'gs://{n}', *rest)\nnn.Linear(3, 4)\n",
    )
    first, *_, linear = (call for call in code.calls if call.name in ("f", "torch.nn.Linear"))
    assert first.args == ("/tmp", UNKNOWN, "/tmp", "~", "/tmp", "gs://", UNKNOWN)
    assert first.spread
    assert (linear.name, linear.args, linear.line) == ("torch.nn.Linear", (3, 4), 7)
    assert code.modules == {"os", "torch", "pathlib"}


@given(st.text(alphabet="ab.=()[]:,\n '\"\\*@{}#0ifordeflambdaimport", max_size=200))
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_the_reader(text):
    """It is Python, or it is refused with one of three errors."""
    try:
        code = read_code("x.py", text)
    except (SyntaxError, ValueError, RecursionError):
        return
    assert all(call.line >= 1 for call in code.calls)


@given(every=st.floats(1, 1e6), save=st.floats(0.01, 3600), life=st.floats(60, 1e6))
def test_lost_time_is_a_share(every, save, life):
    """Never below nothing or above all of it, and more lifetime never loses more."""
    lost = lost_share(every, save, life)
    assert 0 <= lost <= 1
    assert lost_share(every, save, 2 * life) <= lost + 1e-9


def test_the_figures_are_those_that_are_published():
    """Five seconds for a save: 6.3 min at 4 h and 11 min at 12 h; an hour at 4 h loses about an eighth."""
    assert isclose(best_save_interval(5, 4 * 3600) / 60, 6.3, abs_tol=0.05)
    assert isclose(best_save_interval(5, 12 * 3600) / 60, 11, abs_tol=0.05)
    assert isclose(lost_share(3600, 0, 4 * 3600), 0.125, abs_tol=0.01)


@given(save=st.floats(1, 60), life=st.floats(3600, 1e5), factor=st.sampled_from([0.25, 4]))
def test_the_best_interval_is_a_valley(save, life, factor):
    """Four times as often or as seldom loses more."""
    best = best_save_interval(save, life)
    assert lost_share(best * factor, save, life) > lost_share(best, save, life)
