"""A VM that differs from the file is left alone, and this is said."""

from dataclasses import replace

import pytest

from orchestrator.domain.observation import Absent, Present, VmState
from orchestrator.planning.drift import changed, drift_notes
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import vm, world

AS_WANTED = vm(machine_type="e2-small", disk_gb=50, external_ip="203.0.113.7")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"machine_type": "e2-medium"}, "machine type e2-medium, the file wants e2-small"),
        ({"disk_gb": 20}, "disk 20 GB, the file wants 50 GB"),
        ({"spot": True}, "capacity spot, the file wants standard"),
        ({"external_ip": ""}, "external address no, the file wants yes"),
    ],
)
def test_each_difference_is_named(fields, said):
    """What the VM has comes first, then what is wanted."""
    found = replace(AS_WANTED, **fields)
    assert changed(a_spec(vm={}), found) == (said,)
    (text,) = drift_notes(a_spec(vm={}), world(vm=Present(found)))
    assert said in text
    assert text.endswith("`tpuctl down`, `tpuctl up`")


def test_nothing_is_said_of_a_vm_that_is_right_unknown_absent_or_unwanted():
    """Facts that the cloud did not show are no differences."""
    spec = a_spec(vm={})
    assert drift_notes(spec, world(vm=Present(AS_WANTED))) == ()
    assert drift_notes(spec, world(vm=Present(vm(state=VmState.TERMINATED)))) == ()
    assert drift_notes(spec, world(vm=Absent())) == ()
    assert drift_notes(a_spec(vm="none"), world(vm=Present(vm(spot=True)))) == ()
