"""Handle signals in a block only, and restore what handled them before."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handled(numbers: Iterable[signal.Signals], by: Callable[..., Any] | signal.Handlers) -> Iterator[None]:
    """Handle these signals *by* that in the block."""
    before = {number: signal.signal(number, by) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
