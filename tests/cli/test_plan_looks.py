"""`plan` starts from nothing until the deployment is up, and then from what exists; it never changes a thing."""

import pytest

from tests.scenarios.desk import Desk
from tests.scenarios.town import Town


@pytest.fixture
def desk(tmp_path):
    """Give a computer whose deployment has a VM."""
    with Town(tmp_path).open() as town:
        yield Desk(town, vm={})


def planned(desk, *words):
    """Return the JSON of a plan that did not fail."""
    found = desk.run("plan", "--json", *words)
    assert found.code in {0, 2}, found.err
    return found.document


def kinds(document):
    """Return kind and verb of each change."""
    return [(change["kind"], change["verb"]) for change in document["changes"]]


def test_before_up_nobody_is_asked(desk):
    """Neither network nor credentials are needed, and the plan says where it starts."""
    desk.offline = True
    plan = planned(desk)
    assert plan["seen"] == "nothing"
    assert ("node", "create") in kinds(plan)
    assert "no cloud was asked" in desk.run("plan").out


def test_after_up_the_plan_is_about_what_exists(desk):
    """No changes are planned, then only those that an edit makes; the calls of a plan only look."""
    desk.up()
    made = desk.town.mutations()
    assert (planned(desk)["seen"], kinds(planned(desk))) == ("cloud", [])
    assert "No changes" in desk.run("plan").out
    desk.write("train.py", "print('another step')\n")
    assert kinds(planned(desk)) == [("bundle", "create"), ("job", "update")]
    assert desk.town.mutations() == made


def test_offline_forgets_what_exists(desk):
    """The same as on the first day, also without a network; without the flag the network is missed."""
    first = kinds(planned(desk))
    desk.up()
    desk.offline = True
    assert kinds(planned(desk, "--offline")) == first
    assert desk.run("plan").code == 1
    assert "--offline does not go with it" in desk.run("plan", "--offline", "--out", "p").err


def test_the_exit_code_tells_changes_on_demand(desk):
    """0 without changes, 2 with some, 1 for whatever goes wrong; without the flag as everywhere."""
    assert desk.run("plan").code == 0
    assert desk.run("plan", "--detailed-exitcode").code == 2
    desk.up()
    assert desk.run("plan", "--detailed-exitcode").code == 0
    assert desk.run("plan", "--set", "tpu.nix=1").code == 2
    assert desk.run("plan", "--detailed-exitcode", "--set", "tpu.nix=1").code == 1


def test_a_vm_that_the_file_wants_otherwise_is_left_and_named(desk):
    """Plan, up and explain say so, and no call touches the VM."""
    desk.up()
    made = desk.town.mutations()
    desk.edit(vm={"machine": "e2-medium", "disk_gb": 80})
    (note,) = (text for text in planned(desk)["notes"] if "the VM stays" in text)
    for text in (note, desk.up().err, desk.run("explain").out):
        words = " ".join(text.split())
        assert "machine e2-small, the file wants e2-medium; disk 50 GB, the file wants 80 GB" in words
    assert desk.town.mutations() == made
