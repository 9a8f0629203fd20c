"""Define the content of the lease object, which says who may act on a deployment, and its times."""

from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from functools import lru_cache

from orchestrator.contract.bucket.limits import LATEST_TIME
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.text.clean_text import cut
from orchestrator.errors import LeaseHeldError

# EXPIRES_AFTER > SAFE > RENEWAL: a holder stops acting 20 s before another may take over, which covers a slow
# answer and clocks of different speed. All versions must use the same numbers.
EXPIRES_AFTER = 60.0
"""Seconds after which a lease that was not renewed may be taken over."""
RENEWAL = 20.0
"""Seconds between two renewals."""
SAFE = 40.0
"""Seconds since the last renewal after which its holder stops acting."""
YIELD_TIMEOUT = 90.0
"""Seconds that a command waits for a holder that releases the lease on request."""

LOOP = "watch on the VM"
"""Command of the loop on the VM, as its lease names it."""
WATCH_ON_VM = "watch --on-vm"
"""Command that installs the loop on the VM, as its lease names it."""
PUSH = "push"
"""Command that delivers new code; `watch` yields to it and continues afterwards."""
PEOPLE = ("up", "adopt", "watch", "down", WATCH_ON_VM, PUSH)
"""Commands of a user, to which the loop on the VM yields until they have ended."""

SCHEMA = 1
MAX_BYTES = 16 << 10
"""Most bytes of a lease object."""


@dataclass(frozen=True)
class Holder:
    """
    The process that holds a lease, for messages to others.

    *id* is unique for each process. *since* is in seconds since the epoch by the holder's clock. *boot* and
    *space* name the running system and its process namespace, in which alone *pid* is meaningful. *yields*
    names the commands for which the holder releases the lease on request.
    """

    id: str
    who: str
    command: str
    since: float
    pid: int = 0
    boot: str = ""
    space: str = ""
    yields: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """Return what people call the process, and whose it is."""
        return called_with_user(self.command, self.who)

    def to_json(self) -> bytes:
        """Return the bytes of the lease object."""
        return _text(self)

    @classmethod
    def from_json(cls, data: bytes) -> "Holder":
        """
        Parse a lease object; one that is damaged gives an unknown holder.

        An unknown holder has no process id, so a damaged object never lets a live lease be taken over early.
        """
        # Ignore keys of a later version: all versions must respect each other's lease.
        known = {field.name for field in fields(cls)}
        try:
            body = {key: value for key, value in verified(data).items() if key in known}
            found = cls(**{**body, "yields": tuple(body.get("yields", ()))})
        except (ValueError, TypeError, AttributeError):
            return cls.nobody_known()
        return found.checked() if len(data) <= MAX_BYTES else cls.nobody_known()

    @classmethod
    def nobody_known(cls) -> "Holder":
        """Return the unknown holder, for a lease that cannot be read."""
        return cls("", "an unknown process (the lease object cannot be read)", "?", 0.0)

    def checked(self) -> "Holder":
        """Return the holder with printable text; the unknown holder if a field has a wrong type."""
        texts = (self.id, self.who, self.command, self.boot, self.space, *self.yields)
        # 4,194,304 is the largest process id of Linux; a signal to 0 or a negative number would reach
        # a whole group.
        whole = isinstance(self.pid, int) and not isinstance(self.pid, bool) and 0 <= self.pid <= 1 << 22
        timed = isinstance(self.since, int | float) and 0 <= self.since <= LATEST_TIME
        if not whole or not timed or not all(isinstance(text, str) for text in texts):
            return self.nobody_known()
        return replace(self, who=cut(self.who, 200), command=cut(self.command, 100))


@lru_cache(maxsize=8)
def _text(holder: Holder) -> bytes:
    return bytes_with_checksum({"schema": SCHEMA, **asdict(holder)})


def watch_command(*, on_vm: bool, fleet: bool = False) -> str:
    """Return the command that starts a watch where the deployment file wants it: *on_vm* is `watch.on_vm`."""
    return f"tpuctl {'fleet ' if fleet else ''}{WATCH_ON_VM if on_vm else 'watch'}"


def called(command: str) -> str:
    """Return what people call the process of a lease's *command*; the loop on the VM is nothing that one types."""
    return "the loop on the VM" if command == LOOP else f"`tpuctl {command}`"


def called_with_user(command: str, who: str) -> str:
    """Return what people call the process of *command*, and whose it is; the loop is the deployment's own."""
    return called(command) if command == LOOP else f"{called(command)} of {who}"


def held_by(holder: Holder, age: float) -> LeaseHeldError:
    """Return the error that says who holds the lease, with *age* of its last renewal in seconds."""
    since = datetime.fromtimestamp(holder.since, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    start = f" since {since}" if holder.since else ""
    remaining = max(0.0, EXPIRES_AFTER - age)
    code = "; for new code: `tpuctl push`, to which it yields" if PUSH in holder.yields else ""
    on_vm = holder.command == LOOP
    way = f"stop it: `tpuctl {WATCH_ON_VM} --stop`" if on_vm else "stop it with Ctrl-C there"
    who, command = (called(LOOP), "") if on_vm else (holder.who, f"{called(holder.command)}, ")
    return LeaseHeldError(
        f"{who} holds the lease{start} ({command}last sign of life {age:.0f} s ago)",
        hint=f"{way}; if it is dead, run the same command again in {remaining:.0f} s{code}",
        changed="nothing was changed",
    )
