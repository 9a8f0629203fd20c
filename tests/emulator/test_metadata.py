"""The metadata server, as the guest agent, google-auth and JAX ask it."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request

import google.auth.compute_engine._metadata as google_metadata
import google.auth.transport.requests
import pytest

from orchestrator.emulator.http.metadata_tree import answer
from orchestrator.emulator.http.router import Request
from tests.emulator.machines_lab import LabView, machine, serving
from tests.kit.addresses import free_address, free_port
from tests.kit.waiting import until

FLAVOR = {"metadata-flavor": "Google"}
ROOT = "/computeMetadata/v1/"


def ask(
    view: LabView, path: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
):
    """Return the answer to one request."""
    return answer(view, Request.parse(method, ROOT + path, FLAVOR if headers is None else headers, body))


@pytest.fixture
def view() -> LabView:
    """Return a worker of a slice."""
    return LabView(
        machine(tags=("tpuctl", "ssh")),
        **{"agent-worker-number": "1", "accelerator-type": "v5litepod-16", "enable-guest-attributes": "TRUE"},
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("instance/id", "4242"),
        ("instance/name", "t1v-n-4242-w-0"),
        ("instance/zone", "projects/123/zones/europe-west4-b"),
        ("instance/preempted", "FALSE"),
        ("instance/maintenance-event", "NONE"),
        ("instance/attributes/agent-worker-number", "1"),
        ("instance/tags", '["tpuctl", "ssh"]'),
        ("instance/scheduling/preemptible", "TRUE"),
        ("instance/network-interfaces/0/ip", "127.9.9.9"),
        ("instance/service-accounts/default/email", "123-compute@developer.gserviceaccount.com"),
        ("project/project-id", "demo"),
        ("project/numeric-project-id", "123"),
        ("instance/service-accounts/", "123-compute@developer.gserviceaccount.com/\ndefault/\n"),
        ("instance/attributes/", "accelerator-type\nagent-worker-number\nenable-guest-attributes\n"),
        (
            "instance/attributes/?recursive=true&alt=text",
            "accelerator-type v5litepod-16\nagent-worker-number 1\nenable-guest-attributes TRUE\n",
        ),
    ],
)
def test_each_path_answers_as_text(view, path, text):
    """Leaves are plain text, directories list their names."""
    response = ask(view, path)
    assert (response.status, response.body.decode()) == (200, text)
    assert response.headers["metadata-flavor"] == "Google"


@pytest.mark.parametrize(
    "headers", [{}, {"metadata-flavor": "other"}, {**FLAVOR, "x-forwarded-for": "1.2.3.4"}]
)
def test_without_the_header_the_metadata_server_answers_nothing(view, headers):
    """The header keeps web pages and proxies from reading a machine's secrets."""
    assert ask(view, "instance/attributes/agent-worker-number", headers=headers).status == 403


def test_recursive_answers_are_json_in_camel_case(view):
    """Directories change their names, attribute keys do not, numbered directories become lists."""
    shown = json.loads(ask(view, "?recursive=true&alt=json").body)
    assert shown["instance"]["maintenanceEvent"] == "NONE"
    assert shown["instance"]["attributes"]["agent-worker-number"] == "1"
    assert shown["instance"]["networkInterfaces"][0]["ip"] == "127.9.9.9"
    assert shown["instance"]["serviceAccounts"]["default"]["aliases"] == ["default"]
    assert shown["project"]["numericProjectId"] == 123


def test_a_token_is_given_by_the_name_of_the_account_too(view):
    """Google's C++ client, and with it Arrow, asks for the address of the account and then for its token."""
    tokens = [
        json.loads(ask(view, f"instance/service-accounts/{name}/token").body)["access_token"]
        for name in ("default", view.machine.service_account)
    ]
    assert tokens[0] == tokens[1]
    assert ask(view, "instance/service-accounts/stranger@example.org/token").status == 404


@pytest.mark.parametrize(
    "path",
    ["instance/attributes/none", "instance/name/", "nothing/", "instance/service-accounts/default/identity"],
)
def test_what_is_not_there_is_404(view, path):
    """Missing keys, leaves asked for as directories, and identity tokens, which are not served."""
    assert ask(view, path).status == 404


def test_a_directory_without_slash_is_redirected(view):
    """The slash is what says directory."""
    response = ask(view, "instance/attributes")
    assert (response.status, response.headers["location"]) == (
        301,
        "/computeMetadata/v1/instance/attributes/",
    )


