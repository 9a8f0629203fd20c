"""Read what boosting prints, and lines that begin with a count in brackets."""

from __future__ import annotations

import re

from orchestrator.contract.printed.numbers import COUNT, VALUE, count, value
from orchestrator.contract.printed.readers import EVAL, LOSS, Reader


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
