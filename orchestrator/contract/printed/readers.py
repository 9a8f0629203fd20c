"""
Read progress as frameworks print it, one reader for each shape of line.

The shapes were taken from the sources that tests/agent/printed_lines.py names, with versions. All patterns
have bounded repeats, so that a line costs at most a small multiple of its length.
"""

from __future__ import annotations

import re
from typing import ClassVar, Dict, Optional

from orchestrator.contract.printed.numbers import COUNT, VALUE, count, value

EVAL = re.compile(
    rb"(?<![\w./-])(?:val|valid|validation|validating|eval|evaluation|evaluating|test|testing|dev)(?![\w./-])",
    re.IGNORECASE,
)
"""A word after which the numbers are not the training's."""

LOSS = re.compile(
    # One lookbehind for each word, because Python's `re` allows only a fixed width.
    rb"(?<![\w.-])(?<!val )(?<!valid )(?<!validation )(?<!eval )(?<!evaluation )(?<!test )(?<!dev )"
    rb"(?<!val/)(?<!valid/)(?<!validation/)(?<!eval/)(?<!test/)"
    rb"(?:(?:train|training|total|step|batch|epoch|avg|mean|running|ema|log|nll|ce|lm|mlm)_)?"
    rb"loss(?:_step)?(?: train)?"
    rb"[\"']?\)?(?: ?[:=] ?| (?:is |of )?)[\"'\[(]? ?" + VALUE,
    re.IGNORECASE,
)

_STEP = re.compile(
    rb"(?<![\w.-])(?:num_updates|(?:global[_ ])?(?:step|iter|iteration|update)s?)(?:\(train\))?[\"']?"
    rb"(?: ?[:=#] ?| )[\"'\[(]? ?" + COUNT + rb"(?: ?/ ?" + COUNT + rb")?",
    re.IGNORECASE,
)
_UPDATES = re.compile(rb"num_updates[\"']?[ :=]{1,3}[\"']?" + COUNT)
"""fairseq's own count is at the end of the line, after an index within the epoch."""
_CLU = re.compile(rb"logging_writer\.py:\d{1,5}\] \[" + COUNT + rb"\] ")
_EPOCH = re.compile(
    rb"(?<![\w.-])epoch(?:\(train\))?(?: ?[:=#] ?| |(?=\[))[\[(]? ?"
    + COUNT
    + rb"(?: ?/ ?"
    + COUNT
    + rb")?\]?(?: ?[\[(] ?"
    + COUNT
    + rb" ?/ ?"
    + COUNT
    + rb")?",
    re.IGNORECASE,
)


class Reader:
    """
    Follow one shape of output.

    *step* only increases; *loss* is NaN if the job printed that, *loss_step* is the step it was printed for;
    *total* is the last step, if the job prints it. *exact* says that the step is the job's own count over all
    epochs and restarts. Otherwise it may restart at 0, or count something else than the job's saves do.
    """

    name = ""
    exact = False

    def __init__(self) -> None:
        self.step: Optional[int] = None
        self.loss: Optional[float] = None
        self.loss_step: Optional[int] = None
        self.total: Optional[int] = None

    def read(self, line: bytes) -> None:
        """Read one line of `stream.plain`."""
        raise NotImplementedError

    def _at(self, step: int, loss: Optional[float], total: Optional[int] = None) -> None:
        """Accept a step and a loss, unless they belong to another count, such as an evaluation's."""
        if self.step is not None and step < self.step:
            return
        self.step, self.total = step, total if total is not None and total >= step else None
        if loss is not None:
            self.loss, self.loss_step = loss, step


class Lines(Reader):
    """Read a line with step and loss: MaxText, nanoGPT, nanochat, fairseq, torchtitan, clu (flax), TF."""

    name = "lines"
    exact = True

    def read(self, line: bytes) -> None:
        found = _training_loss(line)
        if found is None:
            return
        own = _UPDATES.search(line) or _CLU.search(line)
        step = own or _STEP.search(line)
        if step is None:
            return
        epoch = _EPOCH.search(line)
        # An epoch after the step (`step 40 epoch 2`) does not say what the step counts.
        if own is None and epoch is not None and epoch.start() < step.start():
            return  # The step may count within the epoch: `Epochs` reads that.
        whole = None if own is not None or step[2] is None else count(step[2])
        self._at(count(step[1]), found, whole)


