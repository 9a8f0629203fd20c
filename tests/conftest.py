"""
The order of the tests, and which of them stay together when several processes share them (pytest -n).

And what holds in all of them: a document printed as JSON has the shape that is published for its kind.
"""

import compileall
import gc
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.kit.source import forget
from tests.memory_disk import PLACE, ROOM_FOR_ALL, has_room

LONG = ("e2e", "gcloud", "slow_cron")
HERE = Path(__file__).parent
MANY_FILES = 40


def pytest_configure(config):
    """
    Let Ctrl-C reach what the tests start, also when a shell has started them in the background.

    Such a shell has SIGINT ignored, and every process below it would inherit that.
    """
    if getattr(config.option, "numprocesses", None):
        _compile_once()
    else:
        gc.disable()  # until the tests are collected: nothing of them is garbage
    # Tests have homes of their own; what is packed once for a computer (tens of megabytes) is not of them.
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    if has_room(ROOM_FOR_ALL):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", PLACE)  # where pytest makes its folder
    os.environ["TPUCTL_NO_UPDATE_CHECK"] = "1"  # a test with a terminal must not go to the network
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _put_python_itself_first()


def _compile_once():
    """
    Compile the package and the tests before there are several processes that would all do the same.

    A variable that forbids to keep compiled code is taken back: a thousand processes would compile it again.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(HERE.parent / "orchestrator", quiet=2)
    new = [str(path) for path in sorted(HERE.rglob("test_*.py")) if not _is_compiled(path)]
    if len(new) > MANY_FILES:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
        halves = [
            subprocess.Popen([*command, *half], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for half in (new[::2], new[1::2])
        ]
        for process in halves:
            process.wait()


def _is_compiled(path):
    """Return whether pytest has kept the compiled code of a test file since it was changed last."""
    cache = Path(importlib.util.cache_from_source(str(path)))
    retained = cache.parent.glob(f"{cache.stem}-pytest-*.pyc")
    return any(one.stat().st_mtime >= path.stat().st_mtime for one in retained)


def pytest_collection_finish():
    """Look for garbage from now on, but not among the collected tests."""
    gc.freeze()
    gc.enable()


def _put_python_itself_first():
    """
    Let `python3` be the interpreter that it is already, without the script of a version manager before it.

    Such a script takes 0.1 s of computing for each start, and the tests start a thousand machines and jobs.
    """
    found = shutil.which("python3")
    ask = "import sys; print(sys.executable if sys.prefix == sys.base_prefix else '')"
    itself = Path(subprocess.check_output(["python3", "-c", ask], text=True).strip()) if found else Path()
    if found and itself.name and itself.resolve() != Path(found).resolve():
        os.environ["PATH"] = f"{itself.parent}{os.pathsep}{os.environ['PATH']}"


def pytest_itemcollected(item):
    """Mark what runs real machines or stock programs as `machines`, which `.ci/run` runs apart."""
    if any(item.get_closest_marker(name) for name in LONG):
        item.add_marker("machines")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Move modules with long tests to the front, so that none is left alone at the end."""
    long = {item.path for item in items if any(item.get_closest_marker(name) for name in LONG)}
    items.sort(key=lambda item: item.path not in long)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """
    Deal thousands of short tests in large parts; who has none left takes from the others. Deal long ones singly.

    Each module of a recipe stays in one process: its tests share data and an unbroken run. The tests of gcloud
    stay together as well: they share one that has been imported. (The marker xdist_group would say so too, but
    pytest-xdist 3.8 with pytest 9.2 does not see it.)
    """
    from xdist.scheduler import LoadScopeScheduling, WorkStealingScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            module = nodeid.partition("::")[0]
            if module.startswith("tests/conformance/") and "gcloud" in module:
                return "gcloud"
            return module if module.startswith("tests/recipes/") else nodeid

    short = config.option.markexpr == "not machines" and not os.environ.get("TPUCTL_RECIPES")
    # With one scope for each of ten thousand tests, dealing would compute half a minute.
    return (WorkStealingScheduling if short else Scheduler)(config, log)


@pytest.fixture(autouse=True, scope="session")
def _quick():
    """
    Spare the tests what costs time and changes nothing that they see.

    A test kills processes, never the computer: what is written need not reach the disk.
    """
    from tests.kit.quick_clients import QUICK

    with ExitStack() as stack:
        for change in ((os, "fsync", lambda _: None), *QUICK):
            stack.enter_context(patch.object(*change))
        yield


@pytest.fixture(scope="module")
def code_read_once():
    """Let the tests of a module share the syntax trees of tests.kit.source, which are no garbage before its end."""
    gc.disable()
    yield
    forget()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _json_has_its_published_shape():
    """Hold every document that a command prints in this process against the schema of its kind."""
    from orchestrator.cli import console

    printed, validators = console.print_json, {}

    def print_json(kind, body, **how):
        if kind not in validators:
            validators[kind] = _validator(kind)
        document = json.loads(json.dumps({"schema_version": console.SCHEMA_VERSION, "kind": kind, **body}))
        wrong = [f"{error.json_path}: {error.message}" for error in validators[kind].iter_errors(document)]
        assert not wrong, f"orchestrator/cli/views/json_shapes.py describes {kind} otherwise: {wrong}"
        printed(kind, body, **how)

    console.print_json = print_json
    yield
    console.print_json = printed


def _validator(kind):
    import jsonschema

    from orchestrator.cli.views.json_shapes import output_schema

    return jsonschema.Draft202012Validator(output_schema(kind, strict=True))
