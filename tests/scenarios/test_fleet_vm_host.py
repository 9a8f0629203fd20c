"""Where a fleet's VM is reached: remembered from the last look, and looked up again when nobody answers there."""

import json

import pytest

from tests.scenarios.test_fleet import FleetOwner


@pytest.fixture
def owner(cloud):
    """Give the computer of a fleet of one node."""
    return FleetOwner(cloud, fleet__nodes=1)


def asked_of_compute(cloud):
    """Note from now on what Compute Engine is asked for."""
    asked = []

    def note(method, response):
        if method.startswith("compute."):
            asked.append(method)
        return response

    cloud.distort = note
    return asked


def test_only_the_first_command_asks_compute_engine_where_the_vm_is(cloud, owner):
    """Its client takes longer to load than all the rest of `fleet queue`."""
    owner.up("--yes")
    owner.submit(tasks=1)
    asked = asked_of_compute(cloud)
    assert (owner.states("sweep"), asked) == (["running"], [])


@pytest.mark.parametrize("text", ['{"name": "demo-vm", "address": "10.9.9.9", "port": 22}', "not JSON"])
def test_a_vm_that_does_not_answer_where_it_was_is_looked_up_and_remembered(cloud, owner, text):
    """It may have been made again elsewhere; a note that cannot be read means nothing."""
    owner.up("--yes")
    (note,) = owner.state.glob("**/vm-host.json")
    right = json.loads(note.read_bytes())
    note.write_text(text)
    said = owner.submit(tasks=1)
    assert (said.code, json.loads(note.read_bytes())) == (0, right)


def test_a_deleted_vm_is_not_taken_for_a_foreign_one_at_its_old_address(cloud, owner):
    """Nothing of the note is believed when nobody answers there."""
    owner.up("--yes")
    (vm,) = cloud.model.kernel.state.instances.values()
    cloud.model.compute.stop(vm.zone, vm.name)
    cloud.wait(600)
    said = owner.submit(tasks=1)
    assert said.code != 0
    assert "does not run" in said.err
