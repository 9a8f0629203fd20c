"""
Clients that nobody here wrote, against a local cloud: opt-in, because they need packages and minutes.

TPUCTL_FOREIGN_PYTHON names an interpreter whose environment holds them, TPUCTL_FOREIGN_GCSFS a checkout of
gcsfs. Each run writes its counts, with date and versions, into docs/clients.md.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

PYTHON, GCSFS = os.environ.get("TPUCTL_FOREIGN_PYTHON", ""), os.environ.get("TPUCTL_FOREIGN_GCSFS", "")
ROOT = Path(__file__).parents[2]
PAGE, PROGRAMS = ROOT / "docs/clients.md", Path(__file__).parent / "programs"
HERE = ("--zone", "us-central1-a", "--quiet")
OWN_SUITE = ("core", "mapping", "manyopens", "checkers", "init")
# Hierarchical namespaces need gRPC; one test wants the variable unset that names our project to the others.
NOT_HERE = "not hns and not zonal and not test_user_project_fallback_google_default"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PYTHON, reason="set TPUCTL_FOREIGN_PYTHON to an environment with the clients"),
]


class Shell:
    """A shell in which `eval "$(tpuctl local env)"` was run, and nothing else."""

    def __init__(self, folder: Path) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TPUCTL_", "CLOUDSDK_", "GOOGLE_"))}
        kept |= {"TPUCTL_LOCAL_DIR": str(folder / "cloud"), "HOME": str(folder / "home"), "PYTHONPATH": ""}
        kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
        (folder / "home").mkdir()
        self.environment = kept
        self.run("tpuctl", "local", "start", "--object-interval", "0")
        variables = json.loads(self.run("tpuctl", "local", "env", "--json").stdout)["variables"]
        self.environment = {**kept, **variables}

    def run(self, *words: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = subprocess.run(
            words, env={**self.environment, **more}, cwd=self.environment["HOME"], capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Give a local cloud with a bucket."""
    one = Shell(tmp_path_factory.mktemp("foreign"))
    try:
        one.run("gcloud", "storage", "buckets", "create", "gs://bkt-foreign", "--location", "us-central1")
        yield one
    finally:
        one.run("tpuctl", "local", "reset")


def keep(client: str, run: int, failed: list[str], left_out: int = 0) -> None:
    """Write one row of docs/clients.md: the last run of this client."""
    day = datetime.now(timezone.utc).date()
    row = f"| {client} | {run} | {run - len(failed)} | {len(failed)} | {left_out} | {day} |"
    text = PAGE.read_text()
    old = re.compile(rf"^\| {re.escape(client.partition(' ')[0])} .*$", re.MULTILINE)
    PAGE.write_text(old.sub(row, text) if old.search(text) else f"{text.rstrip()}\n{row}\n")


def version(package: str) -> str:
    """Return the version of a package of the clients' environment."""
    program = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_clients_on_a_machine(shell):
    """Storage clients in five languages and google-auth on a TPU, with no endpoint named."""
    tpu = ("gcloud", "compute", "tpus", "tpu-vm")
    shell.run(
        *tpu, "create", "t1", *HERE, "--accelerator-type", "v5litepod-4", "--version", "v2-alpha-tpuv5-lite"
    )
    program = f"{PYTHON} {PROGRAMS / 'on_machine.py'} bkt-foreign"
    said = shell.run(*tpu, "ssh", "t1", *HERE, "--command", program).stdout.splitlines()
    found = [line.split(" ", 2) for line in said if line.startswith(("ok ", "FAIL ", "skip "))]
    failed = [" ".join(words) for words in found if words[0] == "FAIL"]
    skipped = [words for words in found if words[0] == "skip"]
    names = ("pyarrow", "obstore", "gcsfs", "tensorstore", "orbax-checkpoint")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    keep(f"on-a-machine ({versions}, google-auth, curl)", len(found) - len(skipped), failed, len(skipped))
    assert len(found) == 9
    assert failed == []


@pytest.mark.skipif(not GCSFS, reason="set TPUCTL_FOREIGN_GCSFS to a checkout of gcsfs")
def test_the_suite_of_gcsfs(shell, tmp_path):
    """Gcsfs' own tests, unchanged."""
    report = tmp_path / "report.xml"
    files = [f"{GCSFS}/gcsfs/tests/test_{name}.py" for name in OWN_SUITE]
    present = [file for file in files if Path(file).exists()]
    names = dict.fromkeys(("GCSFS_TEST_PROJECT", "GCSFS_DEFAULT_PROJECT"), "local-project")
    names["GCSFS_TEST_BUCKET"] = "bkt-gcsfs-suite"
    # Its tests write one object again and again, faster than the service lets anybody.
    done = shell.run(
        *(PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", NOT_HERE, f"--junitxml={report}"),
        *present, check=False, **names, PYTHONPATH=GCSFS,
    )  # fmt: skip
    assert report.exists(), done.stdout + done.stderr
    suite = re.search(r'errors="(\d+)" failures="(\d+)" skipped="(\d+)" tests="(\d+)"', report.read_text())
    assert suite is not None
    errors, failures, skipped, tests = map(int, suite.groups())
    failed = re.findall(
        r'<testcase classname="[^"]*" name="([^"]+)"[^>]*><(?:failure|error)', report.read_text()
    )
    keep(f"gcsfs-suite ({version('gcsfs')})", tests - skipped, failed[: errors + failures], skipped)
    assert tests - skipped > 100
    assert (errors + failures, failed) == (0, [])
