"""Lists of Compute Engine: filter, order and page of one zone, or of all."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orchestrator.emulator.http.compute_shapes import link
from orchestrator.emulator.http.paging import matching, ordered, page
from orchestrator.emulator.http.router import Request, Response

_LARGEST_PAGE = 500
Shown = dict[str, Any]


def listed(request: Request, kind: str, path: str, items: Iterable[Shown]) -> Response:
    """Build one page of the list *kind* (`compute#instanceList`) at *path*."""
    chosen, token = _chosen(request, items)
    body = {"kind": f"compute#{kind}List", "id": path, "selfLink": link(path), "items": list(chosen)}
    return Response.of({**body, **({"nextPageToken": token} if token else {})})


def aggregated(request: Request, key: str, path: str, scopes: dict[str, Sequence[Shown]]) -> Response:
    """
    Build one page of an aggregated list: *scopes* maps `zones/Z` to its items.

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
    """Build an aggregated list that could look into none of *scopes*: each carries the warning UNREACHABLE."""
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
    found = ordered([item for item in items if test(item)], request.query.get("orderBy", ""))
    return page(
        found,
        request.query.get("maxResults", ""),
        request.query.get("pageToken", ""),
        _LARGEST_PAGE,
        "invalid",
    )


def _no_results(scope: str) -> dict[str, Any]:
    message = f"There are no results for scope '{scope}' on this page."
    return {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": [{"key": "scope", "value": scope}]}
