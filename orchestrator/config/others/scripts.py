"""
Read the commands of shell scripts that call xpk or tpunicorn, without running them.

Values that a script computes (`$(...)`, loops, functions) are not known and are left out.
"""

import re
import shlex
from collections.abc import Iterator, Mapping

from orchestrator.config.others.conversion import Draft

_ASSIGNED = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_USED = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_DEFAULT = re.compile(r"\$\{(\w+):?-([^{}$`]*)\}")
_DOLLAR = "\ue000"
"""Private-use character for an escaped dollar, which shlex would leave escaped."""
_LINE_END = re.compile(r"\\\r?\n")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command; a command with unbalanced quotes is skipped."""
    for piece in _pieces(_LINE_END.sub(" ", text)):
        try:
            words = shlex.split(piece)
        except ValueError:
            continue
        if words:
            yield [word.replace(_DOLLAR, "$") for word in words]


def _pieces(text: str) -> Iterator[str]:
    """Split a script at the ends of its commands, outside of quotes, and drop its comments."""
    piece, quote, skip, comment = "", "", False, False
    for sign in text:
        if comment:
            comment = sign != "\n"
            if comment:
                continue
        if skip:
            skip = False
            piece += _DOLLAR if sign == "$" else f"\\{sign}"
            continue
        elif sign == "\\" and quote != "'":
            skip = True
            continue
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#" and (not piece or piece[-1].isspace()):
            comment = True
            continue
        elif sign in "\n;&|":
            yield piece
            piece = ""
            continue
        piece += sign
    yield piece


class Variables:
    """The plain assignments of a script."""

    def __init__(self, words: list[list[str]]) -> None:
        self.variables: dict[str, str] = {}
        for one in words:
            for word in one[1:] if one[0] in ("export", "readonly", "local") else one:
                match = _ASSIGNED.fullmatch(word)
                if not match:
                    break
                value = self.filled(match[2])
                if value is not None:
                    self.variables[match[1]] = value

    def filled(self, text: str) -> str | None:
        """Return *text* with its variables replaced, or None if the script computes one of them."""
        text = _DEFAULT.sub(lambda match: self.variables.get(match[1]) or match[2], text)
        if "`" in text or "$(" in text:
            return None
        unknown = [name for pair in _USED.findall(text) if (name := "".join(pair)) not in self.variables]
        if unknown:
            return None
        found = _USED.sub(lambda match: self.variables[match[1] or match[2]], text)
        return None if "$" in found else found

    def used_in(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Yield each variable that *text* uses, with its value or None."""
        for name in dict.fromkeys("".join(pair) for pair in _USED.findall(text)):
            yield name, self.variables.get(name)


def configured(found: list[list[str]]) -> dict[str, list[str]]:
    """Return the project and zone that a script sets in gcloud, in the form of options."""
    chosen = {}
    for words in found:
        if words[:3] == ["gcloud", "config", "set"] and len(words) == 5:
            name = {"project": "--project", "core/project": "--project", "compute/zone": "--zone"}.get(
                words[3]
            )
            chosen.update({name: [words[4]]} if name else {})
    return chosen


def options(words: list[str], flags: Mapping[str, str]) -> tuple[dict[str, list[str]], list[str]]:
    """
    Return a command's options, with all their values, and its other words.

    *flags* are options without a value, and short options with their long names (empty: its own name).
    """
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    queue = iter(words)
    for word in queue:
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        name, equals, value = word.partition("=")
        name = flags.get(name) or name
        if name in flags and not equals:
            found.setdefault(name, []).append("")
        else:
            found.setdefault(name, []).append(value if equals else next(queue, ""))
    return found, rest


def take_variables(draft: Draft, command: str, variables: Variables, known: tuple[str, ...] = ()) -> None:
    """Add the variables of the script that its command uses to the job."""
    for name, value in variables.used_in(command):
        if value is not None:
            draft.variable(name, value, f"{name} in the script")
        elif name not in known and name not in draft.values.get("job.env", {}):
            draft.decide(
                "job.command", f"uses ${name}, which the script does not set in plain words: see job.env"
            )
