"""Every error of the clients becomes one of ours, with the right retry class, code and next step."""

import json
import socket

import pytest
import requests
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import MaxRetryError, NewConnectionError

from orchestrator.errors import Retry, TpuctlError
from orchestrator.google.client_errors import translate, translate_compute, translate_status, translated
from orchestrator.google.error_mapping import MAX_MESSAGE
from tests.google.error_table import EXPECTED, PATHS, RPC_INFO, call_answer, ours, response, shape, table


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row['api']}-{row['case']}")
def test_each_known_error_becomes_ours(row):
    """A row of the error table gets the class, code, retry and exit code that is written down above."""
    error = ours(row)
    assert shape(error) == EXPECTED[row["api"], row["case"]]
    assert error.hint
    assert error.message.startswith("create: ")


@pytest.mark.parametrize("row", [r for r in table() if r["where"] == "lro"], ids=lambda row: row["case"])
def test_an_operations_error_raised_by_the_client_is_read_alike(row):
    """The exception that the client's own future would raise gives the same result as the status."""
    from google.api_core import exceptions

    raised = exceptions.from_grpc_status(int(row["code"]), row["message"])
    assert type(raised).__name__ == row["python_exception"]
    assert shape(translate(raised, what="create")) == EXPECTED[row["api"], row["case"]]


@pytest.mark.parametrize("row", [r for r in table() if r["api"] == "storage v1"], ids=lambda row: row["case"])
def test_an_upload_refusal_without_fields_is_read_from_its_answer(row):
    """Uploads and downloads raise exceptions that hold the answer only; the answer decides."""
    from google.api_core import exceptions

    answer = call_answer(row)
    raised = exceptions.from_http_status(answer.status_code, "POST ...: text", response=answer)
    assert shape(translate(raised, what="upload")) == EXPECTED[row["api"], row["case"]]


