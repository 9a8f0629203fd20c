"""
Twenty secrets, every command, every crash point: `python -m tests.security.crash_canaries [--every N]`.

A command is killed by SIGKILL before and after each mutating call and each write to the disk, or meets a bug
there. All that is left, all that reading commands then say, and what the same command and `down` make of it
is searched for every secret, in every spelling.
"""

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copytree, rmtree
from urllib.parse import quote

from tests.kit.figures import record_figures
from tests.kit.workers import workers
from tests.memory_disk import MEMORY
from tests.security.canary_cloud import CanaryCloud, CanaryUser
from tests.security.secret_kit import canaries

ABOUT = (
    "Real commands are killed by SIGKILL, or meet a bug, at each mutating call and each write to the disk, "
    "on a computer full of secrets. Everything but Secret Manager is searched for them, in nine spellings. "
    "Written by `python -m tests.security.crash_canaries`."
)
HOWS = ("before", "after", "bug")
READS = (
    ("status",), ("status", "--json"), ("explain",), ("explain", "--json"), ("cost",), ("cost", "--json"),
    ("plan",), ("plan", "--json"), ("up", "--dry-run"), ("config",), ("config", "--json"), ("check",),
    ("check", "--json"), ("logs",), ("checkpoints",), ("checkpoints", "--json"), ("report",),
    ("support", "--yes"), ("doctor",), ("doctor", "--json"), ("notify", "test"), ("notify", "test", "--json"),
    ("fetch",), ("exec", "--", "env"), ("secret", "list"), ("status", "--all"),
    ("status", "--all", "--json"), ("schema",),
)  # fmt: skip
BUG = "this is a bug in tpuctl"
JOB = range(10)
"""Numbers of the canaries that the job gets by reference."""


def secrets():
    """Return the twenty secrets by name."""
    words = list(canaries(20).values())
    named = {f"CANARY_{number}": words[number] for number in JOB}
    rest = (
        "RECEIVER",
        "HOOK",
        "BROKEN",
        "APPRISE",
        "APPRISE_BROKEN",
        "WANDB_API_KEY",
        "MY_TOKEN",
        "LOGIN",
        "NEW",
    )
    return {**named, **dict(zip(rest, words[10:-1], strict=True)), "SIGNING": words[-1]}


@dataclass(frozen=True)
class CanaryScenario:
    """
    Name a command that changes something, and what has happened *before*.

    *value* names the secret that it gets on its standard input.
    """

    name: str
    words: tuple
    before: Callable
    value: str = ""
    options: tuple = ()
    file: tuple = ()


def nothing(cloud, user):
    """Nothing is there."""


def running(cloud, user):
    """The deployment trains."""
    assert user.run("up").code == 0
    user.watch(300)


def preempted(cloud, user):
    """TPU and VM have been taken away."""
    running(cloud, user)
    cloud.model.preempt("demo-tpu-g1", notice=False)
    cloud.model.preempt("demo-vm", notice=False)


def edited(cloud, user):
    """There is new code, and a new value of a secret."""
    running(cloud, user)
    user.type("secret", "set", "CANARY_0", stdin=cloud.values["NEW"].encode())
    user.write("train.py", "print('other code')\n")


def larger(cloud, user):
    """Another type of TPU is wanted."""
    running(cloud, user)
    user.edit(**{**user.file_before, "tpu__type": "v5litepod-16"})


def ended(phase):
    """Return what lets the job end, and say a secret with its last words."""

    def end(cloud, user):
        running(cloud, user)
        saved = {"committed_step": 5} if phase == "done" else {}
        text = cloud.machines.masked(cloud.values["CANARY_3"].encode()).decode()
        cloud.machines.say("demo", phase=phase, message=text, **saved)

    return end


def refused(**settings):
    """Return what lets the cloud refuse."""
    return lambda cloud, user: cloud.change(**settings)


SCENARIOS = (
    CanaryScenario("secret set", ("secret", "set", "CANARY_0"), nothing, value="NEW"),
    CanaryScenario("up", ("up",), nothing),
    CanaryScenario("up, with a queue", ("up",), nothing, file=(("tpu__request", "queued"),)),
    CanaryScenario("up, no capacity", ("up",), refused(stockouts=frozenset({"europe-west4-b"}))),
    CanaryScenario("up, no permission", ("up",), refused(denied_permissions=frozenset({"tpu.nodes.create"}))),
    CanaryScenario("up, larger", ("up",), larger),
    CanaryScenario("watch, preempted", ("watch",), preempted, options=(("interrupt", 400),)),
    CanaryScenario("watch, done", ("watch",), ended("done")),
    CanaryScenario("watch, failed", ("watch",), ended("failed")),
    CanaryScenario("push", ("push",), edited),
    CanaryScenario("down", ("down", "--yes"), running),
    CanaryScenario("down --delete-data", ("down", "--yes", "--delete-data"), running),
)


