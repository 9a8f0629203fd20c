"""Read progress bars of tqdm and of what uses it: Lightning, accelerate, the Hugging Face Trainer."""

from __future__ import annotations

import re
from typing import Optional, Tuple

from orchestrator.contract.printed.numbers import VALUE, value
from orchestrator.contract.printed.readers import EVAL, Reader

UNKNOWN = 1 << 60
"""Length of a bar that does not know it; never reached."""


class Bars(Reader):
    """
    Read tqdm's bars, including Lightning's; of several bars follow the one of the training.

    That is a bar without a title, one whose title says epoch, step, iter or train, or one that shows a loss.
    A bar with a loss has priority; a bar that counted something before the first loss is replaced by the next
    one, unless it is *settled* that it is the training's.
    """

    name = "bars"
    _PERCENT = re.compile(rb"(\d{1,3})\Z")
    _COUNTS = re.compile(rb" ?(\d{1,12})/(\d{1,12}) \[")
    # Lightning does not know the length of an epoch that it resumes in the middle.
    _ENDLESS = re.compile(rb"([^\d|]{0,80}): \|[^|]{0,300}\| (\d{1,12})/\? \[")
    _RICH = re.compile(rb"Epoch (\d{1,9})/\d{1,9} [^\d ]{0,300} ?(\d{1,12})/(\d{1,12}) \d+:")
    _TRAINS = re.compile(
        rb"(?<![a-z])(?:train(?:ing)?|epochs?|steps?|iter(?:ation)?s?)(?![a-z])", re.IGNORECASE
    )
    _ROUND = re.compile(rb"epoch[ :#\[(]{0,3}(\d{1,9})", re.IGNORECASE)
    _DIGITS = re.compile(rb"\d{1,12}")
    _BAR_LOSS = re.compile(
        rb"(?<![\w.-])(?:train[_/]|step_|batch_|avg_)?loss(?:_step)?[=:] ?" + VALUE, re.IGNORECASE
    )

    def __init__(self) -> None:
        super().__init__()
        self.titled, self.settled = False, False
        self._key: Optional[Tuple[bytes, int]] = None
        self._over = False
        self._from_zero = False
        self._before = 0
        self._last = 0

    def read(self, line: bytes) -> None:
        title, done, total, rest = self._bar(line)
        if not total:
            return
        found = self._BAR_LOSS.search(rest)
        # An evaluation's bar has counts too, which would be taken for steps.
        if EVAL.search(title) or not (found or not title or self._TRAINS.search(title)):
            return
        key = (self._DIGITS.sub(b"#", title), total)
        if key != self._key and not self._follow(key, found is not None):
            return
        self.titled = bool(title)
        loss = value(found[1]) if found else None
        self._at(self._count(title, rest, done, total), loss, None if title else total)
        self._last, self._over = done, done >= total

    def _bar(self, line: bytes) -> Tuple[bytes, int, int, bytes]:
        """Return title, count, total and the rest of the line; total 0 for a line without a bar."""
        head, drawn, tail = line.partition(b"%|")
        percent = self._PERCENT.search(head) if drawn else None
        if percent is not None:
            tail = tail.partition(b"|")[2]
            counts = self._COUNTS.match(tail)
            title = head[: percent.start()].strip().rstrip(b":").strip()
            return (title, int(counts[1]), int(counts[2]), tail) if counts else (b"", 0, 0, b"")
        endless = self._ENDLESS.match(line) if b"/? [" in line else None
        if endless is not None:
            return endless[1].strip(), int(endless[2]), UNKNOWN, line[endless.end() :]
        rich = self._RICH.match(line) if b"it/s" in line else None
        if rich is not None:
            self._from_zero = True  # Lightning shows "Epoch 2/2" in the third of three epochs.
            return b"Epoch " + rich[1], int(rich[2]), int(rich[3]), line[rich.end() :]
        return b"", 0, 0, b""

    def _follow(self, key: Tuple[bytes, int], shows_loss: bool) -> bool:
        """Return whether another bar replaces the one that was followed."""
        replaced = self.loss is None and (shows_loss or self._over) and not self.settled
        if self._key is not None and not replaced:
            return False
        self._key, self._over, self.step = key, False, None
        self._before, self._last = 0, 0
        return True

    def _count(self, title: bytes, rest: bytes, done: int, total: int) -> int:
        """Return the step over all epochs: the bar of each starts at 0."""
        named = self._ROUND.search(title)
        if named is not None:
            # Lightning, recognised by its version number, counts epochs from 0; most scripts count from 1.
            self._from_zero = self._from_zero or b"v_num" in rest or int(named[1]) == 0
            return (int(named[1]) - (0 if self._from_zero else 1)) * total + done
        if done < self._last and self._over:
            self._before += total
        return self._before + done


class Trainer(Reader):
    """Read the Hugging Face Trainer and its derivatives (TRL): a dict with loss and epoch beside a bar."""

    name = "trainer"
    exact = True
    _LOSS = re.compile(rb"[\"']loss[\"']: ?[\"']?" + VALUE, re.IGNORECASE)

    def __init__(self, bars: Bars) -> None:
        super().__init__()
        self._bars = bars
        self._new = False

    def read(self, line: bytes) -> None:
        if b"epoch'" in line or b'epoch"' in line:
            found = self._LOSS.search(line)
            if found:
                self.loss, self.loss_step, self._new = value(found[1]), None, True
        elif self._new and b"%|" in line:
            # tqdm draws seldom, but again after each line that it writes: that bar has the step of the loss.
            self.loss_step, self._new = self._bars.step, False
        # The bar is drawn at 0 before the Trainer jumps to the step that it resumes from.
        if self.loss is not None and self._bars.step and not self._bars.titled:
            self._bars.settled = True
            self._at(self._bars.step, None, self._bars.total)
