"""
Worlds that refuse: each ends quickly with its exit code, a reason and a next step.

The commands run inside the test's process, by the same front door, to save the time of their imports.
"""

import os
import time

import pytest

from orchestrator.cli.main import run

pytestmark = pytest.mark.e2e
ZONES = ("europe-west4-b", "europe-west4-a")
QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"
REFUSALS = {
    "stockout in all zones": (["--stockout", ZONES[0], "--stockout", ZONES[1]], 4, "tpuctl watch"),
    "no quota": ([f"--quota={QUOTA}@{zone}=0" for zone in ZONES], 4, "TPU-350"),
    "permission denied": (["--deny", "tpu.nodes.create"], 3, "tpu.nodes.create"),
    "API disabled": (["--disable-api", "tpu.googleapis.com"], 3, "gcloud services enable tpu.googleapis.com"),
    "bucket name taken": (["--taken-bucket", "taken-name"], 3, "bucket.name"),
}


@pytest.fixture
def inside(lab, monkeypatch):
    """Make this process a user of the lab."""
    monkeypatch.chdir(lab.work)
    for name in [n for n in os.environ if n.startswith(("TPUCTL_", "GOOGLE_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    for name in ("TPUCTL_LOCAL_DIR", "TPUCTL_CLOUD", "NO_COLOR", "COLUMNS", "PYTHONPATH"):
        monkeypatch.setenv(name, lab.environment[name])
    return lab


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusing_cloud_ends_up_with_its_exit_code_and_next_step(inside, capsys, what):
    """Nothing is asked for again and again, and the words say what to do."""
    options, code, words = REFUSALS[what]
    inside.write(command="sleep 600")
    assert run(["local", "start", "--latency", "instant", *options]) == 0
    began = time.monotonic()
    extra = ["--set", "bucket.name=taken-name"] if "bucket" in what else []
    assert run(["up", *extra]) == code, capsys.readouterr().err
    said = capsys.readouterr().err
    assert words in said
    assert "next:" in said
    assert time.monotonic() - began < 120
    assert inside.machines() == []


def test_a_stockout_in_the_first_zone_uses_the_second(inside, capsys):
    """Zones are a list in order of preference."""
    inside.write(command="sleep 600")
    assert run(["local", "start", "--stockout", ZONES[0]]) == 0
    assert run(["up"]) == 0, capsys.readouterr().err
    assert [ZONES[1] in m["id"] for m in inside.machines()] == [True]


def test_sources_that_cannot_be_pushed_are_refused_before_anything_exists(inside, capsys):
    """No file, a link out of the tree, 2 GB by mistake: exit code 2, quickly, with the file's name."""
    began = time.monotonic()
    assert run(["up"]) == 2
    assert "tpuctl.yaml" in capsys.readouterr().err
    inside.write(command="true")
    (inside.work / "out").symlink_to("/etc/hostname")
    assert run(["up"]) == 2
    assert "out" in capsys.readouterr().err
    (inside.work / "out").unlink()
    with (inside.work / "data.bin").open("wb") as file:
        file.truncate(2 << 30)
    assert run(["up"]) == 2
    assert "data.bin" in capsys.readouterr().err
    assert inside.bucket() == ""
    assert inside.machines() == []
    assert time.monotonic() - began < 120
