"""Stand-ins for TensorBoard and JupyterLab, small but real servers, in environments that count as installed."""

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.agent.machine.venv import WantedPackages
from orchestrator.emulator.machines.machine_image import IMAGES, interpreter_for
from orchestrator.emulator.machines.machine_python import interpreters
from orchestrator.emulator.start_options import free_ports
from orchestrator.planning.sidecars import REQUIREMENTS

PROGRAM = """\
#!{python}
import http.server, json, os, re, socket, sys
words = " ".join(sys.argv)
address = re.search(r"--(?:host|ServerApp.ip)[ =](\\S+)", words)[1]
port = int(re.search(r"--(?:ServerApp.)?port[ =](\\d+)", words)[1])
token = ""
config = re.search(r"--config=(.*?/config.py)", words)
if config:
    class c:
        class IdentityProvider: pass
    exec(open(config[1]).read())
    token = c.IdentityProvider.token
if os.path.exists(os.path.join(os.path.dirname(__file__), "broken")):
    sys.exit("no way")
# As TensorBoard does: who listens on this number of 127.0.0.1 counts, whatever the own address is.
with socket.socket() as probe:
    if probe.connect_ex(("localhost", port)) == 0:
        sys.exit("the port is already in use")
class Page(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        known = not token or "token=" + token in self.path
        body = json.dumps({{"argv": sys.argv, "pid": os.getpid(), "known": known}}).encode()
        self.send_response(200 if known else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
print("listening", flush=True)
http.server.ThreadingHTTPServer((address, port), Page).serve_forever()
"""


def fake_environments(cache: Path) -> Path:
    """Make both environments in *cache*, as if they had been installed; return it."""
    here = interpreters(os.environ)
    pythons = {
        Path("/usr/bin/python3"),
        Path(sys.executable),
        *(interpreter_for(one, here) for one in IMAGES),
    }
    versions = {
        subprocess.run([one, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        for one in pythons
    }
    for name, version in ((name, version) for name in REQUIREMENTS for version in versions):
        wanted = REQUIREMENTS[name]
        cache.mkdir(parents=True, exist_ok=True)
        pins = cache.with_name(f"{cache.name}-pins.txt")
        pins.write_text("\n".join(wanted.split()) + "\n")
        folder = cache / WantedPackages((pins,), (), "").key(version)
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/python").symlink_to(sys.executable)
        (folder / f"bin/{name}").write_text(PROGRAM.format(python=sys.executable))
        (folder / f"bin/{name}").chmod(0o755)
        own = subprocess.run([folder / "bin/python", "--version"], capture_output=True, text=True, check=True)
        (folder / "complete").write_text(own.stdout)
    return cache


def free_port() -> int:
    """Return a port of loopback that nobody uses."""
    return free_ports(1)[0]