@pytest.mark.parametrize(
    ("address", "service", "code"),
    [
        ("https://secretmanager.googleapis.com/v1/projects/p/secrets/a", "secretmanager", "TPU-252"),
        (PATHS["tpu v2"], "tpu", "TPU-202"),
    ],
)
def test_a_scope_that_is_too_narrow_is_known_by_its_reason(address, service, code):
    """Whatever the text says; for secrets the way out is another machine, elsewhere it is a permission."""
    from google.api_core import exceptions

    info = {"@type": RPC_INFO, "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}
    info["metadata"] = {"service": f"{service}.googleapis.com"}
    refusal = {"code": 403, "status": "PERMISSION_DENIED", "message": "Other words.", "details": [info]}
    answer = response(403, json.dumps({"error": refusal}).encode(), address)
    error = translate(exceptions.from_http_response(answer), what="read")
    assert (error.code, error.exit_code) == (code, 3)
    assert ("create it again with `tpuctl down`" in error.hint) == (code == "TPU-252")


def test_quota_and_stockout_with_one_status_are_distinguished_by_the_detail():
    """RESOURCE_EXHAUSTED with a QuotaFailure is quota, whatever the text says."""
    from google.rpc import error_details_pb2

    failure = error_details_pb2.QuotaFailure()
    assert translate_status(8, "x", [failure], what="create").retry is Retry.QUOTA
    assert translate_status(8, "x", what="create").retry is Retry.CAPACITY


def test_a_reservation_that_was_not_requested_is_no_reservation():
    """On spot the text means that the zone has none now: the next zone is tried, and nothing is to correct."""
    error = translate_status(5, "Reservation not found", what="create")
    assert (error.retry, error.code) == (Retry.CAPACITY, "TPU-302")
    assert "no reservation was requested" in error.hint
    newer = 'There is no more capacity in the zone "z"; you can queue your request to get capacity'
    assert translate_status(8, newer, what="create").retry is Retry.CAPACITY


def test_a_reason_in_the_list_of_errors_counts_beside_an_error_info():
    """An ErrorInfo with a word that is new to us does not hide the older word."""
    from google.api_core import exceptions

    error = {
        "code": 403,
        "message": "x",
        "errors": [{"reason": "quotaExceeded", "domain": "usageLimits"}],
        "details": [{"@type": RPC_INFO, "reason": "SOMETHING_NEW"}],
    }
    answer = response(403, json.dumps({"error": error}).encode(), PATHS["compute v1"])
    assert translate(exceptions.from_http_response(answer), what="create").retry is Retry.QUOTA


def test_details_packed_in_any_are_read():
    """An operation's details arrive packed in google.protobuf.Any."""
    from google.protobuf.any_pb2 import Any as Packed
    from google.rpc import error_details_pb2

    packed = Packed()
    packed.Pack(
        error_details_pb2.ErrorInfo(reason="SERVICE_DISABLED", metadata={"service": "tpu.googleapis.com"})
    )
    error = translate_status(7, "x", [packed], what="create")
    assert error.code == "TPU-203"
    assert "gcloud services enable tpu.googleapis.com" in error.hint
    foreign = Packed(type_url="type.googleapis.com/some.Type", value=b"\x01")
    assert translate_status(14, "x", [foreign], what="create").retry is Retry.TRANSIENT


def test_a_disabled_api_names_the_command():
    """The hint holds the whole command with API and project."""
    row = next(r for r in table() if r["case"] == "api disabled" and r["api"] == "compute v1")
    expected = "gcloud services enable compute.googleapis.com --project my-project"
    assert expected in ours(row).hint


def test_a_missing_permission_names_the_role():
    """The hint holds the missing permission and a role that has it."""
    row = next(r for r in table() if r["case"] == "permission denied" and r["api"] == "compute v1")
    hint = ours(row).hint
    assert "compute.instances.create" in hint
    assert "--role roles/compute.instanceAdmin.v1" in hint


def test_the_right_to_act_as_a_service_account_names_its_role():
    """iam.serviceAccounts.actAs needs the role on the account, not an admin role of the API."""
    error = translate_compute("", "Required 'iam.serviceAccounts.actAs' permission", 403, what="create")
    assert "roles/iam.serviceAccountUser" in error.hint


def test_a_404_that_is_not_googles_is_unknown():
    """A proxy's page proves nothing: unknown is not absent."""
    from google.api_core import exceptions

    page = exceptions.from_http_response(response(404, b"<html>not here</html>"))
    assert translate(page, what="look").retry is Retry.UNKNOWN


@pytest.mark.parametrize(
    ("status", "retry"), [(502, "transient"), (503, "transient"), (429, "transient"), (418, "unknown")]
)
def test_an_answer_without_googles_form_is_judged_by_its_status(status, retry):
    """Gateways answer in HTML; the status still says whether waiting helps."""
    from google.api_core import exceptions

    error = exceptions.from_http_response(response(status, b"<html>sorry</html>"))
    assert translate(error, what="look").retry.value == retry


def test_aborted_is_busy_and_already_exists_is_taken():
    """Both are HTTP 409 and the same exception class; the status word in the answer distinguishes them."""
    rows = {
        r["case"]: ours(r) for r in table() if r["python_exception"] == "Conflict" and r["api"] == "tpu v2"
    }
    assert rows["concurrent operation"].aborted
    assert not rows["already exists"].aborted


def test_long_messages_are_cut():
    """A message stays readable whatever the cloud sends."""
    error = translate_status(13, "word " * 500, what="create")
    assert len(error.message) == MAX_MESSAGE
    assert error.message.endswith("…")


def test_repeated_reads_report_the_last_cause():
    """When the bounded retry gives up, the error beneath decides."""
    from google.api_core import exceptions

    cause = exceptions.from_http_response(response(503, b"{}"))
    assert translate(exceptions.RetryError("gave up", cause), what="look").code == "TPU-400"


def subclasses(kind: type) -> set[type]:
    """Return a class and all below it."""
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


def library_errors() -> list[type]:
    """Return every error class of the libraries below the adapters."""
    import google.api_core.exceptions as api
    import google.auth.exceptions as auth
    import google.cloud.storage.exceptions as gcs
    import urllib3.exceptions
    from google.cloud.storage import Client  # noqa: F401  (loads what may define errors)

    roots = (
        api.GoogleAPIError,
        auth.GoogleAuthError,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        gcs.DataCorruption,
        gcs.InvalidResponse,
    )
    return sorted({sub for root in roots for sub in subclasses(root)}, key=str)


@pytest.mark.parametrize("kind", library_errors(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_no_error_of_the_libraries_gets_through(kind):
    """A class that a new version of a library brings is caught too."""
    error = kind.__new__(kind)
    error.__dict__.update(
        message="x",
        _errors=(),
        _details=(),
        _response=None,
        _error_info=None,
        _cause=None,
        _retryable=False,
        partial=0,
        expected=0,
        length=b"",
        response=None,
    )
    with pytest.raises(TpuctlError) as caught, translated("look"):
        raise error
    assert caught.value.code != "TPU-000"


def test_a_bug_of_our_own_is_not_hidden():
    """A programming error passes through unchanged."""
    with pytest.raises(ZeroDivisionError), translated("look"):
        raise ZeroDivisionError


def test_missing_credentials_name_the_command():
    """Without application default credentials the next step is printed."""
    from google.auth.exceptions import DefaultCredentialsError

    error = translate(DefaultCredentialsError("none found"), what="log in")
    assert (error.code, error.exit_code) == ("TPU-201", 3)
    assert "gcloud auth application-default login" in error.hint


def test_a_retryable_login_failure_is_transient():
    """google-auth marks some failures as worth another try."""
    from google.auth.exceptions import RefreshError

    assert translate(RefreshError("x", retryable=True), what="look").retry is Retry.TRANSIENT
    assert translate(RefreshError("x"), what="look").exit_code == 3


def test_what_a_pool_wraps_around_a_fault_is_omitted():
    """Neither the pool nor the URL with its query is of use to anybody; the fault itself stands inside."""
    pool = HTTPConnectionPool("127.0.0.1", port=1)
    fault = NewConnectionError(pool.ConnectionCls("127.0.0.1", port=1), "the cloud does not answer")
    wrapped = requests.ConnectionError(MaxRetryError(pool, "/upload?ifGenerationMatch=17", fault))
    assert translate(wrapped, what="write gs://b/x").message == "write gs://b/x: the cloud does not answer"


def test_a_refused_connection_reads_the_same_each_time():
    """The clients wrap it in texts that name objects by their address in memory: a new line for each try."""
    texts = set()
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with pytest.raises(requests.ConnectionError) as refused:
            requests.get(f"http://127.0.0.1:{port}/", timeout=5)
        texts.add(translate(refused.value, what="write gs://b/x").message)
    assert texts == {"write gs://b/x: connection refused"}
