"""Which of the readers tells the job's progress, and what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, List, Optional

from orchestrator.contract.printed.bars import Bars, Trainer
from orchestrator.contract.printed.numbers import COUNT, VALUE, count, value
from orchestrator.contract.printed.own_patterns import Own
from orchestrator.contract.printed.readers import EVAL, LOSS, Epochs, Keras, Levanter, Lines, Reader

AUTO = "auto"
OFF = "none"
PRESETS = ("lines", "trainer", "keras", "levanter", "bars", "epochs", "rounds")
"""Names of the readers, the most trusted first: a count that a job prints itself before one of its bar."""
_WORDS = (b"loss", b"epoch", b"%|", b"progress on", b"train-", b"training's ", b"learn: ")
"""One of them stands in every line that a reader knows; most lines of a log have none."""


@dataclass(frozen=True)
class Printed:
    """
    Hold what the output says so far; *source* is the reader's name, *exact* as in `Reader`.

    *loss* is NaN where the job printed that, None where it printed none.
    """

    step: Optional[int] = None
    loss: Optional[float] = None
    rate: Optional[float] = None
    total: Optional[int] = None
    source: str = ""
    exact: bool = False


class Output:
    """
    Follow the output of one start of the job.

    *wanted* is `auto`, `none`, the name of a preset, or the job's own patterns as JSON. One that cannot be
    used leaves *trouble*.
    """

    def __init__(self, wanted: str = AUTO) -> None:
        own = Own.of(wanted) if wanted.startswith("{") else None
        self._own = own
        bars = Bars()
        everyone: List[Reader] = [Lines(), Trainer(bars), Keras(), Levanter(), bars, Epochs(), Rounds()]
        # The Trainer's reader asks the bars, so they read first.
        self._readers = [bars, *(r for r in everyone if r is not bars)] if wanted != OFF else []
        self._ranked = [r for r in self._readers if r.name == wanted] if wanted in PRESETS else everyone
        self._ranked = [] if wanted == OFF else self._ranked

    @property
    def trouble(self) -> str:
        """Return what is wrong with the job's own patterns, empty for nothing."""
        return self._own.trouble if self._own is not None else ""

    def read(self, lines: Iterable[bytes]) -> None:
        """Learn from lines of `stream.plain`."""
        for line in lines:
            if self._own is not None:
                self._own.read(line)
            lower = line.lower()
            if any(word in lower for word in _WORDS):
                for reader in self._readers:
                    reader.read(line)

    def now(self) -> Printed:
        """Return the progress: what the job's own patterns find, else what the first reader with a step found."""
        teller = next((r for r in self._ranked if r.step is not None), None)
        any_loss = next((r.loss for r in self._ranked if r.loss is not None), None)
        found = Printed(loss=any_loss)
        if teller is not None:
            loss = any_loss if teller.loss is None else teller.loss
            found = Printed(teller.step, loss, None, teller.total, teller.name, teller.exact)
        own = self._own
        if own is None:
            return found
        loss = own.loss if own.loss is not None or "loss" in own.asks else found.loss
        if "step" in own.asks:
            source = "pattern" if own.step is not None else ""
            return Printed(own.step, loss, own.rate, None, source, exact=True)
        return Printed(found.step, loss, own.rate, found.total, found.source, found.exact)


class Rounds(Reader):
    """
    Read a round of xgboost, LightGBM or CatBoost, or `[120] train_loss=0.5` of a loop of one's own.

    xgboost and CatBoost count from 0, and from there again when they go on from a model.
    """

    name = "rounds"
    _ROUND = re.compile(
        rb"(?:\[" + COUNT + rb"\]|" + COUNT + rb":)[ \t]{1,4}"
        rb"(?:train(?:ing)?(?:-|'s )[\w@-]{1,40}|learn): ?" + VALUE
    )
    _BRACKET = re.compile(rb"\[" + COUNT + rb"(?:/" + COUNT + rb")?\]:?[ \t]")

    def read(self, line: bytes) -> None:
        """Learn from one line."""
        found = self._ROUND.match(line)
        if found is not None:
            self._at(count(found[1] or found[2]), value(found[3]))
            return
        bracket = self._BRACKET.match(line)
        loss = LOSS.search(line, bracket.end()) if bracket is not None else None
        if bracket is not None and loss is not None and not EVAL.search(line, 0, loss.start()):
            self._at(count(bracket[1]), value(loss[1]), None if bracket[2] is None else count(bracket[2]))
