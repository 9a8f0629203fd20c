"""Who may act on a deployment: the content of the lease object, and the times that go with it."""

from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from functools import lru_cache

from orchestrator.contract.limits import LATEST_TIME
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.clean_text import cut
from orchestrator.errors import LeaseHeldError

# LIFE > SAFE > RENEWAL: a holder stops acting 20 s before another may begin, which covers a slow answer
# and clocks that go differently. Both sides must know the same numbers: every version keeps them.
LIFE = 60.0
"""Seconds after which a lease that was not renewed may be taken over."""
RENEWAL = 20.0
"""Seconds between two renewals."""
SAFE = 40.0
"""Seconds since the last renewal after which its holder stops acting."""

LOOP = "watch on the VM"
"""The command of the loop on the VM, as its lease names it."""
HAND_OVER = "watch --on-vm"
"""The command that puts the loop on the VM, as its lease names it."""
PUSH = "push"
"""The command that brings new code, for which `watch` waits and then goes on."""
PEOPLE = ("up", "adopt", "watch", "down", HAND_OVER, PUSH)
"""Commands of people, for which the loop on the VM steps aside; it comes back when they have ended."""

SCHEMA = 1
LARGEST = 16 << 10
"""Most bytes of a lease object."""


@dataclass(frozen=True)
class Holder:
    """
    Describe the process that holds a lease, so that others can say who it is.

    *id* is new for each process. *since* is in seconds since the epoch by the holder's clock. *boot* and
    *space* name the running system and its process ids: only there *pid* means something. *yields*
    names the commands for which the holder steps aside when they ask for the lease.
    """

    id: str
    who: str
    command: str
    since: float
    pid: int = 0
    boot: str = ""
    space: str = ""
    yields: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Return the bytes of the lease object."""
        return _text(self)

    @classmethod
    def from_json(cls, data: bytes) -> "Holder":
        """
        Read a lease object; what cannot be read, or was changed since, is a holder whom nobody knows.

        So a damaged process id takes the lease from nobody who lives.
        """
        # Keys of a later version are left out: two versions must be able to respect each other's lease.
        known = {field.name for field in fields(cls)}
        try:
            body = {key: value for key, value in verified(data).items() if key in known}
            found = cls(**{**body, "yields": tuple(body.get("yields", ()))})
        except (ValueError, TypeError, AttributeError):
            return cls.nobody_known()
        return found.checked() if len(data) <= LARGEST else cls.nobody_known()

    @classmethod
    def nobody_known(cls) -> "Holder":
        """Return the holder whose lease cannot be read."""
        return cls("", "somebody (the lease object cannot be read)", "?", 0.0)

    def checked(self) -> "Holder":
        """Return the holder with text that can be shown; nobody known when a field has another type."""
        texts = (self.id, self.who, self.command, self.boot, self.space, *self.yields)
        # 4,194,304 is the largest process id of Linux; a signal to what is no id would go to a whole group.
        whole = isinstance(self.pid, int) and not isinstance(self.pid, bool) and 0 <= self.pid <= 1 << 22
        timed = isinstance(self.since, int | float) and 0 <= self.since <= LATEST_TIME
        if not whole or not timed or not all(isinstance(text, str) for text in texts):
            return self.nobody_known()
        return replace(self, who=cut(self.who, 200), command=cut(self.command, 100))


@lru_cache(maxsize=8)
def _text(holder: Holder) -> bytes:
    return bytes_with_checksum({"schema": SCHEMA, **asdict(holder)})


def held_by(holder: Holder, age: float) -> LeaseHeldError:
    """Return the error that says who holds the lease."""
    since = datetime.fromtimestamp(holder.since, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    start = f" since {since}" if holder.since else ""
    remaining = max(0.0, LIFE - age)
    return LeaseHeldError(
        f"{holder.who} holds the lease{start} (tpuctl {holder.command}, last renewed {age:.0f} s ago)",
        hint=f"stop it with Ctrl-C there; if it is dead, run the same command again in {remaining:.0f} s",
        changed="nothing was changed",
    )
