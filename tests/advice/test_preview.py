"""What `plan` shows before anything is changed."""

import json
import re
from dataclasses import replace

from orchestrator.advice.preview import preview
from orchestrator.config.load import read
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.machines.image_python import python_text
from orchestrator.domain.machines.scopes import MACHINE_SCOPES, node_scopes
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.wait import Wait
from tests.planning.planning_kit import a_spec

NODE = Change(Kind.NODE, Verb.CREATE, "demo-tpu-g3", "there is none yet", "europe-west4-a", 3)
BUCKET = Change(Kind.BUCKET, Verb.CREATE, "", "there is none yet", "europe-west4")


def view(*changes, **overrides):
    """Return the preview of changes to a deployment with overrides."""
    return preview(a_spec(**overrides), Plan(changes), load_catalog())


def test_without_an_account_the_default_one_is_named_as_such():
    """Offline nobody knows the project's number."""
    assert view().account_text == "the project's default compute account, looked up by `up`"
    assert view(service_account="me@x").account_text == "me@x"


def test_what_is_waited_for_has_its_seconds_as_a_number():
    """As in `status --json`."""
    waited = preview(a_spec(), Plan(waits=(Wait("TPU: next try", 20.0),)), load_catalog())
    assert waited.as_dict()["waits_for"] == [{"what": "TPU: next try", "in_s": 20.0, "message": ""}]


def test_the_bucket_has_its_real_name_as_soon_as_the_project_is_known():
    """Before that, its shape is reported and the JSON says null."""
    spec = a_spec()
    assert view(BUCKET).title(BUCKET) == names.bucket_name(spec, "my-project")
    unknown = view(BUCKET, project=None)
    assert unknown.bucket is None
    assert unknown.title(BUCKET) == "tpuctl-demo-<digest of project and name>"


def test_prices_are_those_of_the_zone_that_would_be_used():
    """After a failover it is not the first zone."""
    zones = ["europe-west4-b", "europe-west4-a"]
    assert view(NODE, tpu__zones=zones).hourly.zone == "europe-west4-a"
    assert view(tpu__zones=zones).hourly.zone == "europe-west4-b"


def test_one_chip_is_no_plural():
    """The smallest type has one, with one worker."""
    assert view(NODE, tpu__type="v5litepod-1").details(NODE)["shape"] == "1 chip (1x1), 1 worker"


def test_labels_are_those_that_resources_will_carry():
    """The node's labels have its incarnation."""
    assert view(NODE).labels["tpu"] == names.labels(a_spec(), "tpu", 3)
    assert "vm" not in view(vm="none").labels


def test_each_tpu_of_a_race_has_labels_of_its_own():
    """Own incarnation, one round; what is deleted gets no labels."""
    first, second = (
        Change(Kind.NODE, Verb.CREATE, f"demo-tpu-g{n}", "", zone, n, round=3)
        for n, zone in ((3, "europe-west4-a"), (4, "europe-west4-b"))
    )
    shown = view(first, second)
    assert [shown.labels_of(change) for change in (first, second)] == [
        names.labels(a_spec(), "tpu", n, 3) for n in (3, 4)
    ]
    assert shown.labels_of(replace(second, verb=Verb.DELETE)) == {}


def test_a_deletion_tells_no_order():
    """Only what is created has a machine type and the like."""
    gone = Change(Kind.NODE, Verb.DELETE, "demo-tpu-g2", "silent", "europe-west4-b", 2, never_reported=True)
    assert view(gone).details(gone) == {"never_reported": "it has never reported"}


def test_what_a_new_project_may_not_have_is_said():
    """With the type that would fit; what this project has is not known without asking."""

    def said(**settings):
        return [note for note in view(**settings).notes if "new project" in note]

    (note,) = said(tpu__type="v5litepod-8")
    assert note.startswith(
        "v5litepod-8 takes 8 chips of quota, a new project has 4: v5litepod-4 would fit, or ask"
    )
    (note,) = said(tpu__type="v5litepod-64", tpu__spot=False)
    assert "takes 64 chips of quota, a new project has 16: v5litepod-16 would fit" in note
    (note,) = said(tpu__type="v6e-4", tpu__zones=["us-east5-b"])
    assert "a new project has 0: ask Google for more first. What yours has: tpuctl doctor" in note
    assert said(tpu__type="v5litepod-4") == said(tpu__type="v5litepod-16") == []


