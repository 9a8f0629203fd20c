"""Filter, sort and page lists."""

import base64
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.emulator.http.compute_shapes import link
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.state.api_errors import ApiError

Item = Mapping[str, Any]
_TERM = re.compile(
    r"""\(?\s*(?P<neg>-|NOT\s+)?(?P<field>[\w.\-]+)\s*(?P<op>!=|>=|<=|=|:|<|>|\bne\b|\beq\b)\s*
    (?P<value>"[^"]*"|'[^']*'|[^\s()=<>!:"'][^\s()]*)\s*\)?""",
    re.VERBOSE,
)
_NESTED_OR = re.compile(r"\([^()]*\sOR\s[^()]*\)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_LARGEST_PAGE = 500
_MARK = "after "
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
Shown = dict[str, Any]


@dataclass(frozen=True)
class SortOrder:
    """The sort order of a list; *key* is unique and constant for each item."""

    key: Callable[[Any], str]
    backwards: bool = False

    def after(self, items: Iterable[Any], last: str) -> list[Any]:
        """Return *items* in this order, only those after the key *last* if it is not ""."""
        found = sorted(items, key=self.key, reverse=self.backwards)
        if not last:
            return found
        return [one for one in found if (self.key(one) < last if self.backwards else self.key(one) > last)]


def page(
    items: Iterable[Any], order: SortOrder, size: str, token: str, largest: int, reason: str
) -> tuple[Sequence[Any], str]:
    """
    Return one page and the token of the next ("" after the last). Raise ApiError 400 with *reason*.

    The token contains the key of the last item instead of an index, so that items which come or go between
    two pages do not make others appear twice or never.
    """
    try:
        count = min(int(size or 0) or largest, largest)
        last = _read_token(token) if token else ""
    except ValueError:
        raise ApiError(400, reason, "Invalid value for page size or page token.") from None
    if count < 0:
        raise ApiError(400, reason, "Page size cannot be negative.")
    found = order.after(items, last)
    shown = found[:count]
    return shown, _token(order.key(shown[-1])) if len(found) > count else ""


def _token(last: str) -> str:
    return base64.urlsafe_b64encode(f"{_MARK}{last}".encode()).decode()


def _read_token(token: str) -> str:
    """Return the key in a token. Raise ValueError for one that `_token` did not make."""
    text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    last = text.removeprefix(_MARK)
    if not last or last == text:
        raise ValueError(token)
    return last


def rpc_page(
    request: Request, items: Iterable[Any], order: SortOrder, largest: int
) -> tuple[Sequence[Any], str]:
    """Return the page that a request of an RPC service asks for. Raise ApiError 400."""
    size, token = request.query.get("pageSize", ""), request.query.get("pageToken", "")
    return page(items, order, size, token, largest, "INVALID_ARGUMENT")


def matching(expression: str) -> Callable[[Item], bool]:
    """
    Return the test of a list filter. Raise ApiError 400 if it cannot be parsed.

    Supported: `field=value`, `!=`, `:`, comparisons, `eq` and `ne` (RE2 on the whole field), joined by AND,
    OR or adjacent parentheses; AND binds before OR. An OR inside parentheses next to other terms is refused,
    since this parser would read it wrongly.
    """
    if not expression.strip():
        return lambda _item: True
    nested = _NESTED_OR.search(expression)
    if nested and nested[0] != expression.strip():
        raise _unreadable(expression)
    groups = [_all_of(part, expression) for part in re.split(r"\s+OR\s+", expression)]
    return lambda item: any(all(test(item) for test in group) for group in groups)


def _all_of(text: str, whole: str) -> list[Callable[[Item], bool]]:
    tests, rest = [], text.strip()
    while rest.strip(" ()"):
        rest = re.sub(r"^[\s()]*(AND\s+)?[\s(]*", "", rest)
        found = _TERM.match(rest)
        if not found:
            raise _unreadable(whole)
        tests.append(_test(found))
        rest = rest[found.end() :]
    return tests


def _test(found: re.Match[str]) -> Callable[[Item], bool]:
    field, sign, wanted = found["field"], found["op"], found["value"].strip("\"'()")
    negated = bool(found["neg"])
    if sign in ("eq", "ne"):
        _check_pattern(wanted)

    def holds(item: Item) -> bool:
        value = _value(item, field.split("."))
        return _compare(value, sign, wanted) is not negated

    return holds


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error:
        raise _unreadable(pattern) from None


def _unreadable(expression: str) -> ApiError:
    text = f"Invalid value for field 'filter': '{expression}'. Invalid list filter expression."
    return ApiError(400, "invalid", text)


def _value(item: Any, path: Sequence[str]) -> Any:
    for key in path:
        item = item.get(key) if isinstance(item, Mapping) else None
    return item


def _compare(value: Any, sign: str, wanted: str) -> bool:
    if sign in ("!=", "ne"):
        return not _compare(value, "eq" if sign == "ne" else "=", wanted)
    if value is None:
        return False
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if sign == "eq":
        return re.fullmatch(wanted, text) is not None
    if sign == "=":
        return text == wanted or (text.startswith("http") and text.endswith(wanted) and "/" in wanted)
    if sign == ":":
        return wanted == "*" or wanted.lower() in text.lower()
    # 64-bit integers such as `sizeGb` are text in JSON; compared as text, 20 would be more than 100.
    numbers = _NUMBER.fullmatch(text) and _NUMBER.fullmatch(wanted)
    return _COMPARISONS[sign](float(text), float(wanted)) if numbers else _COMPARISONS[sign](text, wanted)


def _order(order: str) -> SortOrder:
    """Return the order `name` (default), `creationTimestamp` or `creationTimestamp desc`. Raise ApiError 400."""
    field, _, direction = (order or "name").partition(" ")
    if field not in ("name", "creationTimestamp") or direction not in ("", "desc", "asc"):
        raise ApiError(400, "invalid", f"Invalid value for field 'orderBy': '{order}'.")
    # Names repeat across zones, and times may be equal, so the link makes the key unique.
    return SortOrder(lambda item: f"{item.get(field, '')}\n{item['selfLink']}", backwards=direction == "desc")


def listed(request: Request, kind: str, path: str, items: Iterable[Shown]) -> Response:
    """Return one page of the list *kind* (`compute#instanceList`) at *path*."""
    chosen, token = _chosen(request, items)
    body = {"kind": f"compute#{kind}List", "id": path, "selfLink": link(path), "items": list(chosen)}
    return Response.of({**body, **({"nextPageToken": token} if token else {})})


def aggregated(request: Request, key: str, path: str, scopes: Mapping[str, Sequence[Shown]]) -> Response:
    """
    Return one page of an aggregated list: *scopes* maps `zones/Z` to its items.

    A scope without items carries the warning NO_RESULTS_ON_PAGE.
    """
    where = {id(item): scope for scope, items in scopes.items() for item in items}
    flat = [item for items in scopes.values() for item in items]
    chosen, token = _chosen(request, flat)
    shown: dict[str, Any] = {scope: {"warning": _no_results(scope)} for scope in scopes}
    for item in chosen:
        scope = where[id(item)]
        shown[scope] = {key: [*shown[scope].get(key, []), item]}
    kind = f"compute#{key.removesuffix('s')}AggregatedList"
    body = {"kind": kind, "id": path, "selfLink": link(path), "items": shown}
    return Response.of({**body, **({"nextPageToken": token} if token else {})})


def out_of_reach(key: str, path: str, scopes: Sequence[str]) -> Response:
    """Return an aggregated list in which each of *scopes* carries the warning UNREACHABLE."""
    shown = {
        scope: {"warning": {"code": "UNREACHABLE", "message": f"'{scope}' did not answer."}}
        for scope in scopes
    }
    kind = f"compute#{key.removesuffix('s')}AggregatedList"
    return Response.of(
        {"kind": kind, "id": path, "selfLink": link(path), "items": shown, "unreachables": list(scopes)}
    )


def _chosen(request: Request, items: Iterable[Shown]) -> tuple[Sequence[Any], str]:
    test: Callable[[Any], bool] = matching(request.query.get("filter", ""))
    order = _order(request.query.get("orderBy", ""))
    size, token = request.query.get("maxResults", ""), request.query.get("pageToken", "")
    return page(filter(test, items), order, size, token, _LARGEST_PAGE, "invalid")


def _no_results(scope: str) -> dict[str, Any]:
    message = f"There are no results for scope '{scope}' on this page."
    return {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": [{"key": "scope", "value": scope}]}
