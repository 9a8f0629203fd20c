"""The rows of the error table as the local cloud sends them, through the official clients, to our errors."""

import pytest

from orchestrator.errors import TpuctlError
from tests.google.adapter_lab import ACCOUNT, a_bucket, a_lab, a_node, a_vm, vms_of
from tests.google.error_table import EXPECTED, shape, table

ROWS = {where: [row for row in table() if row["where"] == where] for where in ("call", "lro", "op.error")}
METHODS = {
    "tpu v2": "tpu.nodes.create",
    "compute v1": "compute.instances.insert",
    "storage v1": "storage.objects.insert",
}


def steps(lab):
    """Return, for each API, a step that calls the method of METHODS."""
    return {
        "tpu v2": lambda: lab.nodes.create(a_node()),
        "compute v1": lambda: vms_of(lab).create(a_vm()),
        "storage v1": lambda: lab.store().write("a", b"x"),
    }


@pytest.mark.parametrize("row", ROWS["call"], ids=lambda row: f"{row['api']}-{row['case']}")
def test_a_refused_call_becomes_our_error(row):
    """What the wire sends gives the class, code, retry and exit code of the table of expectations."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    lab.local.fail_next(METHODS[row["api"]], [row["case"]])
    with pytest.raises(TpuctlError) as caught:
        steps(lab)[row["api"]]()
    assert shape(caught.value) == EXPECTED[row["api"], row["case"]]
    assert caught.value.hint
    assert caught.value.changed
    assert lab.local.unused_faults() == []


@pytest.mark.parametrize("row", ROWS["lro"], ids=lambda row: row["case"])
def test_a_failed_tpu_operation_becomes_our_result(row):
    """The call succeeds, the operation carries the error."""
    lab = a_lab()
    lab.local.fail_next("tpu.nodes.create", [row["case"]])
    result = lab.nodes.poll(lab.nodes.create(a_node()))
    _, code, retry, _ = EXPECTED[row["api"], row["case"]]
    assert (result.done, result.code, result.retry.value) == (True, code, retry)
    assert "demo-tpu-g3" in result.message


@pytest.mark.parametrize("row", ROWS["op.error"], ids=lambda row: row["case"])
def test_a_failed_compute_operation_becomes_our_result(row):
    """The operation is DONE, and carries the error."""
    lab = a_lab()
    vms = vms_of(lab)
    lab.local.fail_next("compute.instances.insert", [row["case"]])
    result = vms.poll(vms.create(a_vm()))
    _, code, retry, _ = EXPECTED[row["api"], row["case"]]
    assert (result.done, result.code, result.retry.value) == (True, code, retry)
    assert "demo-vm" in result.message


def test_a_disabled_api_on_the_wire_names_the_command():
    """API and project come from the answer, not from its text."""
    lab = a_lab(disabled_apis=frozenset({"tpu.googleapis.com"}))
    with pytest.raises(TpuctlError) as caught:
        lab.nodes.create(a_node())
    assert "gcloud services enable tpu.googleapis.com --project local-project" in caught.value.hint


def test_a_denied_permission_on_the_wire_names_permission_and_role():
    """The user can hand the hint to whoever may grant roles."""
    lab = a_lab(denied_permissions=frozenset({"tpu.nodes.create"}))
    with pytest.raises(TpuctlError) as caught:
        lab.nodes.create(a_node(service_account=ACCOUNT))
    assert "tpu.nodes.create" in caught.value.hint
    assert "--role roles/tpu.admin" in caught.value.hint
