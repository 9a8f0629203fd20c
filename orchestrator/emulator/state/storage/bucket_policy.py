"""
Evaluate a bucket's IAM policy for an account: roles of Cloud Storage, with conditions.

Only the bucket's own policy counts. An account that it does not name has access, as with a role on the whole
project, since the local cloud has no project policy. Conditions (Common Expression Language) may use
resource.name, .type and .service, startsWith, endsWith, == != ! && || and parentheses. A policy with anything
else is refused when it is set, so that none is evaluated in part.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from orchestrator.emulator.state.storage.refusals import denied, invalid
from orchestrator.emulator.state.storage.stored import Bucket, Fields

_READS = frozenset({"storage.objects.get", "storage.objects.list"})
_CREATES = frozenset({"storage.objects.create"})
_OBJECTS = _READS | _CREATES | {"storage.objects.update", "storage.objects.delete"}
_BUCKETS = frozenset(
    f"storage.buckets.{verb}" for verb in ("get", "update", "delete", "getIamPolicy", "setIamPolicy")
)
ROLES: Mapping[str, frozenset[str]] = {
    "roles/storage.legacyBucketReader": frozenset({"storage.buckets.get", "storage.objects.list"}),
    "roles/storage.objectViewer": _READS,
    "roles/storage.objectCreator": _CREATES,
    "roles/storage.objectUser": _OBJECTS,
    "roles/storage.objectAdmin": _OBJECTS,
    "roles/storage.admin": _OBJECTS | _BUCKETS,
}
"""Roles, with those of their permissions that the local cloud checks (docs/facts.md 3.2)."""
Values = Mapping[str, str]
Test = Callable[[Values], bool]
MAX_OPERATORS = 12  # docs/facts.md 3.2
MAX_LENGTH = 12_000
DEEPEST = 50
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<name>[A-Za-z_][A-Za-z_.]*)"""
    r"""|(?P<sign>&&|\|\||==|!=|[!()]))"""
)
_ATTRIBUTES = ("resource.name", "resource.type", "resource.service")


def check_policy(policy: Fields, *, uniform: bool) -> None:
    """Raise 400 for a policy whose conditions Cloud Storage would ignore."""
    bindings = policy.get("bindings", [])
    if not isinstance(bindings, list) or not all(isinstance(binding, dict) for binding in bindings):
        raise invalid("bindings must be a list of objects.")
    expressions = [text for binding in bindings if (text := _expression(binding))]
    if expressions and (policy.get("version") != 3 or not uniform):
        raise invalid("Conditions need policy version 3 and uniform bucket-level access.")
    for text in expressions:
        compiled(text)


def check_access(bucket: Bucket, in_force: Fields, email: str, permission: str, name: str = "") -> None:
    """
    Raise 403 unless the account *email* has the permission on the object *name* or on the bucket.

    The policy *in_force*, possibly an older one of the bucket, decides.
    """
    member = f"serviceAccount:{email}"
    newest, mine = _of(bucket.policy, member), _of(in_force, member)
    resource = f"projects/_/buckets/{bucket.name}"
    values = {
        "resource.name": f"{resource}/objects/{name}" if name else resource,
        "resource.type": f"storage.googleapis.com/{'Object' if name else 'Bucket'}",
        "resource.service": "storage.googleapis.com",
    }
    if (newest or mine) and not any(
        permission in ROLES.get(binding["role"], ()) and _applies(binding, values) for binding in mine
    ):
        raise denied(email, permission, on="object" if name else "bucket")


def _of(policy: Fields, member: str) -> Sequence[Fields]:
    return [binding for binding in policy.get("bindings", []) if member in binding.get("members", ())]


def _applies(binding: Fields, values: Mapping[str, str]) -> bool:
    """Return whether a binding applies to a resource; never for one with an empty condition."""
    return "condition" not in binding or (bool(text := _expression(binding)) and holds(text, values))


def _expression(binding: Mapping[str, Any]) -> str:
    condition = binding.get("condition")
    return str(condition.get("expression", "")) if isinstance(condition, dict) else ""


def holds(expression: str, values: Values) -> bool:
    """Evaluate a condition. Raise 400 if it is not supported."""
    return compiled(expression)(values)


@lru_cache(maxsize=256)
def compiled(expression: str) -> Test:
    """Compile an expression to a test. Raise 400 if it is not supported."""
    tokens = _tokens(expression)
    if sum(token in ("&&", "||", "!") for token in tokens) > MAX_OPERATORS:
        raise invalid(f"A condition has at most {MAX_OPERATORS} logical operators.")
    parser = _Parser(tokens)
    test = parser.any_of(0)
    if parser.rest:
        raise _not_understood(" ".join(parser.rest))
    return test


def _tokens(expression: str) -> list[str]:
    if len(expression) > MAX_LENGTH:
        raise invalid("The condition is too long.")
    found, position = [], 0
    text = expression.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _not_understood(text[position:])
        found.append(match[0].strip())
        position = match.end()
    return found


class _Parser:
    """A recursive-descent parser: or, and, not, a comparison."""

    def __init__(self, tokens: list[str]) -> None:
        self.rest = tokens[::1]

    def any_of(self, depth: int) -> Test:
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
