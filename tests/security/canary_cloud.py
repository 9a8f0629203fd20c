"""
A cloud in which secrets are about: where they may be is known, and everything else is searched for them.

Commands are real and run in a fork that is killed by SIGKILL; the cloud around them can be put back.
"""

import base64
import gzip
import io
import json
import os
import pickle
import signal
import sys
import tarfile
import zipfile
from contextlib import contextmanager
from unittest.mock import patch

from apprise import apprise

from orchestrator.contract.secrets.redaction import Redactor
from orchestrator.domain.remote import CommandAnswer
from orchestrator.emulator.client import shorten
from orchestrator.emulator.http.router import Request
from orchestrator.emulator.http.secrets import secret_routes
from orchestrator.emulator.state.secrets import Secrets
from orchestrator.engine.reconcile import artifacts
from orchestrator.engine.records import journal, record_store
from orchestrator.google.secret_manager import SecretManager
from tests.crash.crash_lab import storage_parts
from tests.kit import cloud as clouds
from tests.kit.cloud import PROJECT, VirtualCloud
from tests.kit.machines import CloudMachines, CloudSsh
from tests.kit.user import CommandProcess, CommandResult, User
from tests.kit.wire import clients
from tests.security.secret_kit import spellings

KEY = "id_ed25519"
LOGIN = "login.json"
"""What lies in a computer's folder and is a secret by itself."""
SECRET_FILES = (KEY, LOGIN)


class CanaryCloud(VirtualCloud):
    """Keep all that computers send; *values* are the secrets by name."""

    def __init__(self, folder, values, **settings):
        self.values, self.sent, self.said = values, [], []
        self.forms, self.searched = {}, {}
        with patch.object(clouds, "CloudMachines", LoudMachines):
            super().__init__(folder, latency="instant", **settings)
        self.secrets = Secrets(self.clock, self.model.settings.project_number)
        secret_routes(self.router, self.model, self.secrets)

    def answer(self, request, timeout):
        if not request.path.endswith(":addVersion"):
            reported = (request.method, request.path, dict(request.query), dict(request.headers))
            self.sent.append(repr(reported).encode() + b"\n" + request.body)
        return super().answer(request, timeout)

    def answer_to(self, body):
        """Be sent *body* by somebody."""
        return self.answer(Request("PUT", "/nowhere", {}, {}, body), 1.0)

    @contextmanager
    def open(self):
        """Be the cloud of this process; writes to the disk are steps at which a command can be killed, too."""
        changes = [
            (clouds, "CloudSsh", SentScripts),
            *(
                (module, name, self._killable(getattr(module, name)))
                for module, name in (
                    (record_store, "write_private"), (artifacts, "write_private"), (journal, "append_synced"),
                )
            ),
        ]  # fmt: skip
        with super().open():
            patches = [
                *(patch.object(*change) for change in changes),
                patch("orchestrator.app.secret.open_manager", self._manager),
                patch("orchestrator.app.notify.open_manager", self._manager),
                patch("orchestrator.engine.publish.outbox.OutboxThread", ImmediateOutbox),
            ]
            for one in patches:
                one.start()
            try:
                yield self
            finally:
                for one in patches:
                    one.stop()

    def _killable(self, write):
        def written(*words, **options):
            if not self.acting:
                return write(*words, **options)
            process = self.acting[-1]
            process.before_call("disk")
            made = write(*words, **options)
            process.after_call("disk")
            return made

        return written

    def _manager(self, *_):
        made = SecretManager(clients())
        session = made._rest._session
        shorten(session, self.answer)
        short = session.request

        def request(method, url, **options):
            return short(method, url, data=json.dumps(options.pop("json")).encode(), **options)

        session.request = request
        return made, PROJECT

    # The cloud as a value.

    def _parts(self):
        return (
            *storage_parts(self.storage),
            (self.clock, ("_now", "_elapsed")),
            (self.model.kernel, ("state", "settings")),
            (self.machines, ("workers", "starts")),
            (self.secrets, ("_held",)),
            (self, ("sent",)),
        )

    def freeze(self):
        """Return cloud, machines and time as they are now; not the disks of computers."""
        values = [[getattr(part, name) for name in names] for part, names in self._parts()]
        return pickle.dumps([values, [one.holders for one in self.processes]])

    def thaw(self, frozen, user):
        """Put a frozen cloud back; commands of *user* that ran in it are over."""
        values, holders = pickle.loads(frozen)  # noqa: S301 - written by `freeze` of this program
        for (part, names), found in zip(self._parts(), values, strict=True):
            for name, value in zip(names, found, strict=True):
                setattr(part, name, value)
        self.processes = [CommandProcess(user, (), holders=held, over=True) for held in holders]
        self.checks.newest.clear()

    # The search.

    def artefacts(self):
        """Yield what is anywhere but in Secret Manager, with its name."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.name not in SECRET_FILES:
                yield from opened(path.relative_to(self.folder).as_posix(), path.read_bytes())
        yield "the cloud's state", pickle.dumps(self.model.kernel.state)
        yield "buckets", repr([vars(one) for one in self.storage.buckets.list(PROJECT)]).encode()
        for one in list(self.storage.objects.all()):
            yield from opened(f"gs://{one.name}", self.storage.objects.read(one))
            # Its name as it is too: repr doubles each backslash.
            yield f"fields of gs://{one.name}", f"{one!r} {one.name}".encode()
        yield from ((f"request {number}", data) for number, data in enumerate(self.sent))
        yield from ((f"output {number}", data) for number, data in enumerate(self.said))

    def found(self):
        """Return each artefact that holds a secret, with the secret's name; the same bytes are read once."""
        wrong, known = [], self._forms()
        for where, data in self.artefacts():
            if data not in self.searched:
                self.searched[data] = [name for name, forms in known if any(form in data for form in forms)]
            wrong += [(where, name) for name in self.searched[data]]
        return wrong

    def _forms(self):
        known = dict(self.values)
        for path in self.folder.rglob(KEY):
            # The first lines are the same in every key, or hold what everybody may know.
            known |= {f"key {n}": line for n, line in enumerate(path.read_text().splitlines()[3:-1])}
        if known.keys() - self.forms.keys():
            self.searched.clear()
            self.forms |= {name: spellings(text) for name, text in known.items()}
        return tuple(self.forms.items())


