"""`plan` starts from nothing until the deployment is up, and then from what exists; it never changes a thing."""

import pytest

from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.fixture
def user(tmp_path):
    """Give a computer whose deployment has a VM."""
    with VirtualCloud(tmp_path).open() as cloud:
        yield User(cloud, vm={})


def planned(user, *words):
    """Return the JSON of a plan that did not fail."""
    found = user.run("plan", "--json", *words)
    assert found.code in {0, 2}, found.err
    return found.document


def kinds(document):
    """Return kind and verb of each change."""
    return [(change["kind"], change["verb"]) for change in document["changes"]]


def test_before_up_plan_asks_no_cloud(user):
    """Neither network nor credentials are needed, and the plan says where it starts."""
    user.offline = True
    plan = planned(user)
    assert plan["compared_with"] == "nothing"
    assert ("tpu", "create") in kinds(plan)
    assert "offline (assumes that nothing exists yet)" in user.run("plan").out


def test_after_up_the_plan_is_about_what_exists(user):
    """No changes are planned, then only those that an edit makes; the calls of a plan only look."""
    user.up()
    made = user.cloud.mutations()
    assert (planned(user)["compared_with"], kinds(planned(user))) == ("cloud", [])
    assert "No changes" in user.run("plan").out
    user.write("train.py", "print('another step')\n")
    assert kinds(planned(user)) == [("bundle", "create"), ("job", "update")]
    assert user.cloud.mutations() == made


def test_a_plan_asks_for_the_machines_once(user):
    """What would change and the state of the deployment come from one observation."""
    user.up()
    before = user.cloud.model.calls["tpu.nodes.list"]
    planned(user)
    assert user.cloud.model.calls["tpu.nodes.list"] - before == 1


def test_offline_forgets_what_exists(user):
    """The same as on the first day, also without a network; without the flag the network is missed."""
    first = kinds(planned(user))
    user.up()
    user.offline = True
    assert kinds(planned(user, "--offline")) == first
    assert user.run("plan").code == 1


def test_the_exit_code_tells_changes_on_demand(user):
    """0 without changes, 2 with some, 1 for whatever goes wrong; without the flag as everywhere."""
    assert user.run("plan").code == 0
    assert user.run("plan", "--detailed-exitcode").code == 2
    user.up()
    assert user.run("plan", "--detailed-exitcode").code == 0
    assert user.run("plan", "--set", "tpu.nix=1").code == 2
    assert user.run("plan", "--detailed-exitcode", "--set", "tpu.nix=1").code == 1


def test_a_plan_ends_with_the_next_command(user):
    """First a rehearsal, which costs nothing; later `up` alone, and nothing where there is nothing to do."""
    rehearse = "  next:  `tpuctl rehearse` tries it here under preemptions, then: tpuctl up"
    assert rehearse in user.run("plan").err.splitlines()
    assert "next:" not in user.run("plan", "--json").err
    user.up()
    assert "next:" not in user.run("plan").err
    user.edit(tpu__type="v5litepod-8")
    user.write("train.py", "print('other')\n")
    assert "  next:  tpuctl up" in user.run("plan").err.splitlines()
    assert "next:" not in user.run("plan", "--output", str(user.folder / "plan.json")).err


def test_a_vm_with_drift_is_not_touched_and_named(user):
    """Plan, up and explain say so, and no call touches the VM."""
    user.up()
    made = user.cloud.mutations()
    user.edit(vm={"machine_type": "e2-medium", "disk_gb": 80})
    (note,) = (text for text in planned(user)["notes"] if "the VM stays" in text)
    for text in (note, user.up().err, user.run("explain").out):
        words = " ".join(text.split())
        assert "machine type e2-small, the file wants e2-medium; disk 50 GB, the file wants 80 GB" in words
    assert user.cloud.mutations() == made


def test_plan_check_and_up_have_the_same_findings_before_and_after_up(user):
    """What exists says nothing of the code; `up` names at least the rules."""
    user.edit(job__setup="pip install -r requirements.txt")
    user.write("train.py", "import einops\nprint('step')\n")
    found = user.run("check", "--json").document["findings"]
    rules = {one["rule"] for one in found if one["level"] != "note"}
    assert {"requirements-file-missing", "missing-requirement", "checkpoint-dir-unused"} <= rules
    assert planned(user)["check"]["findings"] == found
    said = user.up().err
    assert "job.setup: it names requirements.txt, which is not in the source folder. To change: " in said
    (line,) = [line for line in said.splitlines() if "of `tpuctl check`: " in line]
    assert line == "2 warnings of `tpuctl check`: no-save, missing-requirement"
    assert planned(user)["check"]["findings"] == found
    assert "Check: " in user.run("plan").out
