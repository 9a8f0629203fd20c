"""Every error has a code, every code one meaning, and every class an exit code of the published list."""

import ast
import os
import re
from pathlib import Path

import pytest

import orchestrator
from orchestrator import errors
from orchestrator.app.help import page_text
from orchestrator.contract import machine_errors
from orchestrator.error_codes import CODES, error_table
from orchestrator.errors import Retry, TpuctlError
from tests.kit.source import nodes, tree

pytestmark = pytest.mark.usefixtures("code_read_once")
PACKAGE = Path(orchestrator.__file__).parent
EXITS = {
    "MissingPermissionError": 3,
    "TpuctlError": 1, "UsageError": 2, "AuthError": 3, "CapacityError": 4, "QuotaError": 4,
    "TransientError": 1, "DiskError": 1, "NotFoundError": 1, "ConflictError": 1, "PreconditionError": 1,
    "DamagedRecordError": 1, "UnknownCloudError": 1, "RemoteError": 1,
    "HostKeyError": 1, "NoGcloudError": 1, "LeftoverError": 5, "LeaseHeldError": 6, "LimitReachedError": 7,
    "JobFailedError": 1, "UncommittedError": 5, "LocalCloudError": 1,
}  # fmt: skip
CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, TpuctlError)]
ALIASES = {"ConfigError": "UsageError"}


def drawing(module):
    """Yield (class, its parent, the code beside it) from the drawing in the docstring of a module."""
    above = {-4: "Exception"}
    for dent, name, rest in re.findall(r"^    ([ │├└─]*)(\w+Error)\b(.*)$", module.__doc__, re.MULTILINE):
        above[len(dent)] = name
        yield name, above[len(dent) - 4], "".join(re.findall(r"TPU-\d+", rest))


def test_the_drawing_shows_each_class_below_its_parent_with_its_code():
    """Readers choose a class from the drawing."""
    drawn = {name: (parent, code or "TPU-000") for name, parent, code in drawing(errors)}
    assert drawn == {c.__name__: (c.__base__.__name__, c.code) for c in CLASSES}


def test_the_drawing_of_the_machines_errors_names_their_twins():
    """A class that both trees have means the same failure: beside the machine's is the code of ours."""
    ours = {c.__name__: c.code for c in CLASSES}
    classes = [c for c in vars(machine_errors).values() if isinstance(c, type)]
    drawn = {name: (parent, code) for name, parent, code in drawing(machine_errors)}
    assert drawn == {c.__name__: (c.__base__.__name__, ours.get(c.__name__, "")) for c in classes}
    assert {name for name in drawn if name in ours} == {"TransientError", "PreconditionError"}


def test_no_class_is_forgotten():
    """The list of exit codes is whole."""
    assert {c.__name__ for c in CLASSES} == set(EXITS)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_a_class_has_its_code_and_exit_code(kind):
    """A class's own code means what the table says, and its exit code is that of the README."""
    error = kind("what")
    assert CODES[error.code][0] is kind
    assert error.exit_code == EXITS[kind.__name__]
    assert isinstance(error.retry, Retry)
    assert error.as_dict() | {"code": error.code, "message": "what"} == error.as_dict()


