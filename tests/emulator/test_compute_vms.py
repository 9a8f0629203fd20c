"""The lifetime of VMs on Compute Engine, and what it refuses."""

import pytest

from tests.emulator.emulator_lab import PROJECT, UUID, VMS, ZONE, a_lab, vm_body

DISKS = VMS.replace("instances", "disks")
ZERO = "00000000-0000-0000-0000-000000000000"


def verbs(lab):
    """Return what the machines were asked for."""
    return [call for call, _ in lab.machines.calls]


def test_a_vm_goes_through_provisioning_and_staging_to_running():
    """Each status is observed; the machine boots when it is RUNNING."""
    lab = a_lab()
    started = lab.ok("POST", VMS, vm_body())
    assert (started["status"], started["operationType"]) == ("RUNNING", "insert")
    observed = [lab.ok("GET", f"{VMS}/v1")["status"]]
    for _ in range(2):
        lab.after(0.5)
        observed.append(lab.ok("GET", f"{VMS}/v1")["status"])
    assert observed == ["PROVISIONING", "STAGING", "RUNNING"]
    assert lab.operation(started)["status"] == "DONE"
    assert verbs(lab) == ["boot"]


def test_the_machine_carries_what_the_caller_asked_for():
    """Metadata, tags, account, scopes and the disk size reach the machine."""
    lab = a_lab()
    account = {"email": "a@b", "scopes": ["s1"]}
    metadata = {"items": [{"key": "startup-script", "value": "true"}]}
    vm = lab.vm(serviceAccounts=[account], metadata=metadata, tags={"items": ["t"]}, labels={"k": "v"})
    (machine,) = lab.cloud.machines()
    assert machine.id == f"vm-{ZONE}-v1-{vm['id']}"
    assert machine.attributes == {"startup-script": "true"}
    assert (machine.tags, machine.service_account, machine.scopes) == (("t",), "a@b", ("s1",))
    assert machine.disk_bytes == 20 << 30
    assert vm["labels"] == {"k": "v"}
    assert lab.cloud.machine_by_address(vm["networkInterfaces"][0]["networkIP"]) == machine


def test_a_boot_disk_outlives_a_stop_and_goes_with_the_vm():
    """Stop ends in TERMINATED and keeps disk and address; delete removes the auto-delete disk."""
    lab = a_lab()
    before = lab.vm()
    lab.ok("POST", f"{VMS}/v1/stop")
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "STOPPING"
    lab.after(0.5)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "TERMINATED"
    assert [disk["name"] for disk in lab.ok("GET", DISKS)["items"]] == ["v1"]
    lab.ok("POST", f"{VMS}/v1/start")
    lab.after(1)
    after = lab.ok("GET", f"{VMS}/v1")
    assert after["networkInterfaces"][0]["networkIP"] == before["networkInterfaces"][0]["networkIP"]
    assert verbs(lab) == ["boot", "notice", "stop", "boot"]
    lab.ok("DELETE", f"{VMS}/v1")
    lab.after(1)
    assert lab.ok("GET", DISKS)["items"] == []
    assert lab.call("GET", f"{VMS}/v1")[0] == 404


def test_a_disk_without_auto_delete_stays_and_can_be_deleted():
    """In use it is refused; afterwards it is listed until it is deleted."""
    lab = a_lab()
    body = vm_body()
    body["disks"][0]["autoDelete"] = False
    lab.ok("POST", VMS, body)
    lab.after(1)
    status, answer = lab.call("DELETE", f"{DISKS}/v1")
    assert (status, answer["error"]["errors"][0]["reason"]) == (400, "resourceInUseByAnotherResource")
    lab.ok("DELETE", f"{VMS}/v1")
    lab.after(1)
    assert lab.ok("GET", f"{DISKS}/v1")["users"] == []
    lab.ok("DELETE", f"{DISKS}/v1")
    lab.after(1)
    assert lab.call("GET", f"{DISKS}/v1")[0] == 404


def test_start_while_stopping_fails_inside_the_operation():
    """RESOURCE_NOT_READY with the HTTP status and message that clients look for."""
    lab = a_lab()
    lab.vm()
    lab.ok("POST", f"{VMS}/v1/stop")
    started = lab.ok("POST", f"{VMS}/v1/start")
    lab.after(1)
    ended = lab.operation(started)
    assert ended["error"]["errors"][0]["code"] == "RESOURCE_NOT_READY"
    assert (ended["httpErrorStatusCode"], ended["httpErrorMessage"]) == (400, "BAD REQUEST")


