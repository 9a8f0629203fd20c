"""Lists of TPU nodes with odd answers: pages, partial answers, states that are new."""

import pytest

from orchestrator.domain.all_zones import AllZones
from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.errors import Retry
from orchestrator.google.nodes import TpuNodes
from tests.google.adapter_lab import LABEL, PROJECT, ZONE, canned


def page(names, token="", unreachable=()):
    """Return one page of a list of nodes."""
    path = f"projects/{PROJECT}/locations/{ZONE}/nodes"
    nodes = [{"name": f"{path}/{n}", "state": "READY", "labels": {LABEL: "demo"}} for n in names]
    return {"nodes": nodes, "nextPageToken": token, "unreachable": list(unreachable)}


def test_all_pages_of_a_list_are_read():
    """The second page counts as much as the first."""
    with canned(
        lambda found: (
            200,
            page(["b"] if "pageToken=t" in found.path else ["a"], "" if "pageToken=t" in found.path else "t"),
        )
    ) as server:
        observed = TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE])
    assert [n.name for n in observed.value] == ["a", "b"]


def test_an_unreachable_place_on_an_early_page_makes_the_list_unknown():
    """The client's pager shows the newest page's `unreachable` only; an early one must count too."""

    def answer(found):
        last = "pageToken=t" in found.path
        return 200, page(["b"]) if last else page(["a"], "t", [f"locations/{ZONE}"])

    with canned(answer) as server:
        observed = TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE])
    assert isinstance(observed, Unknown)
    assert observed.retry is Retry.TRANSIENT


def test_a_failed_second_page_makes_the_list_unknown():
    """Half a list is not a list."""

    def answer(found):
        return (
            (503, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "x"}})
            if "pageToken" in found.path
            else (200, page(["a"], "t"))
        )

    with canned(answer) as server:
        assert isinstance(TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE]), Unknown)


@pytest.mark.filterwarnings("ignore:Unrecognized State")
def test_a_state_that_is_new_to_us_is_no_known_state():
    """A number or a word that this version does not know becomes STATE_UNSPECIFIED, not an error."""
    path = f"projects/{PROJECT}/locations/{ZONE}/nodes"
    odd = [{"name": f"{path}/a", "state": 77}, {"name": f"{path}/b", "state": "NAPPING"}]
    nodes = {"nodes": [{**n, "labels": {LABEL: "demo"}} for n in odd]}
    with canned(lambda _: (200, nodes)) as server:
        observed = TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE])
    assert [n.state for n in observed.value] == [NodeState.STATE_UNSPECIFIED] * 2


def test_an_answer_that_is_not_json_is_unknown():
    """A broken answer is neither a list nor an absence."""
    with canned(lambda _: (200, b"<html>welcome</html>")) as server:
        assert isinstance(TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE]), Unknown)


def test_one_call_lists_all_zones_and_names_those_without_an_answer():
    """Of each page, whatever form the place has; what carries another label is none of ours."""
    asked = []

    def answer(found):
        asked.append(found.path)
        last = "pageToken=t" in found.path
        return 200, page(["b"]) if last else page(["a"], "t", [f"projects/{PROJECT}/locations/us-west4-a"])

    with canned(answer) as server:
        nodes = TpuNodes(server.clients())
        observed = nodes.list_all_zones(LABEL, "demo")
        assert nodes.list_all_zones(LABEL, "other") == Present(AllZones((), ("us-west4-a",)))
    assert [n.name for n in observed.value.found] == ["a", "b"]
    assert observed.value.unreachable == ("us-west4-a",)
    assert all("/locations/-/nodes" in path for path in asked)


@pytest.mark.parametrize(
    ("status", "word", "calls"),
    [(404, "NOT_FOUND", 1), (400, "INVALID_ARGUMENT", 1), (503, "UNAVAILABLE", 2)],
)
def test_an_api_that_refuses_such_lists_is_not_asked_again(status, word, calls):
    """Unknown each time, never an absence; what may pass is asked for again."""
    asked = []

    def answer(found):
        asked.append(found.path)
        return status, {"error": {"code": status, "status": word, "message": "no"}}

    with canned(answer) as server:
        nodes = TpuNodes(server.clients())
        assert all(isinstance(nodes.list_all_zones(LABEL, "demo"), Unknown) for _ in range(2))
    assert len(asked) == calls
