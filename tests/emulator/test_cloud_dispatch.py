"""Faults, permissions and time for services of other modules: storage behind the same dispatch."""

import json

import pytest

from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.router import Request
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.http.storage_xml import xml_routes
from tests.emulator.emulator_lab import NODES, a_lab
from tests.emulator.storage_kit import a_storage

UPLOAD = "/upload/storage/v1/b/data/o?uploadType=media&name=x"


@pytest.fixture
def send():
    """Return a function that sends to a cloud with storage, and holds the lab."""

    def start(**settings):
        lab = a_lab(**settings)
        storage_routes(lab.router, a_storage())
        xml_routes(lab.router, a_storage())

        def call(method, target, body=b""):
            answer = dispatch(lab.router, lab.cloud, Request.parse(method, target, {}, body))
            return answer.status, answer.body

        call.lab = lab
        return call

    return start


def test_a_storage_call_meets_its_fault_and_is_counted(send):
    """The first upload answers 412 in the form of the storage API, the second succeeds."""
    call = send()
    call.lab.cloud.fail_next("storage.objects.insert", ["precondition"])
    status, body = call("POST", UPLOAD, b"data")
    assert (status, json.loads(body)["error"]["errors"][0]["reason"]) == (412, "conditionNotMet")
    assert call("GET", "/storage/v1/b/data/o/x")[0] == 404
    assert call("POST", UPLOAD, b"data")[0] == 200
    assert call.lab.cloud.calls["storage.objects.insert"] == 2


def test_a_dropped_upload_has_its_effect(send):
    """503, and the object is there."""
    call = send()
    call.lab.cloud.fail_next("storage.objects.insert", ["drop-answer"])
    assert call("POST", UPLOAD, b"data")[0] == 503
    assert call("GET", "/storage/v1/b/data/o/x?alt=media") == (200, b"data")


def test_a_denied_storage_permission_names_account_and_permission(send):
    """403 with the text that the storage API uses."""
    call = send(denied_permissions=frozenset({"storage.objects.create"}))
    status, body = call("POST", UPLOAD, b"data")
    message = json.loads(body)["error"]["message"]
    assert status == 403
    assert message.startswith("you@local.invalid does not have storage.objects.create access")


def test_the_wide_route_of_storage_does_not_hide_other_services(send):
    """The XML route fits most paths, and the TPU API is still found."""
    assert send()("GET", NODES)[0] == 200
