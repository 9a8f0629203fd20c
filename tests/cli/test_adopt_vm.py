"""`tpuctl adopt --vm`: labels first, then a normal lifetime; it is never created, and deleted only on request."""

import sys

import pytest

from orchestrator.domain.remote import Host
from orchestrator.ssh.connect.pinned_keys import recall, remember
from orchestrator.ssh.connect.ssh_settings import KNOWN_HOSTS
from tests.cli.cli_kit import Terminal
from tests.cli.test_adopt import ZONE
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User

NAME, MINE = "their-vm", "me:ssh-ed25519 AAAA mine"
SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]
IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
INSIDE = {"network": "global/networks/default"}
ACCOUNT = "7000000000-compute@developer.gserviceaccount.com"


@pytest.fixture
def cloud(tmp_path):
    """Give a cloud with a VM that somebody has made."""
    with VirtualCloud(tmp_path).open() as one:
        by_hand(one)
        yield one


def by_hand(cloud, name=NAME, zone=ZONE, *, metadata=(), keep_disk=False, **fields):
    """Make a VM as somebody does without tpuctl."""
    keys = {"ssh-keys": MINE, "startup-script": "#!/bin/sh\necho mine", **dict(metadata)}
    body = {
        "name": name,
        "machineType": f"zones/{zone}/machineTypes/e2-medium",
        "labels": {"owner": "me"},
        "metadata": {"items": [{"key": key, "value": value} for key, value in keys.items()]},
        "disks": [
            {
                "boot": True,
                "autoDelete": not keep_disk,
                "initializeParams": {
                    "sourceImage": IMAGE, "diskSizeGb": "20",
                },
            }
        ],
        "networkInterfaces": [{**INSIDE, "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "serviceAccounts": [{"email": cloud.model.settings.default_service_account, "scopes": SCOPES}],
        **fields,
    }  # fmt: skip
    cloud.model.compute.insert(zone, body)
    cloud.wait(60)


def user_of(cloud, place="home", **more):
    """Return a user whose file names that VM."""
    vm = {"name": NAME, "machine_type": "e2-medium", "disk_gb": 20, **more.pop("vm", {})}
    return User(cloud, place, vm=vm, **more)


def vm(cloud, zone=ZONE):
    """Return the VM as the cloud has it."""
    return cloud.model.compute.get(zone, NAME)


def is_as_before(cloud):
    """Return whether the VM has its owner's labels and keys, and no others."""
    one = vm(cloud)
    return one.labels == {"owner": "me"} and one.metadata["ssh-keys"] == MINE


def test_an_adopted_vm_serves_the_deployment_and_is_given_back(cloud):
    """Its owner's labels, keys and startup script stay; `down` takes off what is ours, and no second VM is made."""
    user = user_of(cloud)
    said = user.run("adopt", "--vm", NAME, "--yes", "--json")
    assert said.code == 0, said.err
    assert said.document == {
        "schema_version": 1, "kind": "adopt-vm", "vm": NAME, "zone": ZONE, "at_down": "keep",
    }  # fmt: skip
    assert vm(cloud).labels == {
        "owner": "me", "tpuctl-deployment": "demo", "tpuctl-role": "vm", "tpuctl-adopted": "keep",
    }  # fmt: skip
    keys = vm(cloud).metadata["ssh-keys"].splitlines()
    assert (keys[0], len(keys)) == (MINE, 2)
    assert vm(cloud).metadata["startup-script"].endswith("echo mine")
    assert cloud.machines.workers[vm(cloud).machine_id].env["TPUCTL_DEPLOYMENT"] == "demo", "it was prepared"
    user.up()
    assert (cloud.vms(), cloud.in_use()) == ({NAME: "RUNNING"}, ["demo-tpu-g1"])
    before = len(cloud.log)
    assert user.run("adopt", "--vm", NAME, "--yes").code == 0
    assert [c for c in cloud.log[before:] if c.method.startswith("compute.")] == []
    said = user.down()
    assert f"VM {NAME} is given back" in said.err
    assert f"gcloud compute instances delete {NAME}" in said.err
    assert (cloud.vms(), cloud.nodes(), is_as_before(cloud)) == ({NAME: "RUNNING"}, {}, True)
    tpu_alone = user.run("adopt", "--vm", NAME, "--yes"), user.run("down", "--yes")
    assert "this ends" not in tpu_alone[1].err, "it is billed on"
    assert cloud.machines.workers[vm(cloud).machine_id].env == {}, "what was ours on it was stopped"
    # A later deployment takes it again.
    assert user.run("adopt", "--vm", NAME, "--yes").code == 0
    user.up()
    assert list(cloud.vms()) == [NAME]


def test_watch_starts_it_again_and_makes_none_in_its_place(cloud):
    """One that is stopped is started; one that its owner has deleted is said to be gone, and the TPU works on."""
    user = user_of(cloud)
    user.run("adopt", "--vm", NAME, "--yes")
    user.up()
    cloud.model.compute.stop(ZONE, NAME)
    user.watch(600)
    assert cloud.vms() == {NAME: "RUNNING"}
    cloud.model.compute.delete(ZONE, NAME)
    said = user.watch(900)
    assert f"{NAME} is gone; it was adopted, so tpuctl makes none in its place" in said.err
    assert (cloud.vms(), cloud.in_use()) == ({}, ["demo-tpu-g1"])
    # The TPU is replaced without it: the job must not wait for a VM that nobody makes.
    cloud.model.tpu.preempt(cloud.model.tpu.get(ZONE, "demo-tpu-g1"), notice=False)
    user.watch(900)
    assert (cloud.vms(), cloud.in_use()) == ({}, ["demo-tpu-g2"])
    assert user.down().code == 0


def test_up_requests_no_machine_before_it_is_adopted(cloud):
    """The error names the command; `plan` says it before."""
    user = user_of(cloud)
    assert f"adopted first: tpuctl adopt --vm {NAME}" in " ".join(user.run("plan").out.split())
    said = user.run("up")
    assert said.code == 2, said.err
    assert f"run: tpuctl adopt --vm {NAME}" in said.err
    assert (cloud.nodes(), is_as_before(cloud), list(cloud.vms())) == ({}, True, [NAME])
    assert f"To adopt it: tpuctl adopt --vm {NAME}" in " ".join(user.run("plan").out.split())


def test_a_job_that_is_done_stops_it_and_deletes_nothing(cloud):
    """As the VM of every deployment; its time to live ends it the same way."""
    user = user_of(cloud)
    user.run("adopt", "--vm", NAME, "--yes", "--at-down", "delete")
    user.up()
    cloud.machines.say("demo", phase="done", committed_step=5)
    user.watch(900)
    assert (cloud.vms(), cloud.nodes()) == ({NAME: "TERMINATED"}, {})


@pytest.mark.parametrize(("said_then", "word", "gone"), [
    ("delete", None, True), ("keep", None, False), ("delete", "keep", False), ("keep", "delete", True),
])  # fmt: skip
def test_down_does_what_was_said_and_its_own_word_is_the_last(cloud, said_then, word, gone):
    """Nobody is asked: it was settled when it was adopted."""
    user = user_of(cloud)
    user.run("adopt", "--vm", NAME, "--yes", "--at-down", said_then)
    user.up()
    pins = user.state / "gcp" / "local-project" / "demo" / KNOWN_HOSTS
    remember(pins, Host(NAME, "127.0.0.1", ("ssh-ed25519 A",)))
    assert user.run("down", "--yes", *(("--at-down", word) if word else ())).code == 0
    assert cloud.vms() == ({} if gone else {NAME: "RUNNING"})
    assert gone or is_as_before(cloud)
    assert bool(recall(pins, NAME)) != gone, (
        "who is adopted again has to show the same key, or is warned about"
    )


def test_a_vm_that_becomes_ours_while_down_is_at_work_is_named_and_stays(cloud):
    """Nobody was asked about it: whoever types `down` once more is, and it goes back to its owner."""
    user = User(cloud)
    user.up()
    ours = {"tpuctl-deployment": "demo", "tpuctl-role": "vm", "tpuctl-adopted": "keep"}
    said = user.run(
        "down", "--yes", meanwhile={"tpu.nodes.delete": lambda: vm(cloud).labels.update(ours)}
    )  # fmt: skip
    assert (said.code, f"VM {NAME}" in said.err) == (5, True), said.err
    assert (cloud.nodes(), cloud.vms()) == ({}, {NAME: "RUNNING"})
    user.down()
    assert (cloud.vms(), is_as_before(cloud)) == ({NAME: "RUNNING"}, True)


def test_a_stopped_vm_is_given_back_with_what_remains_to_be_done(cloud):
    """Its disk cannot be reached, so the cron jobs on it are named."""
    user = user_of(cloud)
    user.run("adopt", "--vm", NAME, "--yes")
    cloud.model.compute.stop(ZONE, NAME)
    cloud.wait(300)
    said = user.run("down", "--yes")
    assert said.code == 0, said.err
    assert "sudo rm -f /etc/cron.d/tpuctl*" in said.err
    assert (is_as_before(cloud), cloud.vms()) == (True, {NAME: "TERMINATED"})


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"machineType": f"zones/{ZONE}/machineTypes/e2-small"}, "vm.machine_type: e2-small"),
        ({"scheduling": {"provisioningModel": "SPOT"}}, "vm.spot: true"),
        ({"networkInterfaces": [INSIDE]}, "vm.external_ip: false"),
    ],
)
def test_another_shape_is_refused_with_the_line_to_change(tmp_path, fields, line):
    """The file says what the machine is, and prices follow from it."""
    with VirtualCloud(tmp_path).open() as cloud:
        by_hand(cloud, **fields)
        before = len(cloud.log)
        said = user_of(cloud).run("adopt", "--vm", NAME, "--yes")
        assert said.code == 2
        assert f"    {line}" in said.err
        assert "nothing was changed" in said.err
        assert (len(cloud.log), is_as_before(cloud)) == (before, True)


