"""The pinned uv goes to the bucket with the code, once, under the name that machines ask for."""

import gzip
import hashlib
import platform

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.source import wanted
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.contract.uv_pin import PROGRAMS, object_name
from orchestrator.domain.spec import VmSpec
from orchestrator.errors import TransientError
from tests.engine.engine_lab import EngineLab, one_zone_spec

OURS = object_name(PROGRAMS[platform.machine()])


def test_up_brings_uv_once_and_a_machine_can_check_it(tmp_path):
    """The object is the program whose sha256 the agent knows; the next code does not send it again."""
    lab = EngineLab(tmp_path)
    one = lab.controller()
    wanted.download_uv(one_zone_spec(), one.deployment.bundles, Reporter())
    one.up()
    one.run(until=lambda _: one.record.job.uploaded != "")
    program = gzip.decompress(lab.get(OURS))
    assert hashlib.sha256(program).hexdigest() == PROGRAMS[platform.machine()]


def test_up_goes_on_without_uv(tmp_path, monkeypatch, capsys):
    """A computer that cannot reach the package index says so, and what to do."""

    def nothing(machine, folder):
        raise TransientError("uv cannot be fetched: no network", hint="run: pip install uv==1")

    monkeypatch.setattr(wanted.uv_program, "packed", nothing)
    wanted.download_uv(one_zone_spec(), tmp_path, EventPrinter())
    assert "Jobs that use tpuctl-venv will fail; run: pip install uv==1" in " ".join(
        capsys.readouterr().err.split()
    )


def test_an_arm_vm_gets_its_own(tmp_path, monkeypatch):
    """Only a VM with Arm processors needs the second program."""
    asked = []
    monkeypatch.setattr(wanted.uv_program, "packed", lambda machine, _: asked.append(machine))
    wanted.download_uv(one_zone_spec(vm=VmSpec(machine_type="e2-small")), tmp_path, Reporter())
    wanted.download_uv(one_zone_spec(vm=VmSpec(machine_type="c4a-standard-1")), tmp_path, Reporter())
    assert asked == ["x86_64", "x86_64", "aarch64"]