def test_a_stockout_leaves_neither_vm_nor_disk():
    """ZONE_RESOURCE_POOL_EXHAUSTED comes inside the operation."""
    lab = a_lab(stockouts=frozenset({ZONE}))
    started = lab.ok("POST", VMS, vm_body())
    lab.after(1)
    ended = lab.operation(started)
    assert ended["error"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert (ended["httpErrorStatusCode"], ended["httpErrorMessage"]) == (503, "SERVICE UNAVAILABLE")
    assert lab.ok("GET", VMS)["items"] == []
    assert lab.ok("GET", DISKS)["items"] == []


def test_the_cpus_quota_counts_vms_that_are_not_stopped():
    """QUOTA_EXCEEDED comes inside the operation; a stopped VM makes room, and start is checked too."""
    lab = a_lab(quotas={("CPUS", "europe-west4"): 2})
    lab.vm()
    refused = lab.ok("POST", VMS, vm_body("v2"))
    lab.after(1)
    ended = lab.operation(refused)
    assert ended["error"]["errors"][0]["code"] == "QUOTA_EXCEEDED"
    assert (
        ended["error"]["errors"][0]["message"] == "Quota 'CPUS' exceeded.  Limit: 2 in region europe-west4."
    )
    assert ended["httpErrorStatusCode"] == 403
    lab.ok("POST", f"{VMS}/v1/stop")
    lab.after(1)
    assert lab.vm("v2")["status"] == "RUNNING"
    again = lab.ok("POST", f"{VMS}/v1/start")
    lab.after(1)
    assert lab.operation(again)["httpErrorStatusCode"] == 403
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "TERMINATED"


def test_the_same_request_id_gives_the_same_operation():
    """A retried insert neither doubles nor fails; another body under the id does fail."""
    lab = a_lab()
    first = lab.ok("POST", f"{VMS}?requestId={UUID}", vm_body())
    again = lab.ok("POST", f"{VMS}?requestId={UUID}", vm_body())
    assert again["name"] == first["name"]
    assert first["clientOperationId"] == UUID
    status, answer = lab.call("POST", f"{VMS}?requestId={UUID}", vm_body("v2"))
    assert (status, answer["error"]["errors"][0]["reason"]) == (400, "invalid")
    assert lab.call("POST", VMS, vm_body())[0] == 409


@pytest.mark.parametrize("request_id", [ZERO, "not-a-uuid"])
def test_a_bad_request_id_is_refused(request_id):
    """The zero UUID and other texts are 400, and nothing is made."""
    lab = a_lab()
    assert lab.call("POST", f"{VMS}?requestId={request_id}", vm_body())[0] == 400
    assert lab.ok("GET", VMS)["items"] == []


@pytest.mark.parametrize(
    ("verb", "path", "body", "mark"),
    [
        ("setMetadata", ("metadata", "fingerprint"), {"items": [{"key": "a", "value": "b"}]}, "fingerprint"),
        ("setLabels", ("labelFingerprint",), {"labels": {"a": "b"}}, "labelFingerprint"),
        ("setTags", ("tags", "fingerprint"), {"items": ["a"]}, "fingerprint"),
    ],
)
def test_of_two_writers_with_one_fingerprint_the_second_is_refused(verb, path, body, mark):
    """412 conditionNotMet for a fingerprint that is old or missing."""
    lab = a_lab()
    current = lab.vm()
    for key in path:
        current = current[key]
    lab.ok("POST", f"{VMS}/v1/{verb}", {**body, mark: current})
    status, answer = lab.call("POST", f"{VMS}/v1/{verb}", {**body, mark: current})
    assert (status, answer["error"]["errors"][0]["reason"]) == (412, "conditionNotMet")
    assert lab.call("POST", f"{VMS}/v1/{verb}", body)[0] == 412


def test_the_account_of_a_stopped_vm_is_changed_and_its_machine_has_the_scopes():
    """A VM that runs is refused as Google refuses it; without an email there is no account."""
    lab = a_lab()
    lab.vm()
    scope = "https://www.googleapis.com/auth/cloud-platform"
    body = {"email": "default", "scopes": [scope]}
    status, answer = lab.call("POST", f"{VMS}/v1/setServiceAccount", body)
    assert (status, "must be stopped" in answer["error"]["message"]) == (400, True)
    lab.ok("POST", f"{VMS}/v1/stop")
    lab.after(1)
    lab.ok("POST", f"{VMS}/v1/setServiceAccount", body)
    lab.ok("POST", f"{VMS}/v1/start")
    lab.after(1)
    (account,) = lab.ok("GET", f"{VMS}/v1")["serviceAccounts"]
    assert account["scopes"] == [scope]
    (machine,) = lab.cloud.machines()
    assert (machine.service_account, machine.scopes) == (account["email"], (scope,))
    lab.ok("POST", f"{VMS}/v1/stop")
    lab.after(1)
    lab.ok("POST", f"{VMS}/v1/setServiceAccount", {"scopes": []})
    assert (
        "serviceAccounts" not in lab.ok("GET", f"{VMS}/v1")
        or lab.ok("GET", f"{VMS}/v1")["serviceAccounts"] == []
    )


def test_new_metadata_reaches_the_machine():
    """The metadata server sees what setMetadata wrote."""
    lab = a_lab()
    mark = lab.vm()["metadata"]["fingerprint"]
    items = [{"key": "ssh-keys", "value": "me:ssh-ed25519 AAAA"}]
    lab.ok("POST", f"{VMS}/v1/setMetadata", {"fingerprint": mark, "items": items})
    assert lab.cloud.machines()[0].attributes == {"ssh-keys": "me:ssh-ed25519 AAAA"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "Bad"}, "resource.name"),
        ({"machineType": "zones/z/machineTypes/nope"}, "resource.machineType"),
        ({"machineType": "zones/z/machineTypes/ct5lp-hightpu-1t"}, "not allowed to use the machine type"),
        ({"disks": []}, "disks"),
        ({"scheduling": {"preemptible": True, "automaticRestart": True}}, "AutomaticRestart"),
        ({"metadata": {"items": [{"key": "a b", "value": ""}]}}, "metadata"),
        ({"metadata": {"items": [{"key": "a", "value": "x" * 262145}]}}, "too large"),
    ],
)
def test_a_wrong_body_is_refused_and_nothing_is_made(fields, text):
    """400 names the field."""
    lab = a_lab()
    status, answer = lab.call("POST", VMS, {**vm_body(), **fields})
    assert status == 400
    assert text in answer["error"]["message"]
    assert lab.ok("GET", VMS)["items"] == lab.ok("GET", DISKS)["items"] == []