@pytest.mark.parametrize(
    ("made", "words", "why"),
    [
        ({"labels": {"tpuctl-deployment": "other"}}, (), "belongs to the deployment other"),
        ({"metadata": {"enable-oslogin": "TRUE"}}, (), "log in to it by OS Login"),
        ({"serviceAccounts": [{"email": ACCOUNT, "scopes": ["https://www.googleapis.com/auth/logging.write"]}]}, (),
         "set-service-account their-vm --zone"),
        ({"deletionProtection": True}, ("--at-down", "delete"), "protected against deletion"),
        ({"keep_disk": True}, ("--at-down", "delete"), "would outlive it"),
    ],
)  # fmt: skip
def test_what_no_line_can_mend_is_refused(tmp_path, made, words, why):
    """Nothing is changed, on the VM or elsewhere."""
    with VirtualCloud(tmp_path).open() as cloud:
        by_hand(cloud, **made)
        before = (dict(vm(cloud).labels), dict(vm(cloud).metadata))
        said = user_of(cloud).run("adopt", "--vm", NAME, "--yes", *words)
        assert (said.code, cloud.buckets()) == (2, [])
        assert why in " ".join(said.err.split())
        assert (vm(cloud).labels, vm(cloud).metadata) == before


def test_a_vm_that_is_stopped_elsewhere_or_absent_is_refused(cloud):
    """Each with its reason."""
    user = user_of(cloud)
    assert f"there is no VM other in {ZONE}" in user.run("adopt", "--vm", "other", "--yes").err
    assert "there is no VM" in user.run("adopt", "--vm", NAME, "--zone", "us-west4-a", "--yes").err
    cloud.model.compute.stop(ZONE, NAME)
    cloud.wait(300)
    assert "only a VM that runs can be adopted" in user.run("adopt", "--vm", NAME, "--yes").err


