"""The rules of this house that a machine can check: packaging, layers, size, reasons, forbidden words."""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
import zipfile
from pathlib import Path

import grimp
import pytest

from tests.kit.source import nodes, tree

pytestmark = pytest.mark.usefixtures("code_read_once")
ROOT = Path(__file__).parents[1]
PYTHON = sorted(
    path
    for folder in ("orchestrator", "tests", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if not {"__pycache__", ".venv"} & set(path.parts)
)
PACKAGE = [path for path in PYTHON if path.is_relative_to(ROOT / "orchestrator")]
FORBIDDEN = {
    r"AutoAddPolicy": "host keys are pinned in Python",
    r"StrictHostKeyChecking[= ]no": "host keys are pinned for ssh",
    r"shell=True": "commands are lists",
    r"(?<![\w.])eval\(": "text is no program",
    r"yaml\.load\(": "ruamel's round-trip parser is used",
    r"^\s*(import|from) pickle": "nothing from outside is unpickled",
}
ALLOWED = {
    "orchestrator/emulator/state/local_cloud.py": r"^\s*(import|from) pickle",  # reads what it wrote itself
    "orchestrator/contract/formats/reading/pickled.py": r"^\s*(import|from) pickle",  # it builds no foreign object
}
TEXTS = [
    *(path for path in PYTHON if not path.is_relative_to(ROOT / "tests")),
    *(path for path in (ROOT / "templates").iterdir() if path.is_file()),
    ROOT / ".ci" / "run",
]
EMULATOR_STANDS_ON = {"errors", "clock", "private_folders"}
PYPROJECT = (ROOT / "pyproject.toml").read_text()


def run(*words):
    """Run a tool in the checkout; return what it says when it fails."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel in this process."""
    return built(tmp_path_factory.mktemp("dist"))


def built(folder):
    """Return the path of a wheel built into *folder*."""
    from hatchling.builders.wheel import WheelBuilder

    (path,) = list(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
    return Path(path)


def test_the_wheel_is_small_and_the_same_when_built_again(wheel, tmp_path):
    """Below 2 megabytes; whoever builds this commit can compare checksums."""
    assert wheel.stat().st_size < 2_000_000
    assert built(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_all_that_runs(wheel):
    """Package, tables, templates and examples: each file of the checkout, and nothing else of it."""
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, inside in (
        ("orchestrator", "orchestrator"),
        ("templates", "orchestrator/templates"),
        ("examples", "orchestrator/examples"),
    ):
        for name in tracked(folder):
            assert f"{inside}/{Path(name).relative_to(folder)}" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "docs/"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("share/man/man1/tpuctl.1") for name in names)


def tracked(folder):
    """Return the files that git knows in a folder, or all of them in an unpacked archive."""
    done = subprocess.run(
        ["git", "ls-files", "--", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 0 and done.stdout:
        return [name for name in done.stdout.splitlines() if (ROOT / name).exists()]
    return [
        str(p.relative_to(ROOT))
        for p in (ROOT / folder).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    ]


def listed(start):
    """Return the lines of a list in pyproject.toml that begins with *start*."""
    return PYPROJECT.split(f"\n{start} = [\n")[1].split("\n]")[0].splitlines()


OPTIONAL = PYPROJECT.split("\n[project.optional-dependencies]\n")[1].split("\n[")[0]
EXTRAS = re.findall(r"^(\w+) = \[$", OPTIONAL, re.MULTILINE)
REASON = re.compile(r"[\]\",]\s+# \S.{3,}")


@pytest.mark.parametrize("name", ["dependencies", *EXTRAS])
def test_every_dependency_has_its_reason(name):
    """A line without a reason is a line to remove."""
    for line in listed(name):
        assert re.match(r'\s*"tpuctl\[\w+\]",$', line) or REASON.search(line), line


def test_every_ignored_rule_has_its_reason():
    """Ruff checks everything; what it must not say is explained, for all files and for some."""
    some = PYPROJECT.split("\n[tool.ruff.lint.per-file-ignores]\n")[1].split("\n\n")[0].splitlines()
    groups = [line for line in some if line != "]" and not line.endswith("= [")]
    assert [line for line in (*listed("ignore"), *groups) if not REASON.search(line)] == []


def test_every_library_that_types_pass_over_has_its_reason():
    """Types are checked strictly; what passes as Any is explained."""
    lists = re.findall(r"\[\[tool\.mypy\.overrides\]\]\nmodule = \[(.*?)\]\n", PYPROJECT, re.DOTALL)
    lines = [line for one in lists for line in one.strip().splitlines()]
    assert lines
    assert [line for line in lines if not REASON.search(line)] == []


def test_a_file_is_one_job():
    """At most 400 lines (a test: 450), and a docstring that says what it is for."""
    texts = {path: path.read_text() for path in PYTHON}
    most = {path: 450 if path.is_relative_to(ROOT / "tests") else 400 for path in PYTHON}
    assert [path for path, text in texts.items() if text.count("\n") > most[path]] == []
    assert [path for path in PYTHON if not ast.get_docstring(tree(path))] == []


@pytest.mark.parametrize("pattern", FORBIDDEN, ids=list(FORBIDDEN.values()))
def test_nothing_dangerous_is_in_what_runs(pattern):
    """Neither in the package, nor in templates, examples and scripts."""
    found = {str(p.relative_to(ROOT)) for p in TEXTS if re.search(pattern, p.read_text(), re.MULTILINE)}
    assert found == {name for name, allowed in ALLOWED.items() if allowed == pattern}


def test_every_folder_of_the_package_states_its_rule():
    """Its __init__.py holds that docstring and nothing else (the root has the version, too)."""
    folders = {path.parent for path in PACKAGE}
    for folder in folders:
        code = tree(folder / "__init__.py")
        assert ast.get_docstring(code)
        assert len(code.body) == 1 or folder == ROOT / "orchestrator", folder


def test_no_room_is_skipped_where_the_local_cloud_may_not_go():
    """A new package of the package is either forbidden to it, or one of the few that it stands on."""
    pattern = r'source_modules = \["orchestrator.emulator"\]\nforbidden_modules = \[(.*?)\]'
    (contract,) = re.findall(pattern, PYPROJECT, re.DOTALL)
    known = set(re.findall(r'"orchestrator\.(\w+)"', contract)) | {"emulator", *EMULATOR_STANDS_ON}
    there = (ROOT / "orchestrator").iterdir()
    packages = {path.stem for path in there if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert packages - {"__init__"} <= known


def test_no_modules_import_each_other_in_a_circle():
    """Whoever reads one of a circle must read them all."""
    assert circling(grimp.build_graph("orchestrator")) == set()


def circling(graph):
    """Return the modules that import themselves by way of others (Tarjan's strongly connected components)."""
    number, lowest, stack, found = {}, {}, [], set()

    def visit(module):
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph.find_modules_directly_imported_by(module):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            ring = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            found.update(ring if len(ring) > 1 else ())

    for module in sorted(graph.modules):
        if module not in number:
            visit(module)
    return found


MAY_IMPORT_LATE = {
    "cli/main.py": ("click", "difflib", "orchestrator"),  # every command passes through it
    # Only the completion of a name, an error that the local cloud may explain, and --quiet ask for them.
    "cli/options.py": (
        "orchestrator.app.this_computer.state_folders",
        "orchestrator.app.this_computer.known",
        "orchestrator.cli",
    ),
    # rich: 40 ms; `status` and --json print without it. The folder names the report of a bug.
    "cli/console.py": ("rich", "orchestrator.app.this_computer.state_folders"),
    "cli/views/event_lines.py": ("orchestrator.cli.views.live_line",),  # rich, only where somebody looks
    "ssh/remote.py": ("orchestrator.ssh.connect.connection",),  # fabric: 300 ms; few commands reach a machine
    "config/adapter.py": ("pydantic",),  # 100 ms; a deployment that is watched is shown without
    "config/document.py": ("ruamel",),  # 60 ms, the same
    "domain/text/units.py": ("pydantic_core",),  # pydantic calls these methods, so it is there by then
    "engine/records/record_format.py": ("pydantic",),  # as in config
    "engine/publish/receivers.py": ("apprise",),  # an extra
    "report/page.py": ("jinja2", "markupsafe"),  # 60 ms; the loop and `status` write no page
    "scripts/render.py": ("jinja2",),  # the same
    "scripts/wheel.py": ("tomllib",),  # not in Python 3.10
    "app/plan.py": ("orchestrator.emulator.start_options",),  # 15 ms; only a plan from nothing asks
    # requests: 100 ms; a cloud is started by the first command alone
    "app/context/clouds.py": ("orchestrator.emulator.own_server", "orchestrator.app.local"),
    # Each command makes a session and looks for expired deployments; most of them only look.
    "app/deployment/session.py": (
        "orchestrator.app.local",
        "orchestrator.emulator.control",
        "orchestrator.app.notify",
        "orchestrator.engine.publish.outbox",
        "orchestrator.engine.loop.loop",
    ),
    "app/deployment/expired.py": (
        "orchestrator.engine.outcome_errors",
        "orchestrator.engine.reconcile.reconciler",
    ),
    "app/loop/dashboard.py": ("uvicorn", "orchestrator.report.dashboard_app"),  # an extra
    "app/loop/metrics.py": ("prometheus_client",),  # an extra
    "emulator/control.py": ("orchestrator.emulator.machines",),  # it first says which extra is missing
    "emulator/machines/supervisor.py": ("orchestrator.emulator.machines",),  # the parent stays small
}
"""Files whose functions import what takes long or may be missing; docs/decisions/0011."""


def late_imports(path):
    """Yield what functions of a module import, but for commands of the command line: they load their use case."""

    def visit(node, inside):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                decorators = [ast.unparse(one) for one in child.decorator_list]
                command = path.parent.name == "commands" and any("command(" in one for one in decorators)
                if not command:
                    yield from visit(child, inside=True)
            elif inside and isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif inside and isinstance(child, ast.ImportFrom):
                yield child.module
            else:
                yield from visit(child, inside=inside)

    yield from visit(tree(path), inside=False)


def test_imports_inside_functions_stand_only_where_they_save_time():
    """A reader finds what a module stands on at its head; a place that needs its exception no more loses it."""
    needed = set()
    for path in PACKAGE:
        file = path.relative_to(ROOT / "orchestrator").as_posix()
        for name in late_imports(path):
            fits = {(file, one) for one in MAY_IMPORT_LATE.get(file, ()) if f"{name}.".startswith(f"{one}.")}
            assert fits, f"{file} imports {name} inside a function"
            needed |= fits
    assert needed == {(file, one) for file, names in MAY_IMPORT_LATE.items() for one in names}


def command_lines(text):
    """Yield each command of a module, with the lines of its body but for docstring, imports and empty ones."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        decorators = [ast.unparse(one) for one in getattr(node, "decorator_list", ())]
        if any("command(" in one for one in decorators):
            spans = [range(s.lineno, s.end_lineno + 1) for s in node.body]
            late = [one for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom)]
            skipped = {n for one in late for n in range(one.lineno, one.end_lineno + 1)}
            skipped |= set(spans[0]) if ast.get_docstring(node) else set()
            body = range(spans[0].start, spans[-1].stop)
            yield node.name, sum(n not in skipped and bool(lines[n - 1].strip()) for n in body)


def test_a_command_parses_makes_one_call_and_shows():
    """At most 18 lines; what is more belongs to a use case or a view."""
    example = '@command()\ndef x(a):\n    """Do x."""\n    from y import z\n\n    z()\n    # Why.\n    z(a)\n'
    assert list(command_lines(example)) == [("x", 3)]
    commands = (p for p in PACKAGE if p.parent.name == "commands")
    found = {(path.stem, name): n for path in commands for name, n in command_lines(path.read_text())}
    assert len(found) > 40
    assert {name: n for name, n in found.items() if n > 18} == {}


def test_what_runs_on_machines_runs_on_an_old_python():
    """Machines may have 3.8: the grammar is that of 3.8, and nothing but the standard library is imported."""
    ours = ("orchestrator.agent", "orchestrator.contract")
    for path in (one for name in ours for one in (ROOT / name.replace(".", "/")).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in names:
                assert name.startswith(ours) or name.split(".")[0] in sys.stdlib_module_names, (
                    f"{path}: {name}"
                )


def test_scripts_of_the_checkout_may_be_run():
    """.ci/run is executable and is bash."""
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert run("bash", "-n", ".ci/run") == ""


def test_no_command_words_its_own_document():
    """What `--json` prints is a view's, beside what people read."""
    commands = [path for path in PACKAGE if path.parent.name == "commands"]
    assert [path.name for path in commands if "print_json" in path.read_text()] == []


def sleeps_without_a_reason(text):
    """Return the lines that sleep and have no comment of their own, nor one on the line above."""
    lines = text.splitlines()
    notes = {
        token.start[0]: lines[token.start[0] - 1].lstrip().startswith("#")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|fmt|type)\b", token.string)
    }
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    found = [call.lineno for call in calls if ast.unparse(call.func) in {"time.sleep", "asyncio.sleep"}]
    return [line for line in found if line not in notes and not notes.get(line - 1)]


def test_code_that_sleeps_says_why():
    """
    A fixed pause is too short on a busy computer and too long on any other.

    The product waits for conditions by `polled` and `wait_until`, tests by tests.kit.waiting.until.
    """
    assert sleeps_without_a_reason(
        "a()  # why\ntime.sleep(1)\n# why\ntime.sleep(2)\ntime.sleep(3)  # fmt: skip"
    ) == [2, 5]
    kit = ROOT / "tests" / "kit" / "waiting.py"
    packages = (ROOT / "tests", ROOT / "orchestrator")
    texts = {p: p.read_text() for p in PYTHON if any(map(p.is_relative_to, packages)) and p != kit}
    found = {
        str(path.relative_to(ROOT)): sleeps_without_a_reason(t) for path, t in texts.items() if ".sleep(" in t
    }
    assert {path: lines for path, lines in found.items() if lines} == {}


UNITS = {"_DAY", "_GB", "_HOURS_A_MONTH", "A_DAY", "DAY", "HOUR", "HOURS_A_MONTH"}


def numbers_without_a_reason(text):
    """Return the names of a file's seconds, shares and pauses that nothing is said about."""
    body, lines, found = ast.parse(text).body, text.splitlines(), []
    for node, after in zip(body, [*body[1:], None], strict=True):
        numbers = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
        if not (isinstance(node, ast.Assign) and any(isinstance(number, float) for number in numbers)):
            continue
        name, explained = ast.unparse(node.targets[0]), isinstance(after, ast.Expr)
        explained = explained or "#" in lines[node.lineno - 1] or lines[node.lineno - 2].startswith("#")
        value = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) != "Backoff"
        if not (explained or value or isinstance(node.value, ast.Dict | ast.Tuple)):
            found.append(name)
    return found


def test_a_number_says_its_unit_and_its_reason():
    """Who changes one has to know what depends on it; a factor between two units is its own reason."""
    assert numbers_without_a_reason('A = 1.0\n"""Why."""\nB = 2.0\nC = 3\nD = 4.0  # why') == ["B"]
    found = {str(path.relative_to(ROOT)): set(numbers_without_a_reason(path.read_text())) for path in PACKAGE}
    assert {path: names - UNITS for path, names in found.items() if names - UNITS} == {}


TWINS = {
    "Levanter", "Keras",  # what a framework saves, and what it prints
    "TransientError", "PreconditionError",  # the agent's errors, which stand alone on the machines
    "JobLog",  # written on a machine, read by the controller
}  # fmt: skip


def test_a_class_name_stands_for_one_thing():
    """Outside of the local cloud, whose classes are the twins of what Google has."""
    found = {}
    for path in PACKAGE:
        if "emulator" not in path.parts:
            classes = [node for node in nodes(path) if isinstance(node, ast.ClassDef)]
            for name in {one.name for one in classes if not one.name.startswith("_")}:
                found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1 and name not in TWINS} == {}
