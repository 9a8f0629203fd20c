"""Provide the executor for parallel calls; tests replace it to run the calls in order."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


class Inline(Executor):
    """An executor without threads: each call runs when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run the call now, in this thread. KeyboardInterrupt is raised, not stored like an Exception."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


_kind: Callable[[int], Executor] = ThreadPoolExecutor


def pool(most: int) -> Executor:
    """Return an executor for at most *most* calls at a time."""
    return _kind(max(1, most))


@contextmanager
def one_after_the_other() -> Iterator[None]:
    """Run the calls of all pools in order and without threads while the block runs."""
    global _kind  # noqa: PLW0603 - one setting for the process, as threads are
    before, _kind = _kind, lambda _: Inline()
    try:
        yield
    finally:
        _kind = before
