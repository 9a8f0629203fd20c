"""
Processes that want the same deployment: each takes one role of a play and writes down what it did.

`python -m tests.reliability.contenders PLAY` forks a process for each role of the JSON document PLAY and
waits for all. The libraries are imported once, before the forks.
"""

import json
import os
import random
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

from orchestrator.app.this_computer.holder import process_ended, this_process
from orchestrator.app.this_computer.process_lock import only_here
from orchestrator.clock import SystemClock
from orchestrator.engine.lease.lease_object import Lease
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.errors import LeaseHeldError, TransientError
from tests.kit.records import changed
from tests.kit.waiting import until

TIMEOUT = 120.0
"""Real seconds after which a process that waits for another one gives up."""


class FastClock(SystemClock):
    """Return a time that goes *rate* times as fast as the real one, the same in every process."""

    def __init__(self, rate):
        self._rate = rate

    def now(self):
        return 1_800_000_000.0 + self.monotonic()

    def monotonic(self):
        return super().monotonic() * self._rate

    def wait(self, seconds, wake=None):
        super().wait(seconds / self._rate, wake)


def note(folder, name, **body):
    """Write a note that readers see whole."""
    draft = folder / f".{name}"
    draft.write_text(json.dumps(body))
    draft.rename(folder / name)


def append(folder, word, token):
    """Add a line to the book of those who held the lock: one write, so lines never mix."""
    book = os.open(folder / "book", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(book, f"{word} {os.getpid()} {token}\n".encode())
    os.close(book)


class Role:
    """One process of the play."""

    def __init__(self, url="", folder="", bucket="", rate=1.0, rounds=1, here=False, kind="contend", name=""):
        self.folder, self.rounds, self.here, self.kind, self.name = Path(folder), rounds, here, kind, name
        self.clock = FastClock(rate)
        self.me = this_process("watch", self.clock.now())
        if url:
            from orchestrator.google.clients import Clients, CloudSettings
            from orchestrator.google.objects import GcsStore

            self.store = GcsStore(Clients(CloudSettings("p", url, read_retry=0)), bucket)

    def run(self):
        getattr(self, self.kind)()

    def lease(self):
        """Return a lease that nobody has taken yet, as a process of this computer or of another one."""
        self.me = this_process("watch", self.clock.now())
        return Lease(self.store, self.clock, self.me, process_ended if self.here else lambda _: False)

    def record(self):
        """Return the record, loaded."""
        records = RecordStore(self.folder / f"record-{self.name}.json", self.store, "demo")
        records.load()
        return records

    @contextmanager
    def taken(self):
        """Take the lease, however often that is refused; note the words of the last refusal."""
        refusal, tries = "", 0
        while True:
            lease, tries = self.lease(), tries + 1
            try:
                lease.acquire()
                break
            except LeaseHeldError as held:
                refusal = f"{held.message}; {held.hint}"
            except TransientError:
                pass
            time.sleep(random.uniform(0.0, 0.03))  # So that not always the same process comes first.
        note(self.folder, f"refused-{self.name}", said=refusal, tries=tries)
        token = lease.token
        append(self.folder, "enter", token)
        with lease.renewing():
            yield lease
            lease.keep()
            append(self.folder, "leave", token)

    def contend(self):
        """Take and release the lease again and again."""
        for _ in range(self.rounds):
            with self.taken():
                time.sleep(random.uniform(0.0, 0.004))  # Long enough for others to come in the middle.

    def hold(self):
        """Take the lease and act; later, when told to go on, try to act once more."""
        lease = self.lease()
        lease.acquire()
        records = self.record()
        records.take(lease.token)
        append(self.folder, "enter", lease.token)
        note(self.folder, "held", pid=os.getpid(), token=lease.token, who=self.me.who)
        until((self.folder / "go").exists, "the holder is told to go on", TIMEOUT, 0.005)
        note(
            self.folder,
            "woken",
            write=_refusal(lambda: records.update(lambda record: changed(record, preemptions=99))),
            keep=_refusal(lease.keep),
            again=_refusal(lease.keep),
            release=_refusal(lease.release),
        )

    def take(self):
        """Take the lease from the holder once it may be taken, act, and keep it until told to end."""
        held = until(lambda: read(self.folder, "held"), "somebody holds the lease", TIMEOUT, 0.005)
        with self.taken() as lease:
            records = self.record()
            records.take(lease.token)
            records.update(lambda record: changed(record, preemptions=record.node.preemptions + 1))
            note(self.folder, f"took-{self.name}", token=lease.token, before=held["token"])
            until((self.folder / "end").exists, "the taker is told to end", TIMEOUT, 0.005)

    def lock(self):
        """Take and release the lock of this computer again and again."""
        for number in range(self.rounds):
            with self._locked():
                append(self.folder, "enter", number)
                time.sleep(random.uniform(0.0, 0.003))  # Long enough for others to come in the middle.
                append(self.folder, "leave", number)

    def keep_locked(self):
        """Take the lock of this computer and never give it back."""
        with self._locked():
            note(self.folder, "held", pid=os.getpid())
            until((self.folder / "go").exists, "the holder is told to go on", TIMEOUT, 0.005)

    def try_lock(self):
        """Try once to take the lock, when somebody holds it, and again when that one is dead."""
        held = until(lambda: read(self.folder, "held"), "somebody holds the lock", TIMEOUT, 0.005)
        with only_here_or(self.folder, self.me) as refusal:
            note(self.folder, "refused", said=refusal, pid=held["pid"])
        until((self.folder / "dead").exists, "the holder is dead", TIMEOUT, 0.005)
        with only_here_or(self.folder, self.me) as refusal:
            note(self.folder, "after", said=refusal)

    @contextmanager
    def _locked(self):
        while True:
            with only_here_or(self.folder, self.me) as refusal:
                if not refusal:
                    yield
                    return
            time.sleep(random.uniform(0.0, 0.01))  # So that not always the same process comes first.


@contextmanager
def only_here_or(folder, me):
    """Hold the lock of this computer, and yield an empty text; or yield why it was refused."""
    lock = only_here(folder / "state", me, lambda: None)
    try:
        lock.__enter__()
    except LeaseHeldError as held:
        yield held.message
        return
    try:
        yield ""
    finally:
        lock.__exit__(None, None, None)


def read(folder, name):
    """Return a note, None when nobody has written it."""
    path = folder / name
    return json.loads(path.read_text()) if path.exists() else None


def _refusal(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def perform(play):
    """Fork a process for each role; return how many failed, not counting those that were killed."""
    if any(role.get("url") for role in play):
        import google.cloud.storage  # noqa: F401 (imported once for all that are forked)
    remaining = 0
    for role in play:
        child = os.fork()
        if not child:
            status = 1
            try:
                random.seed()
                Role(**role).run()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        remaining += 1
    return sum(os.wait()[1] not in (0, 9) for _ in range(remaining))


if __name__ == "__main__":
    sys.exit(perform(json.loads(sys.argv[1])))