def test_errors_have_the_form_of_compute_engine():
    """code, message and errors[] with domain and reason."""
    lab = a_lab(denied_permissions=frozenset({"compute.instances.create"}))
    status, answer = lab.call("GET", f"{VMS}/nope")
    path = f"projects/{PROJECT}/zones/{ZONE}/instances/nope"
    item = {"message": f"The resource '{path}' was not found", "domain": "global", "reason": "notFound"}
    assert (status, answer["error"]["errors"]) == (404, [item])
    status, answer = lab.call("POST", VMS, vm_body())
    assert (status, answer["error"]["errors"][0]["reason"]) == (403, "forbidden")
    assert "'compute.instances.create' permission" in answer["error"]["message"]
    assert answer["error"]["message"].endswith("instances/v1'")


def test_a_disabled_api_is_not_configured():
    """403 accessNotConfigured in the domain usageLimits."""
    lab = a_lab(disabled_apis=frozenset({"compute.googleapis.com"}))
    status, answer = lab.call("GET", VMS)
    error = answer["error"]
    assert status == 403
    assert (error["errors"][0]["reason"], error["errors"][0]["domain"]) == (
        "accessNotConfigured",
        "usageLimits",
    )
    assert error["details"][0]["reason"] == "SERVICE_DISABLED"


def test_guest_attributes_and_their_absence():
    """404 with gcloud's text until the machine has written them."""
    lab = a_lab()
    lab.vm()
    target = f"{VMS}/v1/getGuestAttributes?queryPath=hostkeys/"
    status, answer = lab.call("GET", target)
    assert status == 404
    assert answer["error"]["message"] == "The resource 'hostkeys/' of type 'Guest Attribute' was not found."
    (machine,) = lab.cloud.machines()
    lab.cloud.put_guest_attribute(machine.id, "hostkeys", "ssh-ed25519", "AAAA")
    items = lab.ok("GET", target)["queryValue"]["items"]
    assert items == [{"namespace": "hostkeys", "key": "ssh-ed25519", "value": "AAAA"}]


def test_serial_output_is_read_from_an_offset():
    """`next` is where to go on; a negative start counts from the end."""
    lab = a_lab()
    lab.vm()
    lab.machines.serial = lambda machine_id: b"0123456789"
    whole = lab.ok("GET", f"{VMS}/v1/serialPort?start=0")
    assert (whole["contents"], whole["next"]) == ("0123456789", "10")
    assert lab.ok("GET", f"{VMS}/v1/serialPort?start=-3")["contents"] == "789"
    assert lab.ok("GET", f"{VMS}/v1/serialPort?start=10")["contents"] == ""


def test_reset_boots_again_without_notice():
    """The machine is killed and booted; its disk stays."""
    lab = a_lab()
    lab.vm()
    lab.ok("POST", f"{VMS}/v1/reset")
    lab.after(0)
    assert verbs(lab) == ["boot", "stop", "boot"]