def uses():
    """Yield (code, class, place) wherever the package names a code beside a class."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name in {"errors.py", "error_codes.py"} and path.parent == PACKAGE:
            continue
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
                        yield from named(line.value, node.name, path)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                first = node.args[0] if node.args else None
                kind = first.id if node.func.id == "_makes" and isinstance(first, ast.Name) else node.func.id
                values = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "code")]
                for value in values:
                    yield from named(value, kind, path)


def named(value, kind, path):
    """Yield the code when *value* is one."""
    if isinstance(value, ast.Constant) and re.fullmatch(r"TPU-\d{3}", str(value.value)):
        yield value.value, ALIASES.get(kind, kind), path.name


def test_a_code_has_one_meaning():
    """Whoever searches for a code finds one story: the class beside it is that of the table."""
    found = list(uses())
    assert len(found) > 20
    wrong = [f"{c} {k} in {p}" for c, k, p in found if c not in CODES or CODES[c][0].__name__ != k]
    assert wrong == []


def test_the_table_has_no_code_without_use():
    """A code that is gone leaves the table."""
    assert {code for code, _, _ in uses()} | {c.code for c in CLASSES} == set(CODES)


def test_the_published_table_is_the_one_in_the_code():
    """docs/errors.md has error_table()."""
    published = PACKAGE.parent / "docs" / "errors.md"
    before, between = published.read_text().split("| code |")[0], "\n## By code\n"
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        published.write_text(before + error_table() + between + published.read_text().split(between)[1])
    assert published.read_text().startswith(before + error_table() + between)


def test_each_code_has_its_part_of_the_page_in_order():
    """What `tpuctl help` prints of it says more than the table."""
    parts = page_text().split("\n### ")[1:]
    assert [part.split("\n")[0] for part in parts] == list(CODES)
    assert [part for part in parts if len(part) < 90] == []


def states_of(path):
    """Yield what errors of a module say was or was not changed: texts, also those of its constants."""
    constants = {
        node.targets[0].id: node.value
        for node in tree(path).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in nodes(path):
        if isinstance(node, ast.keyword) and node.arg == "changed":
            value = constants.get(node.value.id) if isinstance(node.value, ast.Name) else node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                yield node.value.lineno, value.value


def test_what_was_changed_is_said_in_one_form():
    """It follows "state: ", so it has neither a capital letter nor a full stop."""
    found = {
        f"{path.relative_to(PACKAGE)}:{line}": text
        for path in PACKAGE.rglob("*.py")
        for line, text in states_of(path)
        if (text[0].isupper() and text.split()[0] not in {"TPU", "VM", "TPUs", "Slurm"}) or text.endswith(".")
    }
    assert found == {}


KNOWS_ITS_CALL_ONLY = {
    "google": "one call to a service: only who makes it knows what was done before",
    "ssh": "one command on one machine: the same",
    "agent": "its errors have names of ours; they go to the log of the machine",
}
SAYS_NOT_WHAT_WAS_CHANGED = {
    "app/rehearsal/evidence.py observe": "caught there, and raised with its state after an outage of minutes",
    "engine/adopt.py _prepare_vm": "app/adopt.py adds what the adoption has done",
    "engine/adopt.py _reached": "the same",
    "engine/adopt.py done": "the same",
    "engine/adopt.py run_on_hosts": "the same",
    "engine/adopt.py settle": "the same",
    "engine/adopt.py stop_job": "a line in what `down` says; the machine is given back all the same",
    "engine/fleet/slurm.py _run": "any command of Slurm: it may change something or only ask",
    "engine/routes.py _vm": "a part of many steps: `adopt` says what it has done, the_vm() that nothing was opened",
    "engine/routes.py vm_host": "the same",
    "engine/reconcile/observe.py as_error": "a bug of ours while looking: it becomes an Unknown",
}
"""Functions whose errors do not say it, each with the reason."""


def without_state():
    """Yield file and function of each error that is made without saying what was and was not changed."""
    kinds = {c.__name__ for c in CLASSES}

    def visit(node, inside):
        for child in ast.iter_child_nodes(node):
            made = isinstance(child, ast.Call) and ast.unparse(child.func) in kinds
            if made and {None, "changed"}.isdisjoint(word.arg for word in child.keywords):
                yield inside
            named = isinstance(child, ast.FunctionDef)
            yield from visit(child, child.name if named else inside)

    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE)
        if file.parts[0] not in KNOWS_ITS_CALL_ONLY:
            yield from (f"{file} {name}" for name in visit(tree(path), ""))


def test_every_error_says_what_was_and_was_not_changed():
    """Whoever reads it at night must know what is billed; an exception that is needed no more leaves the list."""
    assert set(without_state()) == set(SAYS_NOT_WHAT_WAS_CHANGED)


def without_next_step():
    """Yield the place of each error that is made without a hint, and whose class has no usual step."""
    need_one = {c.__name__ for c in CLASSES if not c.usual_step}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in need_one:
                given = {word.arg: word.value for word in node.keywords}
                hint = given.get("hint")
                if None not in given and (
                    hint is None or (isinstance(hint, ast.Constant) and not hint.value)
                ):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}"


def test_every_error_says_what_to_do_next():
    """Its own hint comes first; a class whose errors have one cure says it once."""
    assert list(without_next_step()) == []
    assert errors.TransientError("it failed").next_step == errors.TransientError.usual_step
    assert errors.TransientError("it failed", hint="wait").next_step == "wait"
    assert errors.TransientError("it failed").as_dict()["hint"] == errors.TransientError.usual_step