class ReceiverServer(BaseHTTPRequestHandler):
    """Accept notifications, or refuse them; the paths are stored outside of what is searched."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.received.open("a") as file:
            file.write(self.path + "\n")
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def receivers(folder):
    """Yield the addresses of one who takes notices and of one who refuses them, served by another process."""
    servers = [HTTPServer(("127.0.0.1", 0), ReceiverServer) for _ in range(2)]
    for server, status in zip(servers, (204, 500), strict=True):
        server.received, server.status = folder / "told", status
        server.received.touch()
    watched, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(held)
        for server in servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        os.read(watched, 1)  # It ends when nobody holds the other end, whatever becomes of this process.
        os._exit(0)
    try:
        yield [f"127.0.0.1:{server.server_port}" for server in servers]
    finally:
        os.close(held)
        os.waitpid(pid, 0)
        os.close(watched)
        for server in servers:
            server.server_close()


@contextmanager
def canary_lab(folder, takes, refuses, file=()):
    """Yield a cloud and a computer whose deployment has all the secrets."""
    values = secrets()
    path = {name: "/" + quote(text, safe="") for name, text in values.items()}
    variables = {
        "HOOK": f"http://{takes}{path['HOOK']}",
        "BROKEN": f"http://{refuses}{path['BROKEN']}",
        "APPRISE": f"json://{takes}{path['APPRISE']}",
        "APPRISE_BROKEN": f"json://{refuses}{path['APPRISE_BROKEN']}",
        "WANDB_API_KEY": values["WANDB_API_KEY"], "MY_TOKEN": values["MY_TOKEN"],
    }  # fmt: skip
    named = [*(f"CANARY_{number}" for number in JOB), "SIGNING"]
    with CanaryCloud(folder / "cloud", values).open() as cloud:
        user = CanaryUser(cloud, variables)
        user.file_before = {
            "vm": {"machine_type": "e2-small", "spot": True},
            "job__secrets": {name: f"secret://{name}" for name in named},
            "notify": {
                "webhooks": ["secret://RECEIVER", "env://HOOK", "env://BROKEN"],
                "apprise": ["env://APPRISE", "env://APPRISE_BROKEN"],
            },
            **dict(file),
        }
        user.edit(**user.file_before)
        stored = {name: values[name] for name in named} | {"RECEIVER": f"http://{takes}{path['RECEIVER']}"}
        for name, value in stored.items():
            said = user.type("secret", "set", name, stdin=value.encode())
            assert said.code == 0, said
        yield cloud, user


class Trial:
    """Go through one scenario again and again, each time with another end; note every secret that is found."""

    def __init__(self, folder, scenario, cloud, user):
        self.folder, self.scenario, self.cloud, self.user = folder, scenario, cloud, user
        self.counted, self.violations = Counter(), []
        self.file = ("--file", str(user.folder / "tpuctl.yaml"))
        scenario.before(cloud, user)
        self.start, self.said = cloud.freeze(), len(cloud.said)
        copytree(cloud.folder, folder / "kept", symlinks=True)

    def begin(self):
        """Put the world back into which the command comes."""
        rmtree(self.cloud.folder)
        copytree(self.folder / "kept", self.cloud.folder, symlinks=True)
        self.cloud.thaw(self.start, self.user)
        del self.cloud.said[self.said :]

    def command(self, at=None, how="before"):
        """Let the command run in a fork."""
        words, stdin = self.scenario.words, b""
        if self.scenario.value:
            stdin = self.cloud.values[self.scenario.value].encode()
        else:
            words = (*words, *self.file)
        return self.user.killed(
            *words, at=at, how=how, ends=self.folder / "ends", stdin=stdin, **dict(self.scenario.options)
        )

    def read(self, words):
        """Type a command that only reads."""
        self.counted["reading commands"] += 1
        if words[0] in {"report", "support", "fetch"}:
            words = (*words, "-o", str(self.cloud.folder / f"{words[0]}-{len(self.cloud.said)}"))
        at = 2 if words[0] == "notify" else 1
        nameless = words[0] in {"secret", "top", "schema"}
        said = self.user.type(*words[:at], *(() if nameless else self.file), *words[at:])
        if BUG in said.out + said.err:
            self.violations.append(f"{self.scenario.name}: {words} meets a bug: {said.err}")

    def search(self, where):
        """Look for every secret in everything."""
        self.counted["searches"] += 1
        self.violations += [
            f"{self.scenario.name}, {where}: {name} in {place}" for place, name in self.cloud.found()
        ]

    def points(self):
        """Return the steps of the command, with each way to end there."""
        steps = self.command().calls
        self.search("no kill")
        return [(at, how) for at in range(1, steps + 1) for how in HOWS]

    def end_at(self, at, how, reads):
        """Let it end so, read, go on, and take all down."""
        where = f"{how} step {at}"
        self.begin()
        died = self.command(at, how).code is None
        self.counted["points tried"] += 1
        self.counted["killed" if died else "met a bug" if how == "bug" else "over before"] += 1
        self.search(where)
        for words in reads:
            self.read(words)
        self.command()
        self.search(f"{where}, gone on from")
        self.user.run("down", "--yes", "--delete-data")
        self.search(f"{where}, gone on from, down")


def explored(order):
    """Try a share of the points of one scenario; return its name, what was counted and what was found."""
    number, first, every, count = order
    scenario = SCENARIOS[number]
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as name,
        receivers(Path(name)) as addresses,
        canary_lab(Path(name), *addresses, file=scenario.file) as (cloud, user),
    ):
        trial = Trial(Path(name), scenario, cloud, user)
        points = trial.points()
        start = (first + 5 * number) % min(every, len(points))
        for nth, point in list(enumerate(points, 9 * number))[start::every]:
            trial.end_at(*point, [READS[(nth * count + turn) % len(READS)] for turn in range(count)])
        trial.counted["notices told"] = len((Path(name) / "told").read_text().splitlines())
        trial.counted["points"] = len(points) if first == 0 else 0
        trial.counted["KiB searched"] = sum(map(len, cloud.searched)) >> 10
        return scenario.name, trial.counted, trial.violations


def warm():
    """Import once what every fork would have to import again."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        with receivers(folder) as addresses, canary_lab(folder, *addresses) as (cloud, user):
            edited(cloud, user)
            for words in (("push",), ("status",), ("down", "--yes")):
                user.run(*words)
    gc.freeze()


