"""Where calls are made side by side: the one seam through which a test puts them in order."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


class Inline(Executor):
    """An executor without threads: each call is made when it is handed in."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run the call at once in this thread. Unlike an Exception, KeyboardInterrupt is raised and not stored."""
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
    """Make the calls of all pools in their order, without threads, while the block runs."""
    global _kind  # noqa: PLW0603 - one setting for the process, as threads are
    before, _kind = _kind, lambda _: Inline()
    try:
        yield
    finally:
        _kind = before