def test_guest_attributes_are_written_where_allowed(view):
    """PUT stores one; without enable-guest-attributes it is refused; nothing else can be written."""
    assert ask(view, "instance/guest-attributes/hostkeys/ssh-rsa", "PUT", body=b"AAA").status == 200
    assert view.guest_attributes == {"hostkeys/ssh-rsa": "AAA"}
    assert ask(view, "instance/guest-attributes/hostkeys/ssh-rsa").body == b"AAA"
    assert ask(view, "instance/name", "PUT", body=b"x").status == 405
    view.attributes["enable-guest-attributes"] = "FALSE"
    assert ask(view, "instance/guest-attributes/a/b", "PUT", body=b"x").status == 403
    assert view.guest_attributes == {"hostkeys/ssh-rsa": "AAA"}


def test_the_etag_changes_with_the_value_only(view):
    """Equal values have equal etags."""
    before = ask(view, "instance/preempted").headers["etag"]
    assert ask(view, "instance/preempted").headers["etag"] == before
    view.preempted = True
    after = ask(view, "instance/preempted")
    assert (after.body, after.headers["etag"] != before) == (b"TRUE", True)


class Served:
    """A metadata server on a real port."""

    def __init__(self, view: LabView, address: str, port: int, server) -> None:
        self.view = view
        self.address = address
        self.server = server
        self.authority = f"{address}:{port}"

    def get(self, path: str):
        request = urllib.request.Request(f"http://{self.authority}{ROOT}{path}", headers=FLAVOR)
        return urllib.request.urlopen(request, timeout=60)

    def waiting(self, but: frozenset = frozenset()) -> frozenset:
        """Wait until the server holds a request that is none of *but*; return those that it holds."""
        held = self.server._waiters
        return until(lambda: frozenset(held.get(self.view.machine.id, ())) - but, "a request that waits", 15)


@pytest.fixture
def served(view):
    """Serve that worker over HTTP."""
    address = free_address()
    port = free_port(address)
    with serving(lambda at: view if at == address else None, address, port) as server:
        yield Served(view, address, port, server)


def test_a_long_poll_ends_when_the_value_changes(served):
    """The notice arrives at once; a change of something else does not end the wait."""
    first = served.get("instance/preempted")
    query = f"instance/preempted?wait_for_change=true&last_etag={first.headers['ETag']}&timeout_sec=15"

    def change() -> None:
        waiting = served.waiting()
        served.view.attributes["other"] = "x"
        served.server.changed(served.view.machine.id)
        served.waiting(but=waiting)
        served.view.preempted = True
        served.server.changed(served.view.machine.id)

    thread = threading.Thread(target=change)
    started = time.monotonic()
    thread.start()
    assert served.get(query).read() == b"TRUE"
    assert time.monotonic() - started < 15
    thread.join()


def test_a_long_poll_ends_at_once_on_an_old_etag_and_at_its_timeout_otherwise(served):
    """An etag that is not the present one means the change has happened already."""
    assert served.get("instance/preempted?wait_for_change=true&last_etag=0").read() == b"FALSE"
    started = time.monotonic()
    assert served.get("instance/preempted?wait_for_change=true&timeout_sec=1").read() == b"FALSE"
    assert time.monotonic() - started >= 1


def test_stop_cuts_waiting_clients_and_frees_the_port(served):
    """A machine that is gone has no metadata server."""
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            served.get("instance/preempted?wait_for_change=true").read()
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    served.waiting()
    asyncio.run_coroutine_threadsafe(served.server.stop(served.address), served.server._loop).result(5)
    thread.join(5)
    assert failures
    with pytest.raises(urllib.error.URLError):
        served.get("instance/name")


def test_googles_own_client_finds_the_server_and_gets_a_token(served):
    """google-auth pings, reads project and account, and takes the token."""
    request = google.auth.transport.requests.Request()
    root = f"http://{served.authority}{ROOT}"
    ping = request(url=f"http://{served.authority}/", method="GET", headers={"Metadata-Flavor": "Google"})
    assert ping.headers["metadata-flavor"] == "Google"
    assert google_metadata.get(request, "project/project-id", root=root) == "demo"
    info = google_metadata.get(request, "instance/service-accounts/default/", root=root, recursive=True)
    assert info["email"] == served.view.machine.service_account
    token = google_metadata.get(request, "instance/service-accounts/default/token", root=root)
    assert (token["token_type"], token["expires_in"] > 3000) == ("Bearer", True)


def test_an_address_without_a_machine_gets_404(view):
    """The server never answers for somebody else."""
    address = free_address()
    port = free_port(address)
    with serving(lambda at: None, address, port) as server:
        with pytest.raises(urllib.error.HTTPError) as refusal:
            Served(view, address, port, server).get("instance/name")
    assert refusal.value.code == 404