def test_a_zone_with_restricted_access_is_a_note():
    """What else is doubtful in the file is a finding of the check, which `plan` shows at its end."""
    notes = view(vm__machine_type="e2-smal", tpu__zones=["us-east5-b"]).notes
    assert "us-east5-b is not in Google's public list" in notes[0]


def test_programs_get_all_of_it_and_scripts_on_demand():
    """The value is JSON from end to end."""
    shown = preview(a_spec(), Plan((BUCKET, NODE)), load_catalog(), scripts={"startup": "#!/bin/sh"})
    body = json.loads(json.dumps(shown.as_dict()))
    assert "scripts" not in body
    assert body["scopes"] == list(MACHINE_SCOPES)
    assert [c["name"] for c in body["changes"]] == [shown.bucket, "demo-tpu-g3"]
    assert shown.as_dict(scripts=True)["scripts"] == {"startup": "#!/bin/sh"}


def test_unknown_prices_are_null_for_programs():
    """Zero would mean free."""
    price = view(tpu__type="v4-8", tpu__zones=["us-central2-b"]).as_dict()["price"]
    assert price["billed_usd_hour"] is None
    assert price["to_ttl_usd"] is None
    assert "VM e2-small" in price["unpriced"]


def test_the_plan_says_what_pulling_the_image_needs():
    """Scopes stay narrow; the role on the repository is the user's to grant, and only for Google's registries."""
    wanted = {"europe-docker.pkg.dev/p/r/train:1": True, "docker.io/me/train:1": False}
    for image, is_googles in wanted.items():
        details = view(NODE, job__image=image).details(NODE)
        assert details["image"] == f"{image}, by its tag, pinned at the first pull"
        assert ("roles/artifactregistry.reader" in details.get("to pull the image", "")) is is_googles
        assert node_scopes(a_spec(job__image=image)) == MACHINE_SCOPES


def test_the_local_cloud_may_have_another_python_than_the_image():
    """It has the image's only where this computer has it; before `up`, no command could show which one it is."""
    local = python_text(a_spec(), load_catalog(), local=True)
    assert (
        local
        == "3.10, the image's (a machine of the local cloud may have another one: `tpuctl local status`)"
    )
    assert python_text(a_spec(job__python="3.12"), load_catalog(), local=True).startswith("3.12 by")


def test_the_python_of_the_job_is_said_and_an_unknown_one_as_unknown():
    """Beside the image that has it; a container has its own."""
    vm = Change(Kind.VM, Verb.CREATE, "demo-vm", "there is none yet", "europe-west4-a")
    found = {
        "3.10, the image's": {},
        "not known for this image": {"tpu__runtime": "tpu-vm-v4-base"},
        "3.12 by job.python; the image has 3.10": {"job__python": "3.12"},
        "3.12 by job.python": {"job__python": "3.12", "tpu__runtime": "tpu-vm-v4-base"},
        None: {"job__image": "docker.io/me/train:1"},
    }
    for text, settings in found.items():
        assert view(NODE, **settings).details(NODE).get("python") == text
    assert "python" not in view(vm).details(vm)
    on_vm = view(vm, job__run_on="vm")
    assert on_vm.details(vm)["python"] == "3.12, the image's"
    assert "python" not in on_vm.details(NODE)


def test_the_most_that_a_deadline_costs_is_not_rounded_down():
    """On demand for all of the time, as nobody knows when spot does not do."""
    file = b"name: demo\ntpu: {type: v5litepod-4, zones: [europe-west4-a]}\n"
    file += b"job: {command: x, target_steps: 9}\nwatch: {deadline: 7h}\n"
    shown = preview(read(file, "tpuctl.yaml", environ={}), Plan((NODE,)), load_catalog())
    most = 7 * shown.hourly.on_demand_usd
    (said,) = re.findall(r"at most ([0-9.]+) USD in all", shown.details(NODE)["deadline"])
    assert most <= float(said) < most + 0.01