def main():
    """Try the points; print the figures and what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.crash_canaries")
    parser.add_argument("--every", type=int, default=1, help="try each so manyth point")
    parser.add_argument("--reads", type=int, default=len(READS), help="reading commands after each point")
    parser.add_argument("--jobs", type=int, default=1, help="processes to share the points")
    parser.add_argument("scenarios", nargs="*", help="their names; all when left out")
    chosen = parser.parse_args()
    shares, began = chosen.jobs if chosen.every == 1 else 1, time.monotonic()
    orders = [
        (number, first, chosen.every * shares, chosen.reads)
        for number, scenario in enumerate(SCENARIOS)
        if scenario.name in chosen.scenarios or not chosen.scenarios
        for first in range(shares)
    ]
    counted, violations = Counter(), []
    with workers(chosen.jobs, warm) as pool:
        for _, more, found in pool.map(explored, orders):
            counted.update(more)
            violations += found
    record_figures(
        "canaries",
        "Secrets at every crash point",
        ABOUT,
        figures(counted, violations, time.monotonic() - began),
    )
    print(*violations, sep="\n")
    return 1 if violations else 0


def figures(counted, violations, seconds):
    """Return the table for people."""
    numbers = ("points", "points tried", "killed", "met a bug", "reading commands", "notices told")
    return {
        "Secrets": len(secrets()),
        "Commands": "; ".join(scenario.name for scenario in SCENARIOS),
        "Reading commands, different": len(READS),
        **{name.capitalize(): f"{counted[name]:,}" for name in numbers},
        "Searches": f"{counted['searches']:,}",
        "KiB searched": f"{counted['KiB searched']:,}",
        "Secrets found outside of Secret Manager": len(violations),
        "Wall time": f"{seconds:.0f} s",
    }


if __name__ == "__main__":
    sys.exit(main())
