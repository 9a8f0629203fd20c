"""The stand-in for `gcloud storage`, case by case beside the real one."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.emulator.machines import gcloud_standin, machine_programs
from orchestrator.emulator.machines.process import ProcessMachines
from tests.emulator.http_fixture import serve
from tests.emulator.machines_lab import lab
from tests.emulator.storage_kit import a_storage, routed

Run = Callable[..., tuple[int, str]]

# Each step: the words after `gcloud storage`, the exit status, and what it prints on standard output.
# The real gcloud takes seconds for a step, so it runs the decisive ones; the rest was observed with it once.
DECISIVE = [
    ("cp -r tree gs://data/new", 0, ""),
    ("cp -r tree gs://data/new", 0, ""),
    ("cp --if-generation-match=0 tree/sub/b gs://data/new/a.txt", 1, ""),
    ("rsync -r --delete-unmatched-destination-objects gs://data/new tree", 0, ""),
    ("ls gs://data/none", 1, ""),
]
RECORDED = [
    ("cp tree/a.txt gs://data/x/", 0, ""),
    ("cp -r tree gs://data/new", 0, ""),
    ("cp -r tree gs://data/new", 0, ""),
    ("cp tree gs://data/d", 1, ""),
    ("cp nothing gs://data/d", 1, ""),
    ("cp -r gs://data/x missing", 1, ""),
    ("cp gs://data/none file", 1, ""),
    ("cp gs://data/x/a.txt file", 0, ""),
    ("cp --if-generation-match=0 file gs://data/x/a.txt", 1, ""),
    ("cp --no-clobber tree/sub/b gs://data/x/a.txt", 0, ""),
    ("cat gs://data/x/a.txt gs://data/new/sub/b", 0, "hibb"),
    ("ls gs://data/new", 0, "gs://data/new/a.txt\ngs://data/new/sub/\ngs://data/new/tree/\n"),
    ("ls gs://data/none", 1, ""),
    ("rm gs://data/x", 1, ""),
    ("rm -r gs://data/new/tree", 0, ""),
    ("rsync -r tree gs://data/r", 0, ""),
    ("rm gs://data/r/a.txt", 0, ""),
    ("cp tree/a.txt gs://data/r/extra", 0, ""),
    ("rsync -r --delete-unmatched-destination-objects tree gs://data/r", 0, ""),
    ("rsync -r nothing gs://data/r", 1, ""),
    ("rsync -r gs://data/r back", 0, ""),
]


@pytest.fixture
def storage():
    """Return a storage with one bucket."""
    return a_storage()


@pytest.fixture(params=["stand-in", pytest.param("gcloud", marks=pytest.mark.gcloud)])
def run(request, storage, tmp_path, monkeypatch, capfdbinary) -> Run:
    """Return a call of `gcloud storage` that gives exit status and output."""
    if request.param == "gcloud" and shutil.which("gcloud") is None:
        pytest.skip("the stock gcloud is not installed")
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/a.txt").write_bytes(b"hi")
    (tmp_path / "tree/sub/b").write_bytes(b"bb")
    monkeypatch.chdir(tmp_path)
    with serve(routed(storage)) as url:
        for key, value in {
            "STORAGE_EMULATOR_HOST": url,
            "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{url}/storage/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": "p",
            "CLOUDSDK_CONFIG": str(tmp_path / ".gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        }.items():
            monkeypatch.setenv(key, value)

        def stand_in(line: str) -> tuple[int, str]:
            capfdbinary.readouterr()
            status = gcloud_standin.main(["storage", *line.split()])
            return status, capfdbinary.readouterr().out.decode()

        def gcloud(line: str) -> tuple[int, str]:
            done = subprocess.run(
                ["gcloud", "storage", *line.split()], capture_output=True, text=True, check=False
            )
            return done.returncode, done.stdout

        yield stand_in if request.param == "stand-in" else gcloud


def files(folder: Path) -> set[str]:
    """Return the names of all files below a folder."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_the_decisive_steps_end_alike_with_both(run, storage, tmp_path):
    """A second copy of a tree goes below the first, a precondition that fails is exit 1, rsync mirrors."""
    for line, status, output in DECISIVE:
        assert (line, *run(line)) == (line, status, output)
    names = {"new/a.txt", "new/sub/b", "new/tree/a.txt", "new/tree/sub/b"}
    assert {held.name for held in storage.objects.all()} == names
    assert files(tmp_path / "tree") == {name[len("new/") :] for name in names}
    assert (tmp_path / "tree/a.txt").read_bytes() == b"hi"


@pytest.mark.parametrize("run", ["stand-in"], indirect=True)
def test_the_stand_in_does_what_was_observed_with_gcloud(run, storage, tmp_path):
    """Exit statuses, output, object names and files are the same, step by step."""
    for line, status, output in RECORDED:
        assert (line, *run(line)) == (line, status, output)
    names = {"x/a.txt", "new/a.txt", "new/sub/b", "r/a.txt", "r/sub/b"}
    assert {held.name for held in storage.objects.all()} == names
    assert (tmp_path / "file").read_bytes() == b"hi"
    assert files(tmp_path / "back") == {"a.txt", "sub/b"}


def test_other_commands_are_refused_with_usage(capsys):
    """A stand-in must not seem to be the real thing."""
    for words in (
        ["compute", "instances", "list"],
        ["storage", "mv", "a", "b"],
        ["storage", "cp", "--gzip-local-all", "a", "b"],
    ):
        with pytest.raises(SystemExit) as refusal:
            gcloud_standin.main(words)
        assert refusal.value.code == 2
    assert "usage: gcloud" in capsys.readouterr().err


def test_a_machine_gets_the_stand_in_only_without_gcloud(tmp_path, monkeypatch):
    """It comes first on the PATH, and goes when a real gcloud appears."""
    which = shutil.which
    monkeypatch.setattr(
        machine_programs.shutil,
        "which",
        lambda name, **more: None if name == "gcloud" else which(name, **more),
    )
    with lab(ProcessMachines, tmp_path) as it:
        it.boot()
        assert it.output("command -v gcloud") == f"{it.folder}/guest/bin/gcloud"
        assert "stand-in" in it.output("gcloud --help")
    monkeypatch.setattr(machine_programs.shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    machine_programs.install_programs(tmp_path / "bin")
    (tmp_path / "bin/gcloud").write_text("old")
    machine_programs.install_programs(tmp_path / "bin")
    assert list((tmp_path / "bin").iterdir()) == []