class LoudMachines(CloudMachines):
    """Machines whose job prints every secret that it was given, in each spelling, through the agent's own mask."""

    def start(self, worker, *, restart=False):
        begins = restart or not worker.running
        super().start(worker, restart=restart)
        if begins:
            place = f"logs/g{worker.incarnation}/w{worker.index}/{self.starts[worker.id]:06d}.log"
            self.put(worker, place, self.masked(b"step 1\n" + b"\n".join(self._shouted())))

    def masked(self, data):
        """Return output of the job as the agent shows it."""
        redactor = Redactor()
        for one in self.cloud.secrets.all():
            for version in one.versions:
                redactor.know(one.name, base64.b64decode(version.data).decode())
        return redactor.text(data.decode()).encode()

    def _shouted(self):
        for one in self.cloud.secrets.all():
            for version in one.versions:
                yield from sorted(spellings(base64.b64decode(version.data).decode()))


class SentScripts(CloudSsh):
    """Note all that goes to machines over SSH."""

    def _note(self, *what):
        self.cloud.sent.append(repr(what).encode())

    def push(self, hosts, bundle, digest, root):
        self._note("push", str(bundle), digest, str(root))
        return super().push(hosts, bundle, digest, root)

    def put(self, hosts, data, target, mode):
        self._note("put", target)
        self.cloud.sent.append(bytes(data))
        return super().put(hosts, data, target, mode)

    def run(self, hosts, command, timeout, stdin=""):
        self._note("run", command, stdin)
        return super().run(hosts, command, timeout, stdin)

    def ask(self, hosts, command, timeout):
        """Answer what `env` prints on a machine."""
        self._note("ask", command)
        reported = [(host.name, self._reach(host).env) for host in hosts]
        return [
            CommandAnswer(name, 0, "".join(f"{k}={v}\n" for k, v in env.items()), "")
            for name, env in reported
        ]

    def run_elevated(self, hosts, script, timeout):
        self._note("run_elevated", script)
        return super().run_elevated(hosts, script, timeout)


class ImmediateOutbox:
    """Deliver at once what a thread would deliver beside the loop."""

    def __init__(self, outbox):
        self._outbox = outbox

    def add(self, notifications):
        self._outbox.add(notifications)
        self._outbox.deliver()

    def end(self, _):
        self._outbox.deliver()
        return self._outbox.unsent


class CanaryUser(User):
    """A computer with secrets in its environment and a login of its own."""

    def __init__(self, cloud, variables, **file):
        self.variables = variables
        super().__init__(cloud, **file)
        self.login = self.folder / LOGIN
        self.login.write_text(json.dumps({"type": "authorized_user", "refresh_token": cloud.values["LOGIN"]}))

    def _environment(self):
        login = {"GOOGLE_APPLICATION_CREDENTIALS": str(self.folder / LOGIN)}
        return {**super()._environment(), **self.variables, **login}

    def type(self, *words, stdin=b"", **options):
        with patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin))):
            said = super().type(*words, **options)
        self.cloud.said += [said.out.encode(), said.err.encode()]
        return said

    def killed(self, *words, at, how, ends, **options):
        """
        Run a command in a fork that dies by SIGKILL at its step *at*, and let its world be this one.

        With *how* `bug` it meets an error that nobody has foreseen there instead. Return how it ended and how
        many steps it has made; *ends* is where the fork writes down the world at its end.
        """
        kill = () if at is None else (at, "before" if how == "bug" else how)
        pid = os.fork()
        if pid == 0:
            # Threads do not come along in a fork, and Apprise would wait for its own.
            apprise._shared_executor = apprise._coordinator_executor = None
            with patch.object(CommandProcess, "die", _broken if how == "bug" else _killed(self.cloud, ends)):
                said = self.type(*words, kill=kill, **options)
            _write(self.cloud, ends, said)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        frozen, said = pickle.loads(ends.read_bytes())  # noqa: S301 - written by the fork
        assert os.WIFSIGNALED(status) == (said.code is None), (status, said)
        self.cloud.thaw(frozen, self)
        self.cloud.said += [said.out.encode(), said.err.encode()]
        return said


def _write(cloud, ends, said):
    ends.write_bytes(pickle.dumps([cloud.freeze(), said]))


def _broken(process):
    raise ZeroDivisionError(f"a bug at step {process.calls}")


def _killed(cloud, ends):
    """Return what ends a process as SIGKILL does: nothing is cleared away."""

    def die(process):
        process.over = True
        _write(cloud, ends, CommandResult(None, sys.stdout.getvalue(), sys.stderr.getvalue(), process.calls))
        os.kill(os.getpid(), signal.SIGKILL)

    return die


def opened(name, data):
    """Yield the bytes of a file; of an archive also what is packed in it."""
    yield name, data
    if data[:2] == b"\x1f\x8b" and "/uv-" not in name:  # a program of others, packed alone
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
            for member in archive.getmembers():
                held = archive.extractfile(member) if member.isfile() else None
                yield f"{name}/{member.name}", member.name.encode() + (held.read() if held else b"")
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield f"{name}/{member}", member.encode() + archive.read(member)
