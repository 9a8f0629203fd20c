"""
Hold the lease, so that only one process at a time changes a deployment.

The lease is an object in the bucket, created with "must not exist", renewed and released by its generation.
Its age is measured by the bucket's clock only, so the clocks of computers may differ. A holder that cannot
renew it stops acting before another process may take it over. The new holder writes the record first, so that
a late write of a paused holder is refused.

Cloud Storage allows one change of an object per second. So that a command need not wait for that at its end,
the holder may write a second object that names the released generation, instead of deleting the lease.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

from orchestrator.clock import Clock, SteadyClock
from orchestrator.contract.backoff import Backoff, retried
from orchestrator.contract.bucket.object_names import LEASE, LEASE_WISH
from orchestrator.domain.lease import EXPIRES_AFTER, RENEWAL, SAFE, YIELD_TIMEOUT, Holder, held_by
from orchestrator.domain.ports import Store, StoredObject
from orchestrator.engine.lease.lease_release import is_released, release
from orchestrator.engine.records.record_store import RecordStore, bucket_refused
from orchestrator.errors import (
    AuthError,
    LeaseHeldError,
    NotFoundError,
    PreconditionError,
    TpuctlError,
    TransientError,
)

CLOCK_VALID = 3600.0
"""Seconds after which the clock is compared with the bucket's again."""
TIMEOUT = 15.0
"""Seconds to retry when the bucket does not answer."""
PAUSES = Backoff(1.0, 1.0)
"""Between tries to write the lease while the bucket does not answer; a lease lives for a minute."""
TOO_SOON = "TPU-402"


