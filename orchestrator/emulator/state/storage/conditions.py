"""
Conditions of IAM policies: the part of the Common Expression Language that bindings of buckets need.

Attributes: resource.name, resource.type, resource.service. Functions: startsWith, endsWith. Operators: == !=
! && || and parentheses. Anything else is refused when the policy is set, so that nothing is judged by halves.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from orchestrator.emulator.state.storage.errors import invalid

Values = Mapping[str, str]
Test = Callable[[Values], bool]
MOST_OPERATORS = 12  # docs/facts.md 3.2
LONGEST = 12_000
DEEPEST = 50
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<name>[A-Za-z_][A-Za-z_.]*)"""
    r"""|(?P<sign>&&|\|\||==|!=|[!()]))"""
)
_ATTRIBUTES = ("resource.name", "resource.type", "resource.service")


def holds(expression: str, values: Values) -> bool:
    """Evaluate a condition; raise 400 for one that is not understood."""
    return compiled(expression)(values)


@lru_cache(maxsize=256)
def compiled(expression: str) -> Test:
    """Return the test that an expression stands for; raise 400 for one that is not understood."""
    tokens = _tokens(expression)
    if sum(token in ("&&", "||", "!") for token in tokens) > MOST_OPERATORS:
        raise invalid(f"A condition has at most {MOST_OPERATORS} logical operators.")
    parser = _Parser(tokens)
    test = parser.any_of(0)
    if parser.rest:
        raise _not_understood(" ".join(parser.rest))
    return test


def _tokens(expression: str) -> list[str]:
    if len(expression) > LONGEST:
        raise invalid("The condition is too long.")
    found, place = [], 0
    text = expression.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _not_understood(text[place:])
        found.append(match[0].strip())
        place = match.end()
    return found


class _Parser:
    """Read an expression by its grammar: or, and, not, a comparison."""

    def __init__(self, tokens: list[str]) -> None:
        self.rest = tokens[::1]

    def any_of(self, depth: int) -> Test:
        """Read alternatives."""
        tests = [self._all_of(depth)]
        while self._taken("||"):
            tests.append(self._all_of(depth))
        return tests[0] if len(tests) == 1 else lambda values: any(test(values) for test in tests)

    def _all_of(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._taken("&&"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda values: all(test(values) for test in tests)

    def _one(self, depth: int) -> Test:
        if depth > DEEPEST:
            raise invalid("The condition is nested too deeply.")
        if self._taken("!"):
            test = self._one(depth + 1)
            return lambda values: not test(values)
        if self._taken("("):
            test = self.any_of(depth + 1)
            self._need(")")
            return test
        return self._comparison()

    def _comparison(self) -> Test:
        word = self._next()
        if word in ("true", "false"):
            return lambda _: word == "true"
        attribute, _, function = word.rpartition(".")
        if attribute in _ATTRIBUTES and function in ("startsWith", "endsWith"):
            self._need("(")
            part = _text(self._next())
            self._need(")")
            if function == "startsWith":
                return lambda values: values[attribute].startswith(part)
            return lambda values: values[attribute].endswith(part)
        sign = self._next() if word in _ATTRIBUTES else ""
        if sign not in ("==", "!="):
            raise _not_understood(word)
        wanted = _text(self._next())
        return lambda values: (values[word] == wanted) == (sign == "==")

    def _taken(self, token: str) -> bool:
        if not self.rest or self.rest[0] != token:
            return False
        self.rest.pop(0)
        return True

    def _need(self, token: str) -> None:
        if not self._taken(token):
            raise _not_understood(self.rest[0] if self.rest else "the end")

    def _next(self) -> str:
        if not self.rest:
            raise _not_understood("the end")
        return self.rest.pop(0)


def _text(token: str) -> str:
    if token[:1] not in ("'", '"'):
        raise _not_understood(token)
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _not_understood(where: str) -> Exception:
    return invalid(f"The local cloud does not understand the condition at: {where[:80]}")