def test_a_second_vm_is_refused(cloud):
    """The deployment has one of its own making."""
    user = User(cloud, vm={"machine_type": "e2-small"})
    user.up()
    user.edit(vm={"name": NAME, "machine_type": "e2-medium", "disk_gb": 20})
    said = user.run("adopt", "--vm", NAME, "--yes")
    assert said.code == 2
    assert "the deployment has a VM already: demo-vm" in said.err
    assert is_as_before(cloud)


def test_without_a_host_key_nothing_is_done(cloud):
    """What answers could be anybody."""
    cloud.model.kernel.state.guest.clear()
    said = user_of(cloud).run("adopt", "--vm", NAME, "--yes")
    assert said.code == 2
    assert "has published no host key" in said.err
    assert (cloud.buckets(), is_as_before(cloud)) == ([], True)


def test_a_no_changes_nothing_and_quiet_says_no_more_than_the_question(cloud, monkeypatch):
    """It says first what it would change; --quiet leaves that out."""
    for words, reported in (((), True), (("--quiet",), False)):
        monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
        user = user_of(cloud, f"home{len(words)}")
        said = user.run("adopt", "--vm", NAME, *words)
        assert (said.code, cloud.buckets(), is_as_before(cloud)) == (1, [], True)
        assert ("labels of the deployment" in said.err) is reported


def test_of_two_that_adopt_it_at_once_one_is_refused(cloud):
    """The labels are another version when the second one comes."""
    first, second = user_of(cloud, name="first"), user_of(cloud, "other", name="second")
    between = {"compute.instances.setLabels": lambda: first.run("adopt", "--vm", NAME, "--yes")}
    said = second.run("adopt", "--vm", NAME, "--yes", meanwhile=between)
    assert said.code not in {0, None}
    assert vm(cloud).labels["tpuctl-deployment"] == "first"


def calls_of_adopt(tmp_path):
    """Return how many mutating calls an undisturbed `adopt --vm` makes."""
    with VirtualCloud(tmp_path / "counted").open() as one:
        by_hand(one)
        return user_of(one).run("adopt", "--vm", NAME, "--yes").calls


@pytest.mark.parametrize("then", ["adopt", "up", "down"])
def test_a_kill_at_any_call_is_put_right(tmp_path, then):
    """The next try adopts it, `up` makes no other, and `down` leaves it as its owner had it."""
    total = calls_of_adopt(tmp_path)
    tried = 0
    for number in range(1, total + 1):
        for moment in ("before", "after"):
            with VirtualCloud(tmp_path / f"{then}-{number}-{moment}").open() as cloud:
                by_hand(cloud)
                user = user_of(cloud)
                if user.run("adopt", "--vm", NAME, "--yes", kill=(number, moment)).code is not None:
                    continue
                tried += 1
                ours = vm(cloud).labels.get("tpuctl-adopted") == "keep"
                if then == "adopt":
                    said = user.run("adopt", "--vm", NAME, "--yes")
                    assert said.code == 0, (number, moment, said.err)
                    assert vm(cloud).labels["tpuctl-adopted"] == "keep"
                elif then == "up":
                    assert (user.run("up").code == 0) is ours, (number, moment)
                    assert bool(cloud.in_use()) is ours, (number, moment)
                else:
                    said = user.run("down", "--yes")
                    assert said.code == 0, (number, moment, said.err)
                    assert is_as_before(cloud), (number, moment, vm(cloud).labels)
                assert list(cloud.vms()) == [NAME], (number, moment)
    assert tried > total
