"""
Clients that nobody here wrote, against a local cloud: opt-in, because they need packages and minutes.

TPUCTL_FOREIGN_PYTHON names an interpreter whose environment holds them, TPUCTL_FOREIGN_GCSFS a checkout of
gcsfs; gcloud and rclone are those of the computer. Each run writes its counts, with date and versions, into
docs/clients.md.
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
        retained = {
            k: v for k, v in os.environ.items() if not k.startswith(("TPUCTL_", "CLOUDSDK_", "GOOGLE_"))
        }
        retained |= {
            "TPUCTL_LOCAL_DIR": str(folder / "cloud"),
            "HOME": str(folder / "home"),
            "PYTHONPATH": "",
        }
        retained["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), retained["PATH"]])
        (folder / "home").mkdir()
        self.environment = retained
        self.run("tpuctl", "local", "start", "--object-interval", "0", "--no-fresh-project")
        variables = json.loads(self.run("tpuctl", "local", "env", "--json").stdout)["variables"]
        self.environment = {**retained, **variables}

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


def keep(client: str, run: int, failed: list[str], skipped: int = 0) -> None:
    """Write one row of docs/clients.md: the last run of this client."""
    day = datetime.now(timezone.utc).date()
    row = f"| {client} | {run} | {run - len(failed)} | {len(failed)} | {skipped} | {day} |"
    text = PAGE.read_text()
    old = re.compile(rf"^\| {re.escape(client.partition(' ')[0])} .*$", re.MULTILINE)
    PAGE.write_text(old.sub(row, text) if old.search(text) else f"{text.rstrip()}\n{row}\n")


def reported(lines: list[str]) -> tuple[list[list[str]], list[str], int]:
    """Return what a program of this folder said: its cases, those that failed, how many it left out."""
    found = [line.split(" ", 2) for line in lines if line.startswith(("ok ", "FAIL ", "skip "))]
    failed = [" ".join(words) for words in found if words[0] == "FAIL"]
    return found, failed, sum(words[0] == "skip" for words in found)


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
    found, failed, skipped = reported(said)
    names = ("pyarrow", "obstore", "gcsfs", "tensorstore", "orbax-checkpoint")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    keep(f"on-a-machine ({versions}, google-auth, curl)", len(found) - skipped, failed, skipped)
    assert len(found) == 9
    assert failed == [], "\n".join(failed)


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


def test_skypilot_provisions_tpus(shell):
    """SkyPilot's provisioner: a node, a pair of spot, a slice, the queue, stop, resume, labels, ports."""
    said = shell.run(PYTHON, str(PROGRAMS / "sky_tpu.py")).stdout.splitlines()
    found, failed, _ = reported(said)
    keep(f"skypilot-provisioner ({version('skypilot')}, TPU VMs)", len(found), failed)
    assert (len(found), failed) == (17, [])


def sequence(shell: Shell, steps: list[tuple[str, str]]) -> list[str]:
    """Run each line of shell and return those that fail, or that do not say what they have to."""
    failed = []
    for line, expected in steps:
        done = shell.run("bash", "-ec", line, check=False)
        if done.returncode != 0 or not re.search(expected, done.stdout + done.stderr):
            failed.append(f"{line}: {done.returncode} {(done.stdout + done.stderr)[-300:]}")
    return failed


@pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")
def test_rclone(shell, tmp_path):
    """Go's client of the JSON API: small and large files, rewrite, ranges, checksums, sync, purge."""
    config = tmp_path / "rclone.conf"
    config.write_text(
        "[gcs]\ntype = google cloud storage\nanonymous = true\nproject_number = local-project\n"
        f"endpoint = {shell.environment['STORAGE_EMULATOR_HOST']}/storage/v1/\nbucket_policy_only = true\n"
    )
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/small").write_text("text")
    (tmp_path / "tree/deep/large").write_bytes(os.urandom(20 << 20))
    run, here, there = f"rclone --config {config} --retries 1", tmp_path / "tree", "gcs:bkt-rclone"
    back = tmp_path / "back"
    steps = [
        (f"{run} mkdir {there}", ""),
        (f"{run} lsd gcs:", "bkt-rclone"),
        (f"{run} copy {here} {there}/tree", ""),
        (f"{run} check {here} {there}/tree 2>&1", "0 differences found"),
        (f"{run} lsf -R {there}", "tree/deep/large"),
        (f"{run} lsjson {there}/tree", '"Size":4'),
        (f"{run} size {there}", r"Total objects: 2"),
        (f"{run} md5sum {there}/tree/small", "1cb251ec0d568de6a929b520c4aed8d1"),
        (f"{run} cat --offset 1 --count 2 {there}/tree/small", "^ex$"),
        (f"echo streamed | {run} rcat {there}/streamed", ""),
        (f"{run} cat {there}/streamed", "streamed"),
        (f"{run} copyto {there}/tree/small {there}/copied", ""),
        (f"{run} moveto {there}/copied {there}/moved", ""),
        (f"{run} lsf {there}", "moved"),
        (f"{run} touch {there}/moved", ""),
        (f"{run} copyto {there}/tree/deep/large {back} && cmp {back} {here}/deep/large", ""),
        (f"rm {here}/small && {run} sync {here} {there}/tree && ! {run} lsf {there}/tree | grep small", ""),
        (f"{run} deletefile {there}/moved", ""),
        (f"{run} delete {there}/tree --include 'deep/**'", ""),
        (f"{run} purge {there}/tree || true", ""),
        (f"{run} purge {there}", ""),
        (f"! {run} lsd gcs: | grep bkt-rclone", ""),
    ]
    failed = sequence(shell, steps)
    known = shell.run("rclone", "version").stdout.split()[1]
    keep(f"rclone ({known})", len(steps), failed)
    assert failed == [], "\n".join(failed)


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_gcloud(shell, tmp_path):
    """Each command of gcloud that our pages or hints name, and what stands beside them."""
    (tmp_path / "file").write_text("text")
    zone, tpu = "--zone us-central1-a --quiet", "gcloud compute tpus tpu-vm"
    kind = "--accelerator-type v5litepod-4 --version v2-alpha-tpuv5-lite"
    queue, vm = "gcloud compute tpus queued-resources", "gcloud compute instances"
    image = "--image-family ubuntu-2404-lts-amd64 --image-project ubuntu-os-cloud"
    family = "ubuntu-2404-lts-amd64 --project ubuntu-os-cloud"
    new = "--accelerator-type v5litepod-4 --runtime-version v2-alpha-tpuv5-lite"
    steps = [
        (f"{tpu} create g1 {zone} {kind} --spot --labels a=b", ""),
        (f"{tpu} list {zone}", "g1 .*READY"),
        (f"{tpu} describe g1 {zone}", "preemptible|spot"),
        (f"{tpu} ssh g1 {zone} --command 'echo on-$(hostname)'", "on-"),
        (f"{tpu} scp {tmp_path}/file g1:there {zone}", ""),
        (f"{tpu} ssh g1 {zone} --worker all --command 'cat there'", "text"),
        (f"{tpu} update g1 {zone} --update-labels c=d", ""),
        (f"{tpu} delete g1 {zone}", ""),
        (f"{tpu} create g2 {zone} {kind}", ""),
        (f"{tpu} stop g2 {zone}", ""),
        (f"{tpu} start g2 {zone}", ""),
        (f"{tpu} delete g2 {zone}", ""),
        (f"{tpu} accelerator-types list {zone}", "v5litepod-4"),
        (f"{tpu} versions list {zone}", "v2-alpha-tpuv5-lite"),
        ("gcloud compute tpus locations list", "us-central1-a"),
        (f"{queue} create q1 {zone} --node-id qn {new} --spot", ""),
        (f"{queue} list {zone}", "q1"),
        (f"{queue} describe q1 {zone}", "qn"),
        (f"{queue} delete q1 {zone} --force", ""),
        (f"{vm} create m1 {zone} --machine-type e2-small {image}", "RUNNING"),
        (f"{vm} list --filter name=m1", "m1"),
        (f"{vm} describe m1 {zone}", "status: RUNNING"),
        (f"gcloud compute ssh m1 {zone} --command 'echo on-vm'", "on-vm"),
        (f"gcloud compute scp {tmp_path}/file m1:there {zone}", ""),
        (f"{vm} add-labels m1 {zone} --labels a=b", ""),
        (f"{vm} stop m1 {zone}", ""),
        (f"{vm} start m1 {zone}", ""),
        (f"{vm} delete m1 {zone}", ""),
        (f"gcloud compute images describe-from-family {family}", "READY"),
        ("gcloud compute machine-types list --zones us-central1-a --quiet", "e2-small"),
        ("gcloud compute networks list", "default"),
        ("gcloud compute firewall-rules list", "ssh"),
        ("gcloud compute regions describe us-central1", "status: UP"),
        ("gcloud storage buckets create gs://bkt-gcloud --location us-central1", ""),
        (f"gcloud storage cp {tmp_path}/file gs://bkt-gcloud/a/file", ""),
        ("gcloud storage ls -r gs://bkt-gcloud", "a/file"),
        ("gcloud storage cat gs://bkt-gcloud/a/file", "text"),
        ("gcloud storage mv gs://bkt-gcloud/a/file gs://bkt-gcloud/b", ""),
        ("gcloud storage objects describe gs://bkt-gcloud/b", "crc32c"),
        ("gcloud storage buckets get-iam-policy gs://bkt-gcloud", "etag"),
        ("gcloud storage rm -r gs://bkt-gcloud", ""),
    ]  # fmt: skip
    failed = sequence(shell, steps)
    known = shell.run("gcloud", "version").stdout.splitlines()[0].split()[-1]
    keep(f"gcloud-commands ({known})", len(steps), failed)
    assert failed == [], "\n".join(failed)
