"""Google's clients come without aiohttp, and with it where they cannot do without."""

import subprocess
import sys

import pytest

CLIENTS = """
import sys
from orchestrator.google.clients import Clients, CloudSettings

clients = Clients(CloudSettings(project="p", endpoint="http://127.0.0.1:1"))
clients.tpu, clients.storage, clients.instances
assert not {"aiohttp", "multidict", "yarl"} & set(sys.modules)
import aiohttp
assert aiohttp.ClientSession
"""
NEEDED = """
import sys
from orchestrator.google.lean_imports import imported

assert imported("needs").it.ClientSession
assert imported("wants").it is sys.modules["aiohttp"]  # it is there already
"""
MISSING = """
from orchestrator.google.lean_imports import imported

imported("absent_altogether")
"""


def run(program, folder):
    """Run a program in a process that has imported nothing."""
    return subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": f"{folder}:{':'.join(sys.path)}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_clients_are_made_without_what_they_do_not_use(tmp_path):
    """A third of the time of the first call; others find aiohttp as ever."""
    pytest.importorskip("aiohttp")
    done = run(CLIENTS, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_module_that_cannot_do_without_gets_it(tmp_path):
    """A later release may need it: it is imported plainly then."""
    pytest.importorskip("aiohttp")
    (tmp_path / "needs.py").write_text("import aiohttp as it\n")
    (tmp_path / "wants.py").write_text("try:\n    import aiohttp as it\nexcept ImportError:\n    it = None\n")
    done = run(NEEDED, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_module_that_is_not_there_is_named(tmp_path):
    """The reason is the module's own absence, not that of aiohttp."""
    assert "No module named 'absent_altogether'" in run(MISSING, tmp_path).stderr
