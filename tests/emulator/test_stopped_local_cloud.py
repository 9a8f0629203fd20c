"""What clients of the local cloud say when it does not run."""

import pytest
import requests

from orchestrator.emulator.address import Address
from orchestrator.emulator.own_server import adapter_for
from orchestrator.errors import TransientError
from orchestrator.google.client_errors import translated
from orchestrator.google.unknown_on_error import across_zones
from tests.kit.addresses import free_port


def test_a_stopped_local_cloud_is_named_with_its_command_and_not_a_refused_connection():
    """Once, however many zones are asked: the line is cut at the terminal's edge."""
    session, port = requests.Session(), free_port("127.0.0.1")
    session.mount("http://", adapter_for(Address(1, 1, "", 22, "p", "process")))

    def read(zone):
        """Ask for the TPUs of a zone."""
        with translated(f"list TPU nodes in {zone}"):
            return session.get(f"http://127.0.0.1:{port}/{zone}", timeout=5)

    with pytest.raises(TransientError) as caught:
        read("us-west4-a")
    assert (caught.value.code, caught.value.hint) == ("TPU-401", "run: tpuctl local start")
    found = across_zones(["us-west4-a", "us-west4-b"], read)
    assert found.message == "the local cloud does not run: `tpuctl local start` starts it"
