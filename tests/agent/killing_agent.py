"""
Run the agent and let a kill fall at one of its steps: a request to the bucket, or a rename on disk.

Each step is a line of `$KILL_TRACE`: `before` or `after`, what, on what, and which time it was. At the line
that equals `$KILL_AT`, or begins with what it has before a `*`, SIGKILL goes to `$KILL_VICTIM`: the agent, the
job, or both. Nothing of this is in the agent itself.
"""

import os
import signal
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from orchestrator.agent.__main__ import main
from orchestrator.agent.cloud.transport import Transport
from orchestrator.agent.machine.processes import processes_of

ROOT = os.environ["TPUCTL_ROOT"]
STORAGE = os.environ["STORAGE_EMULATOR_HOST"]
BESIDE = (".tpuctl/heartbeat/", ".tpuctl/wake/", "logs/", "bundles/")
times: "Counter[str]" = Counter()
lock = threading.Lock()


def step(line):
    """Note a step, and let the kill fall if it is the one."""
    with lock:
        times[line] += 1
        line = f"{line} {times[line]}\n"
        with Path(os.environ["KILL_TRACE"]).open("a") as file:
            file.write(line)
        at = os.environ.get("KILL_AT", "never")
        if line.strip() == at or (at.endswith("*") and line.startswith(at[:-1])):
            victim = os.environ["KILL_VICTIM"]
            if victim != "agent":
                for pid in processes_of(Path(ROOT), None):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            if victim != "job":
                os.kill(os.getpid(), signal.SIGKILL)


def named(method, url):
    """Return a request in words, empty when it is none of the checkpoints' or the gang's."""
    parts, query = urlsplit(url), parse_qs(urlsplit(url).query)
    name = unquote(parts.path.partition("/o/")[2]) or query.get("name", query.get("prefix", [""]))[0]
    if not url.startswith(STORAGE) or not name or name.startswith(BESIDE):
        return ""
    return f"{'LIST' if 'prefix' in query else method} {name}"


def watched_send(send):
    """Make each request two steps."""

    def wrapped(self, method, url, *rest, **options):
        what = named(method, url)
        if what:
            step(f"before {what}")
        reply = send(self, method, url, *rest, **options)
        if what:
            step(f"after {what}")
        return reply

    return wrapped


def watched_move(move, word):
    """Make each rename two steps; the copy of the heartbeat is left out."""

    def wrapped(path, target):
        name = os.path.relpath(str(target), ROOT)
        inner = name.startswith(("checkpoints", "quarantine", "state", "current")) and "status" not in name
        moved = ".tpuctl-incoming" in str(path)  # what comes back from a cache goes to any place
        what = "move" if moved else f"{word} {name.rstrip('0123456789') if 'quarantine' in name else name}"
        if inner or moved:
            step(f"before {what}")
        done = move(path, target)
        if inner or moved:
            step(f"after {what}")
        return done

    return wrapped


Transport.send = watched_send(Transport.send)
Path.rename, Path.replace = watched_move(Path.rename, "rename"), watched_move(Path.replace, "replace")
sys.exit(main(["run"]))
