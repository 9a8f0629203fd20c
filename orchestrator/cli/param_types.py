"""Define types of options that click does not have: a time, a worker, and what another function reads."""

import re
from collections.abc import Callable
from typing import Any

import click

from orchestrator.domain.text.units import Duration


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """A value that *parse* reads; its ValueError says what to write instead."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value; refuse a text that *parse* refuses."""
        # click also converts defaults, and what was converted before.
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class Time(Parsed):
    """
    A time such as `30s` or `2h`, as a number of seconds.

    A number without a unit is refused, or has the unit *bare*. *zero* allows no time at all, *between* gives
    the shortest and the longest one.
    """

    def __init__(self, bare: str = "", *, zero: bool = False, between: tuple[str, str] | None = None) -> None:
        super().__init__("time", self._seconds)
        self.bare, self.zero, self.between = bare, zero, between

    def _seconds(self, text: str) -> float:
        text = text.strip()
        text += self.bare if text[-1:].isdigit() else ""
        if self.zero and re.fullmatch(r"0(\.0+)?[smhd]", text):
            return 0.0
        found = Duration.parse(text)
        if self.between:
            least, most = map(Duration.parse, self.between)
            if not least <= found <= most:
                raise ValueError(f"write a time from {least} to {most}")
        return float(found)


def _worker(text: str) -> int | None:
    if text != "all" and not (text.isascii() and text.isdigit()):
        raise ValueError("no number of a worker; write a number, or all")
    return None if text == "all" else int(text)


WORKER = Parsed("integer", _worker)
"""The number of a worker; `all` becomes None."""
