"""Choose the reader that gives the job's progress, and combine the results."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Optional, Pattern

from orchestrator.contract.printed.bars import Bars, Trainer
from orchestrator.contract.printed.numbers import COUNT, VALUE, count, value
from orchestrator.contract.printed.readers import EVAL, LOSS, Epochs, Keras, Levanter, Lines, Reader

AUTO = "auto"
OFF = "none"
PRESETS = ("lines", "trainer", "keras", "levanter", "bars", "epochs", "rounds")
"""Names of the readers, most trusted first: a count printed by the job itself precedes one of a bar."""
_WORDS = (b"loss", b"epoch", b"%|", b"progress on", b"train-", b"training's ", b"learn: ")
"""Every line that a reader knows contains one of them; most lines of a log contain none."""


@dataclass(frozen=True)
class Printed:
    """
    The progress from the output so far; *source* is the reader's name, *exact* as in `Reader`.

    *loss* is NaN if the job printed NaN, None if it printed none. *loss_step* is the step that it was printed for
    if that is an earlier one than *step*.
    """

    step: Optional[int] = None
    loss: Optional[float] = None
    rate: Optional[float] = None
    total: Optional[int] = None
    source: str = ""
    exact: bool = False
    loss_step: Optional[int] = None


class Output:
    """
    Follow the output of one start of the job.

    *wanted* is `auto`, `none`, the name of a preset, or the job's own patterns as JSON. For unusable patterns
    *message* says what is wrong.
    """

    def __init__(self, wanted: str = AUTO) -> None:
        own = Own.of(wanted) if wanted.startswith("{") else None
        self._own = own
        bars = Bars()
        everyone: List[Reader] = [Lines(), Trainer(bars), Keras(), Levanter(), bars, Epochs(), Rounds()]
        # The Trainer's reader uses the bars, so they read first.
        self._readers = [bars, *(r for r in everyone if r is not bars)] if wanted != OFF else []
        self._ranked = [r for r in self._readers if r.name == wanted] if wanted in PRESETS else everyone
        self._ranked = [] if wanted == OFF else self._ranked

    @property
    def message(self) -> str:
        """Return what is wrong with the job's own patterns, empty for nothing."""
        return self._own.message if self._own is not None else ""

    def read(self, lines: Iterable[bytes]) -> None:
        """Pass lines of `stream.plain` to every reader."""
        for line in lines:
            of_own = self._own is not None and self._own.read(line)
            lower = line.lower()
            if any(word in lower for word in _WORDS):
                for reader in self._readers:
                    reader.read(line)
            if self._own is not None and of_own:
                # The next steps come without a loss, and this one is not theirs.
                self._own.loss_step = self._own.step if "step" in self._own.asks else self._step()

    def _step(self) -> Optional[int]:
        return next((r.step for r in self._ranked if r.step is not None), None)

    def now(self) -> Printed:
        """Return the progress: from the job's own patterns, else from the first reader with a step."""
        teller = next((r for r in self._ranked if r.step is not None), None)
        any_loss = next((r.loss for r in self._ranked if r.loss is not None), None)
        found = Printed(loss=any_loss)
        if teller is not None:
            loss = any_loss if teller.loss is None else teller.loss
            earlier = _earlier(teller.loss_step, teller.step)
            found = Printed(teller.step, loss, None, teller.total, teller.name, teller.exact, earlier)
        own = self._own
        if own is None:
            return found
        of_own = own.loss is not None or "loss" in own.asks
        loss, at = (own.loss, own.loss_step) if of_own else (found.loss, found.loss_step)
        if "step" in own.asks:
            source = "pattern" if own.step is not None else ""
            at = at if of_own else None
            return Printed(own.step, loss, own.rate, None, source, True, _earlier(at, own.step))
        at = _earlier(at, found.step)
        return Printed(found.step, loss, own.rate, found.total, found.source, found.exact, at)


