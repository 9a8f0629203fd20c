"""Commands on the local cloud: once it has ended, another user who takes its port gets nothing."""

import os
import subprocess
import sys

import pytest

from orchestrator.emulator.address import Address, start_of, write_address
from tests.security.other_user import ROOT

SQUATTER = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
if sys.argv[1] == "nobody":
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
while True:
    client, _ = listener.accept()
    client.settimeout(1)
    try:
        print(client.recv(65536), flush=True)
        client.sendall(b"HTTP/1.1 500 no\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}")
    except OSError:
        print(b"", flush=True)
    client.close()
"""
FILE = """\
name: canary
tpu: {type: v5litepod-1, zones: [us-central1-a]}
job: {command: python train.py, checkpoint: {dir: local}}
"""
COMMANDS = {
    "secret set api-key --cloud local": b"POST ",
    "status --cloud local": b"GET ",
    "prices refresh --cloud local": b"GET ",
}


@pytest.fixture
def squatted(tmp_path, monkeypatch):
    """Serve at the port of a local cloud that seems to run; return what is sent there."""
    started = []

    def serve(who):
        words = [sys.executable, "-c", SQUATTER, who]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, cwd="/")
        started.append(server)
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        folder = tmp_path / "cloud"
        folder.mkdir(mode=0o700)
        write_address(folder, Address(os.getpid(), start_of(os.getpid()), endpoint, 1, "p", "process"))
        monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(folder))
        monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path / "state"))
        (tmp_path / "tpuctl.yaml").write_text(FILE)

        def reported():
            server.kill()
            return server.stdout.read()

        return reported

    yield serve
    for server in started:
        server.kill()
        server.communicate()


def run(words, folder):
    """Return what a command of the user's says, who types a secret."""
    command = [sys.executable, "-m", "orchestrator", *words.split()]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=folder, input="canary-value\n"
    )
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
@pytest.mark.parametrize("words", COMMANDS)
def test_another_user_on_the_port_of_a_cloud_that_has_ended_gets_nothing(squatted, words, tmp_path):
    """He would be asked what machines there are, and be sent code, settings and secrets."""
    reported = squatted("nobody")
    said = run(words, tmp_path)
    assert set(reported().splitlines()) <= {b"b''"}
    assert "another user of this computer" in said


@pytest.mark.parametrize(("words", "begins"), COMMANDS.items())
def test_the_same_commands_ask_a_server_of_this_user(squatted, words, begins, tmp_path):
    """So it is the other user who is refused, and not everybody."""
    reported = squatted("this user")
    run(words, tmp_path)
    assert b"b'" + begins in reported() or b'b"' + begins in reported()