class Keras(Reader):
    """Read Keras's `fit()`: the step is the number of whole epochs, which Keras also counts its saves in."""

    name = "keras"
    _BEGIN = re.compile(rb"Epoch (\d{1,9})/(\d{1,9})\Z")
    _BAR = re.compile(rb"(\d{1,12})/(\d{1,12}|Unknown) ")
    _LOSS = re.compile(rb"- loss: " + VALUE)

    def __init__(self) -> None:
        super().__init__()
        self._epoch = 0
        self._last: Optional[int] = None

    def read(self, line: bytes) -> None:
        begun = self._BEGIN.match(line)
        if begun:
            self._epoch, self._last = int(begun[1]), int(begun[2])
            self._at(self._epoch - 1, None, self._last)
            return
        bar = self._BAR.match(line) if self._epoch else None
        found = self._LOSS.search(line) if bar else None
        if bar is None or found is None:
            return
        over = bar[1] == bar[2]
        self._at(self._epoch - (0 if over else 1), value(found[1]), self._last)
        # After an epoch's last batch, evaluate() and predict() draw bars of the same shape.
        self._epoch = 0 if over else self._epoch


class Levanter(Reader):
    """Read a bar as tqdm-loggable logs it (Levanter). The step has three digits."""

    name = "levanter"
    _BAR = re.compile(
        rb"Progress on:train(?:ing)? ([\d.]{1,9})([kMG]?)it/(?:([\d.]{1,9})([kMG]?)it|-) "
        rb"rate:.{0,200}? postfix:"
    )
    _SIZES: ClassVar[Dict[bytes, int]] = {b"": 1, b"k": 10**3, b"M": 10**6, b"G": 10**9}

    def read(self, line: bytes) -> None:
        bar = self._BAR.search(line)
        if bar is None:
            return
        found = LOSS.search(line, bar.end())
        total = self._size(bar[3], bar[4]) if bar[3] else None
        self._at(self._size(bar[1], bar[2]), value(found[1]) if found else None, total)

    def _size(self, number: bytes, unit: bytes) -> int:
        try:
            return round(float(number) * self._SIZES[unit])
        except ValueError:
            return 0


class Epochs(Reader):
    """
    Read lines with epoch and loss, possibly with a count inside, as in the examples of PyTorch and JAX.

    If the inner count has a total, steps are counted over epochs; otherwise the epoch is the step.
    """

    name = "epochs"

    def __init__(self) -> None:
        super().__init__()
        self._first = 1
        self._epoch = self._inside = self._before = 0

    def read(self, line: bytes) -> None:
        found = _training_loss(line)
        epoch = _EPOCH.search(line) if found is not None else None
        if epoch is None:
            return
        number, inside, size = count(epoch[1]), epoch[3], epoch[4]
        self._first = 0 if number == 0 else self._first
        if inside is None:
            step = _STEP.search(line, epoch.end())
            inside, size = (step[1], step[2]) if step else (None, None)
        if inside is None:
            self._at(number, found, None if epoch[2] is None else count(epoch[2]))
        elif size is not None:
            self._at(max(0, number - self._first) * count(size) + count(inside), found)
        else:
            # Only the second epoch shows whether the count continues over epochs.
            if number > self._epoch and count(inside) < self._inside:
                self._before += self._inside
            self._epoch, self._inside = number, count(inside)
            self._at(self._before + self._inside, found)


def _training_loss(line: bytes) -> Optional[float]:
    """Return the first loss of a line that is neither a bar nor about an evaluation."""
    found = LOSS.search(line) if b"%|" not in line else None
    if found is None or EVAL.search(line, 0, found.start()):
        return None
    return value(found[1])