def _earlier(loss_step: Optional[int], step: Optional[int]) -> Optional[int]:
    """Return the step of a loss if it is an earlier one than *step*, else None."""
    return loss_step if loss_step is not None and step is not None and loss_step < step else None


class Rounds(Reader):
    """
    Read a round of xgboost, LightGBM or CatBoost, or `[120] train_loss=0.5` of a hand-written loop.

    xgboost and CatBoost count from 0, and again from 0 when they continue from a model.
    """

    name = "rounds"
    _ROUND = re.compile(
        rb"(?:\[" + COUNT + rb"\]|" + COUNT + rb":)[ \t]{1,4}"
        rb"(?:train(?:ing)?(?:-|'s )[\w@-]{1,40}|learn): ?" + VALUE
    )
    _BRACKET = re.compile(rb"\[" + COUNT + rb"(?:/" + COUNT + rb")?\]:?[ \t]")

    def read(self, line: bytes) -> None:
        found = self._ROUND.match(line)
        if found is not None:
            self._at(count(found[1] or found[2]), value(found[3]))
            return
        bracket = self._BRACKET.match(line)
        loss = LOSS.search(line, bracket.end()) if bracket is not None else None
        if bracket is not None and loss is not None and not EVAL.search(line, 0, loss.start()):
            self._at(count(bracket[1]), value(loss[1]), None if bracket[2] is None else count(bracket[2]))


KEYS = ("step", "loss", "rate")
MAX_LINE = 512
SLOW = 0.5
"""Seconds of matching after which a pattern is disabled."""

_COUNT = re.compile(rb"[\d,]{1,16}\Z")


class Own:
    """
    Find step, loss and rate with the patterns of `job.progress`, each with one group, or a group of that name.

    The controller refuses patterns that are slow on some line. Python's `re` cannot be interrupted, so lines
    are cut here, and a pattern that was slow once is disabled, which *message* reports.
    """

    def __init__(self, patterns: Dict[str, Pattern[bytes]], clock: Callable[[], float]) -> None:
        self._patterns = patterns
        self._clock = clock
        self.asks = frozenset(patterns)
        self.step: Optional[int] = None
        self.loss: Optional[float] = None
        self.loss_step: Optional[int] = None
        self.rate: Optional[float] = None
        self.message = ""

    @staticmethod
    def of(text: str, clock: Callable[[], float] = time.perf_counter) -> "Own":
        """Return the patterns of a JSON object. Never raise; *message* says what is wrong."""
        found: Dict[str, Pattern[bytes]] = {}
        message = ""
        try:
            given = json.loads(text)
            for key in KEYS:
                if given.get(key):
                    found[key] = re.compile(given[key].encode())
        except (ValueError, re.error, AttributeError, RecursionError, OverflowError) as error:
            message = f"job.progress cannot be used: {error}"
        made = Own(found, clock)
        made.message = message
        return made

    def read(self, line: bytes) -> bool:
        """Read one line of `stream.plain`; return whether it has a loss."""
        has_loss = False
        for key, pattern in list(self._patterns.items()):
            began = self._clock()
            found = pattern.search(line[:MAX_LINE])
            took = self._clock() - began
            if took > SLOW:
                # Matching cannot be interrupted, and the next line would delay the heartbeat by as much.
                del self._patterns[key]
                self.message = f"job.progress.{key} took {took:.1f} s on one line and is not used any more"
            if found is not None:
                text = found[key] if key in pattern.groupindex else found[1 if pattern.groups else 0]
                self._take(key, text or b"")
                has_loss = has_loss or key == "loss"
        return has_loss

    def _take(self, key: str, text: bytes) -> None:
        text = text.strip()
        if key == "step" and _COUNT.match(text) and text.strip(b","):
            self.step = min(count(text.replace(b",", b"")), 10**12)
        elif key == "loss" and text:
            self.loss = value(text)
        elif key == "rate" and text and value(text) >= 0:
            self.rate = value(text)
