"""
Commands of the stock gcloud that need not import its thousands of modules again, which takes a second.

One process of gcloud's own Python imports it and waits. For each command it forks: the child gets the
command's own folder, environment and files, and runs gcloud's `main`. What a command had to import is kept
for the next. Where gcloud brings no Python of its own, each command is started as a user starts it.
"""

import gc
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

REQUEST_BYTES = 200_000


def run(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run `gcloud WORDS` in *folder* to its end; its standard input is empty."""
    if (requests := _parent()) is None:
        return subprocess.run(
            ["gcloud", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
    request = json.dumps({"words": list(words), "folder": str(folder), "environment": dict(environment)})
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        socket.send_fds(requests, [request.encode()], [out.fileno(), err.fileno()])
        if not select.select([requests], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired(["gcloud", *words], seconds)
        code = int(requests.recv(100))
        said = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
    return subprocess.CompletedProcess(["gcloud", *words], code, *said)


@cache
def _parent() -> "socket.socket | None":
    """Start the process that imports everything; it ends with this one, whose socket it reads."""
    root = Path(shutil.which("gcloud") or "").resolve().parents[1]
    python = root / "platform/bundledpythonunix/bin/python3"
    if not python.exists():
        return None
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
    with its:
        subprocess.Popen(
            [python, "-S", __file__, str(its.fileno()), str(root / "lib")], pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=None, start_new_session=True,
        )  # fmt: skip
    return mine


def _serve(requests: socket.socket) -> None:
    """Fork for each request and report its exit code; return in the child, leave when nobody can request."""
    while True:
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 2)
        if not request:
            sys.exit()
        learned, report = os.pipe()
        gc.freeze()  # the child need not copy what it only looks at
        if (pid := os.fork()) == 0:
            requests.close()
            os.close(learned)
            return _become(json.loads(request), *files, report)
        for file in (*files, report):
            os.close(file)
        with os.fdopen(learned) as names:
            _learn(names.read().split())
        requests.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(request: dict, out: int, err: int, report: int) -> None:
    """Run the command in this process, and report at the end which modules it imported."""
    import atexit

    known = set(sys.modules)
    atexit.register(lambda: os.fdopen(report, "w").write("\n".join(set(sys.modules) - known)))
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["words"]


def _learn(names: Sequence[str]) -> None:
    from contextlib import suppress
    from importlib import import_module

    for name in sorted(names):
        with suppress(Exception):  # made by a command for itself, not a module of a file
            import_module(name)


if __name__ == "__main__":
    socket_number, library = sys.argv[1:]
    sys.argv = [f"{library}/gcloud.py"]
    sys.path[0] = library
    import gcloud

    gcloud._import_gcloud_main()
    sys.modules["__main__"] = gcloud  # what gcloud starts on its own finds gcloud there
    _serve(socket.socket(fileno=int(socket_number)))
    gcloud.main()