class Lease:
    """
    Acquire, renew and release the lease of one deployment for *me*, from any thread.

    *process_ended* says whether another holder was a process of this computer that has ended; its lease is
    taken over at once. *taken_from* is a previous holder that had not released the lease, so its last calls may
    still take effect.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        me: Holder,
        process_ended: Callable[[Holder], bool] = lambda _: False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._process_ended = process_ended
        self._lock = threading.RLock()
        self._generation: int | None = None
        self._renewed = 0.0
        self._clock_set_at: float | None = None
        self._lost: LeaseHeldError | None = None
        self._refused: TpuctlError | None = None
        self._asked = False
        self.taken_from: Holder | None = None
        self.me = me

    @property
    def token(self) -> int | None:
        """Return the fencing token, None while there is no bucket to hold a lease in."""
        return self._generation

    def refuse_if_held(self) -> None:
        """
        Raise LeaseHeldError if another process has the lease and does not yield to this command.

        This is a look, made before a question that would be in vain, and acquires nothing. A bucket that does
        not answer says nothing.
        """
        with contextlib.suppress(TransientError, AuthError, NotFoundError):
            found = self._store.read(LEASE)
            if found is None or is_released(self._store, found):
                return
            holder, age = Holder.from_json(found.data), self._clock.now() - found.updated
            mine = holder.id == self.me.id or self.me.command in holder.yields
            if age < EXPIRES_AFTER and not mine and not self._process_ended(holder):
                raise held_by(holder, age)

    def acquire(self) -> None:
        """
        Take the lease; return without one if there is no bucket yet.

        Raise LeaseHeldError, with the holder and the age of its renewal, after waiting YIELD_TIMEOUT for a
        holder that yields to this command.
        """
        with self._lock:
            end = self._clock.monotonic() + YIELD_TIMEOUT
            while True:
                held = retried(
                    self._attempt, (TransientError,), PAUSES, timeout=TIMEOUT,
                    now=self._clock.monotonic, wait=self._clock.wait,
                )  # fmt: skip
                if held is None:
                    if self._asked:
                        self._forget_wish()
                    return
                holder, age = held
                if self.me.command not in holder.yields or self._clock.monotonic() >= end:
                    self._forget_wish()
                    raise held_by(holder, age)
                self._clock.wait(1.0)

    def _attempt(self) -> tuple[Holder, float] | None:
        """Try once; return None on success, else the holder and the age of its last renewal in seconds."""
        started = self._clock.monotonic()
        try:
            found = self._store.read(LEASE)
            # The release note counts as a deletion, which would have to wait for the object's rate limit.
            if found is None or is_released(self._store, found):
                return self._take(found.generation if found else 0, started)
            holder = Holder.from_json(found.data)
            # Held by us before, or by a process of this computer that has ended: it cannot act any more.
            if holder.id == self.me.id or self._process_ended(holder):
                return self._take(found.generation, started, holder)
            # Only by the bucket's clock: clocks of two computers may differ by more than a lease lives.
            age = self._age(found)
            return self._take(found.generation, started, holder) if age >= EXPIRES_AFTER else (holder, age)
        except NotFoundError:
            return None
        except AuthError as error:
            raise bucket_refused(error) from error

    def _take(
        self, generation: int, started: float, previous: Holder | None = None
    ) -> tuple[Holder, float] | None:
        try:
            # A compare-and-swap: of all that try to take the lease now, the bucket lets one through.
            self._generation = self._store.write(LEASE, self.me.to_json(), if_generation=generation)
        except PreconditionError:
            found = self._store.read(LEASE)
            if found is None:
                return (Holder("", "another tpuctl", "?", 0.0, yields=(self.me.command,)), 0.0)
            holder = Holder.from_json(found.data)
            if holder.id != self.me.id:
                return (holder, 0.0)
            self._generation = found.generation  # Our own write, whose answer was lost.
        # Counted from before the call, or a late answer would make the lease look fresher than it is.
        self._renewed = started
        self._lost = None
        self.taken_from = previous
        self._set_clock()
        return None

    def _set_clock(self) -> None:
        """Set our clock to the bucket's, using the time of the write that was just made."""
        if not isinstance(self._clock, SteadyClock):
            self._clock_set_at = self._clock.monotonic()
            return
        with contextlib.suppress(TpuctlError):
            # All times in the record are by the bucket's clock, whichever computer writes them.
            written = self._times().get(LEASE)
            if written is not None and written.generation == self._generation:
                self._clock.set(written.updated + self._clock.monotonic() - self._renewed)
                self._clock_set_at = self._clock.monotonic()

    def _age(self, found: StoredObject) -> float:
        """Return the seconds since the last renewal by the bucket's clock, found by writing our wish object now."""
        self._asked = True
        self._store.write(LEASE_WISH, self.me.to_json())
        times = self._times()
        lease = times.get(LEASE, found)
        return times.get(LEASE_WISH, lease).updated - lease.updated

    def _times(self) -> dict[str, StoredObject]:
        """Return lease and wish without content; a list has times in microseconds, a read in seconds only."""
        return {one.name: one for one in self._store.list(LEASE)}

    def keep(self) -> None:
        """
        Make sure that we may act now, and renew the lease when it is due; return if there is no bucket.

        Raise LeaseHeldError if another process has the lease; TransientError if it could not be renewed for
        SAFE seconds, or our clock was never compared with the bucket's; AuthError if our credentials are
        refused.
        """
        with self._lock:
            if self._lost is not None:
                raise self._lost
            if self._generation is None:
                return
            if self._clock_set_at is None or self._clock.monotonic() - self._renewed >= RENEWAL:
                self._renew()
            age = self._clock.monotonic() - self._renewed
            # Stop well before EXPIRES_AFTER has passed: a call under way may still take a while to take effect.
            if age >= SAFE:
                raise _in_doubt("the lease in the bucket could not be renewed", self._refused)
            if self._clock_set_at is None:
                raise _in_doubt("the bucket has not told the time yet, and clocks of computers differ")

    def _renew(self) -> None:
        started = self._clock.monotonic()
        try:
            # By generation: if another process has taken the lease over, this write fails instead of
            # taking it back.
            self._generation = self._store.write(LEASE, self.me.to_json(), if_generation=self._generation)
            self._renewed, self._refused = started, None
            if self._clock_set_at is None or started - self._clock_set_at >= CLOCK_VALID:
                self._set_clock()
        except PreconditionError:
            # Another generation: our own write whose answer was lost, or another process's.
            self._settle(started)
        except NotFoundError:
            self._generation = None  # The bucket is deleted, and every lease with it.
        except TpuctlError as error:
            # Not lost: the lease is ours until SAFE, and the next renewal may succeed.
            self._refused = error

    def _settle(self, started: float) -> None:
        """
        Find out who wrote the lease: we, in a call whose answer was lost, or another holder.

        Raise LeaseHeldError if it was another holder.
        """
        found = self._store.read(LEASE)
        holder = Holder.from_json(found.data) if found else Holder("", "another tpuctl", "?", 0.0)
        if found is None or holder.id != self.me.id:
            self._generation = None
            self._lost = held_by(holder, 0.0)
            raise self._lost
        self._generation = found.generation
        self._renewed = started

    def step_aside(self) -> None:
        """
        Raise LeaseHeldError when a command that we yield to asks for the lease.

        A wish that was not renewed for EXPIRES_AFTER seconds is ignored, as is one of an ended process of this
        computer, and a bucket that does not answer.
        """
        if self._generation is None or not self.me.yields:
            return
        try:
            wish = self._store.read(LEASE_WISH)
            lease = self._store.read(LEASE) if wish else None
        except TpuctlError:
            return
        # An old wish is from a command that has given up; one that still waits renews its wish.
        if wish is None or lease is None or wish.updated < lease.updated - EXPIRES_AFTER:
            return
        asker = Holder.from_json(wish.data)
        if asker.id != self.me.id and asker.command in self.me.yields and not self._process_ended(asker):
            deletes = asker.command == "down"
            does = "is deleting the machines" if deletes else "works on this deployment now"
            aside = LeaseHeldError(
                f"{asker.called} {does}; this {self.me.command} ends",
                hint="see what it leaves: tpuctl status"
                if deletes
                else "run the same command again when it is done",
                changed="" if deletes else "what runs keeps running",
            )
            aside.asker = asker.command
            raise aside

    def wish(self) -> None:
        """
        Ask the holder to step aside; ignore a bucket that does not answer.

        The wish is deleted once we have the lease, so that a returning holder does not yield to it again.
        """
        self._asked = True
        with contextlib.suppress(TpuctlError):
            self._store.write(LEASE_WISH, self.me.to_json())

    def release(self) -> None:
        """Release the lease; if that fails, it expires after EXPIRES_AFTER seconds."""
        with self._lock, contextlib.suppress(TpuctlError):
            # Forget the generation before the delete, so that the renewing thread cannot write the lease again.
            generation, self._generation = self._generation, None
            if generation is None:
                return
            try:
                # With its generation: a lease that was taken over meanwhile is not ours to delete.
                self._store.delete(LEASE, if_generation=generation, patient=False)
            except TpuctlError as error:
                if error.code == TOO_SOON:
                    release(self._store, generation)

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew the lease from a thread while the block runs, then release it."""
        over = threading.Event()
        thread = threading.Thread(target=self._renew_until, args=(over,), name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.release()

    def _forget_wish(self) -> None:
        self._asked = False
        with contextlib.suppress(TpuctlError):
            self._store.delete(LEASE_WISH)

    def _renew_until(self, over: threading.Event) -> None:
        while not over.is_set():
            self._clock.wait(RENEWAL / 4, over)
            # `keep` stores the error for the caller's own next `keep`; this thread must not end by it.
            with contextlib.suppress(TpuctlError):
                self.keep()


def take_record(
    lease: Lease, records: RecordStore, check: Callable[[], None] = lambda: None, *, fresh: bool = False
) -> None:
    """
    Read the record under the acquired *lease*, *check* it, and write the lease's token into it.

    A *fresh* record was read under this lease already.
    """
    if not fresh:
        # The previous holder may have written it until the moment in which it released the lease.
        records.load()
    check()
    records.take(lease.token, over=lease.taken_from is not None)


def _in_doubt(message: str, cause: TpuctlError | None = None) -> TpuctlError:
    """Return the error for a lease that may no longer be ours."""
    text = f"{message}: {cause.message}" if cause else message
    changed = "nothing is created or deleted meanwhile; what runs keeps running"
    if isinstance(cause, AuthError):
        return AuthError(text, hint=cause.hint, changed=changed)
    hint = "nothing to do: tpuctl continues as soon as the bucket answers"
    return TransientError(text, hint=hint, changed=changed)
