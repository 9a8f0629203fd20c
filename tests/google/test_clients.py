"""The clients: the right endpoint whatever the environment says, limits on each call, errors with a next step."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests

from orchestrator.domain.observation import Absent, Present, Unknown
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.errors import AuthError, Retry, UsageError
from orchestrator.google.buckets import GcsBuckets
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.vms import ComputeVms
from tests.emulator.http_fixture import serve
from tests.google.adapter_lab import LABEL, PROJECT, ZONE, a_bucket, a_lab, a_node, a_vm, canned

NOTHING = {"nodes": []}


@pytest.fixture
def no_login(monkeypatch, tmp_path):
    """Take all credentials away."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_same_adapters_work_over_http():
    """With a listener instead of a mounted adapter everything works alike."""
    lab = a_lab()
    with serve(lab.router, lambda request: dispatch(lab.router, lab.local, request)) as base:
        clients = Clients(CloudSettings(PROJECT, base))
        GcsBuckets(clients).create(a_bucket())
        assert isinstance(GcsBuckets(clients).observe("demo-bucket"), Present)
        nodes, vms = TpuNodes(clients), ComputeVms(clients)
        assert nodes.poll(nodes.create(a_node())).done
        assert vms.poll(vms.create(a_vm())).done
        assert len(nodes.labelled(LABEL, "demo", [ZONE]).value) == 1
        assert vms.poll(vms.delete("demo-vm", ZONE)).done
        assert vms.observe("demo-vm", ZONE) == Absent()


def test_without_credentials_the_next_step_is_named(no_login):
    """Google needs application default credentials; the command that makes them is printed."""
    with pytest.raises(AuthError) as caught:
        _ = Clients(CloudSettings(PROJECT)).tpu
    assert "gcloud auth application-default login" in caught.value.hint
    observed = TpuNodes(Clients(CloudSettings(PROJECT))).labelled(LABEL, "demo", [ZONE])
    assert isinstance(observed, Unknown)
    assert observed.retry is Retry.PERMANENT


def test_without_a_project_the_next_step_is_named():
    """A local cloud has no credentials that could name the project."""
    with pytest.raises(UsageError, match="no project"):
        _ = Clients(CloudSettings("", "http://127.0.0.1:9")).project


def test_credentials_of_another_universe_are_refused_clearly(monkeypatch):
    """The clients refuse them with a bare ValueError; the user gets one clear error."""
    from google.auth.credentials import AnonymousCredentials

    class Elsewhere(AnonymousCredentials):
        universe_domain = "example.com"

    monkeypatch.setattr("orchestrator.google.clients._default_login", lambda: (Elsewhere(), PROJECT))
    with pytest.raises(AuthError, match="universe"):
        _ = Clients(CloudSettings()).storage


def test_an_emulator_variable_does_not_divert_a_real_deployment(monkeypatch):
    """STORAGE_EMULATOR_HOST must not send checkpoints elsewhere in silence."""
    from google.auth.credentials import AnonymousCredentials

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.setenv("API_ENDPOINT_OVERRIDE", "http://127.0.0.1:9")
    monkeypatch.setattr(
        "orchestrator.google.clients._default_login", lambda: (AnonymousCredentials(), PROJECT)
    )
    clients = Clients(CloudSettings())
    assert clients.storage.api_endpoint == "https://storage.googleapis.com"
    assert clients.project == PROJECT
    assert os.environ["STORAGE_EMULATOR_HOST"] == "http://127.0.0.1:9"


def test_a_local_cloud_is_reached_whatever_the_environment_says(monkeypatch):
    """Emulators, client certificates, other universes and proxies are left aside."""
    for name, value in {
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
        "GOOGLE_API_USE_MTLS_ENDPOINT": "always",
        "GOOGLE_API_USE_CLIENT_CERTIFICATE": "true",
        "GOOGLE_CLOUD_UNIVERSE_DOMAIN": "example.com",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    with canned(lambda _: (200, {})) as server:
        clients = server.clients()
        assert TpuNodes(clients).labelled(LABEL, "demo", [ZONE]) == Present(())
        assert ComputeVms(clients).labelled(LABEL, "demo", [ZONE]) == Present(())
        assert GcsBuckets(clients).observe("demo-bucket") == Absent()
        assert len(server.requests) == 3
        assert not any("authorization" in found.headers for found in server.requests)


def test_a_read_is_repeated_for_a_short_while():
    """One bad moment of the cloud is not worth a lost pass."""
    answers = iter([(503, b""), (200, NOTHING)])
    with canned(lambda _: next(answers)) as server:
        nodes = TpuNodes(server.clients(read_retry=5.0))
        assert nodes.labelled(LABEL, "demo", [ZONE]) == Present(())
        assert len(server.requests) == 2


def test_a_read_is_not_repeated_for_ever():
    """The repeats end; then it is Unknown."""
    with canned(lambda _: (503, b"")) as server:
        start = time.monotonic()
        observed = TpuNodes(server.clients(read_retry=0.5)).labelled(LABEL, "demo", [ZONE])
        assert time.monotonic() - start < 30
    assert isinstance(observed, Unknown)
    assert observed.retry is Retry.TRANSIENT


def test_a_quota_answer_to_a_read_is_not_repeated():
    """429 means fewer requests, not more."""
    with canned(lambda _: (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}})) as server:
        TpuNodes(server.clients(read_retry=5.0)).labelled(LABEL, "demo", [ZONE])
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [503, 0], ids=["unavailable", "hang-up"])
def test_a_change_is_asked_for_once(status):
    """Create, start, stop and delete are never repeated by us."""
    with canned(lambda _: (status, b"" if status else None)) as server:
        clients = server.clients(read_retry=5.0)
        nodes, vms, buckets = TpuNodes(clients), ComputeVms(clients), GcsBuckets(clients)
        steps = [
            lambda: nodes.create(a_node()),
            lambda: nodes.delete("demo-tpu-g3", ZONE),
            lambda: vms.create(a_vm()),
            lambda: vms.start("demo-vm", ZONE),
            lambda: vms.stop("demo-vm", ZONE),
            lambda: vms.delete("demo-vm", ZONE),
            lambda: buckets.create(a_bucket()),
        ]
        for count, step in enumerate(steps, start=1):
            with pytest.raises(Exception, match="demo") as caught:
                step()
            assert caught.value.retry is Retry.TRANSIENT
            assert len(server.requests) == count


