"""Questions of `doctor`: ranges of a firewall rule, and the family of the VM's image."""

import pytest

from orchestrator.advice.doctor.google import IAP_RANGE
from orchestrator.domain.observation import Absent, Present
from orchestrator.emulator.state.vm import vm_rules
from orchestrator.google.project_reader import ProjectReader, _covers
from tests.google.adapter_lab import a_lab


@pytest.mark.parametrize(
    ("ranges", "enough"),
    [
        ([IAP_RANGE], True),
        (["0.0.0.0/0"], True),
        (["::/0", "35.235.0.0/16"], True),
        (["35.235.240.0/21", "35.235.248.0/21"], False),
        (["10.128.0.0/9", "::/0"], False),
        ([], False),
    ],
)
def test_a_rule_must_hold_all_of_the_range(ranges, enough):
    """A part is not enough: the next connection comes from the other one."""
    assert _covers(ranges, IAP_RANGE) is enough


def test_the_family_of_the_vms_image_is_found_until_google_withdraws_it(monkeypatch):
    """The official client asks; a family that is gone is Absent, not an error."""
    reader = ProjectReader(a_lab().clients)
    assert reader.vm_image("e2-small") == Present("ubuntu-2404-lts-amd64-v20260101")
    assert reader.vm_image("c4a-standard-1") == Present("ubuntu-2404-lts-arm64-v20260101")
    monkeypatch.setitem(vm_rules.FAMILIES, "ubuntu-os-cloud", ())
    assert isinstance(reader.vm_image("e2-small"), Absent)