def test_a_server_that_never_answers_does_not_hold_us():
    """Each call has a limit of its own."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        clients = Clients(CloudSettings(PROJECT, endpoint, call_timeout=0.3, read_retry=0))
        start = time.monotonic()
        observations = [
            TpuNodes(clients).labelled(LABEL, "demo", [ZONE]),
            ComputeVms(clients).observe("demo-vm", ZONE),
            GcsBuckets(clients).observe("demo-bucket"),
        ]
        assert time.monotonic() - start < 30
    assert all(isinstance(observed, Unknown) for observed in observations)
    assert {observed.retry for observed in observations} == {Retry.TRANSIENT}


def test_a_refused_connection_is_unknown():
    """Nobody listens: nobody knows."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    clients = Clients(CloudSettings(PROJECT, f"http://127.0.0.1:{port}", read_retry=0))
    observed = ComputeVms(clients).observe("demo-vm", ZONE)
    assert isinstance(observed, Unknown)
    assert observed.retry is Retry.TRANSIENT


def test_clients_are_made_once_for_all_threads():
    """Threads that come at the same time share one client."""
    from concurrent.futures import ThreadPoolExecutor

    clients = Clients(CloudSettings(PROJECT, "http://127.0.0.1:9"))
    with ThreadPoolExecutor(4) as pool:
        assert len({id(made) for made in pool.map(lambda _: clients.tpu, range(8))}) == 1


def test_importing_the_adapters_imports_no_client():
    """The help path must not pay for libraries that it does not use."""
    code = (
        "import sys, orchestrator.google.factory;"
        "print([m for m in sys.modules if m.split('.')[0] in ('google', 'requests', 'urllib3', 'grpc')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_storage_client_asks_for_nothing_behind_our_back(monkeypatch):
    """For telemetry the client would look at a bucket in threads of its own: at first use, and after each 404."""
    monkeypatch.delenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", raising=False)
    lab, before = a_lab(), {*threading.enumerate()}
    lab.buckets.create(a_bucket())
    assert lab.store().read("nothing") is None
    for thread in {*threading.enumerate()} - before:
        thread.join()
    assert lab.local.calls["storage.buckets.get"] == 0


def test_a_session_of_google_keeps_its_proxy_settings(monkeypatch):
    """Only a local cloud's sessions ignore the environment's proxies."""
    from google.auth.credentials import AnonymousCredentials

    monkeypatch.setattr(
        "orchestrator.google.clients._default_login", lambda: (AnonymousCredentials(), PROJECT)
    )
    session = Clients(CloudSettings()).tpu.transport._session
    assert isinstance(session, requests.Session)
    assert session.trust_env


USER = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t"}


def a_login(monkeypatch, tmp_path, **more):
    """Log a user in, by a file."""
    path = tmp_path / "adc.json"
    path.write_text(json.dumps(USER | more))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.delenv("GOOGLE_CLOUD_QUOTA_PROJECT", raising=False)


@pytest.mark.parametrize(("more", "charged"), [({}, PROJECT), ({"quota_project_id": "other"}, "other")])
def test_calls_of_a_user_are_charged_to_our_project_unless_the_login_says_otherwise(
    monkeypatch, tmp_path, more, charged
):
    """Otherwise gcloud's own project would be charged, where no API of ours is on."""
    a_login(monkeypatch, tmp_path, **more)
    assert Clients(CloudSettings(PROJECT)).credentials.quota_project_id == charged


def test_a_service_account_is_impersonated(monkeypatch, tmp_path):
    """The login only makes its tokens."""
    a_login(monkeypatch, tmp_path)
    credentials = Clients(CloudSettings(PROJECT, impersonate="bot@p.iam.gserviceaccount.com")).credentials
    assert credentials.service_account_email == "bot@p.iam.gserviceaccount.com"
