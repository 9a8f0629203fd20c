"""
Lists of TPU nodes with odd answers: pages, partial answers, states that are new.
"""

import pytest

from orchestrator.cloud.nodes import TpuNodes
from orchestrator.core.world import NodeState, Unknown
from orchestrator.errors import Retry
from tests.cloud.cloud_kit import LABEL, PROJECT, ZONE, canned


def page(names, token="", unreachable=()):
    """
    Return one page of a list of nodes.
    """
    path = f"projects/{PROJECT}/locations/{ZONE}/nodes"
    nodes = [{"name": f"{path}/{n}", "state": "READY", "labels": {LABEL: "demo"}} for n in names]
    return {"nodes": nodes, "nextPageToken": token, "unreachable": list(unreachable)}


def test_all_pages_of_a_list_are_read():
    """
    The second page counts as much as the first.
    """
    with canned(
        lambda seen: (
            200,
            page(["b"] if "pageToken=t" in seen.path else ["a"], "" if "pageToken=t" in seen.path else "t"),
        )
    ) as server:
        sight = TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE])
    assert [n.name for n in sight.value] == ["a", "b"]


def test_an_unreachable_place_on_an_early_page_makes_the_list_unknown():
    """
    The client's pager shows the newest page's `unreachable` only; an early one must count too.
    """

    def answer(seen):
        last = "pageToken=t" in seen.path
        return 200, page(["b"]) if last else page(["a"], "t", [f"locations/{ZONE}"])

    with canned(answer) as server:
        sight = TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE])
    assert isinstance(sight, Unknown)
    assert sight.retry is Retry.TRANSIENT


def test_a_failed_second_page_makes_the_list_unknown():
    """
    Half a list is not a list.
    """

    def answer(seen):
        return (
            (503, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "x"}})
            if "pageToken" in seen.path
            else (200, page(["a"], "t"))
        )

    with canned(answer) as server:
        assert isinstance(TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE]), Unknown)


@pytest.mark.filterwarnings("ignore:Unrecognized State")
def test_a_state_that_is_new_to_us_is_no_known_state():
    """
    A number or a word that this version does not know becomes STATE_UNSPECIFIED, not an error.
    """
    path = f"projects/{PROJECT}/locations/{ZONE}/nodes"
    odd = [{"name": f"{path}/a", "state": 77}, {"name": f"{path}/b", "state": "NAPPING"}]
    nodes = {"nodes": [{**n, "labels": {LABEL: "demo"}} for n in odd]}
    with canned(lambda _: (200, nodes)) as server:
        sight = TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE])
    assert [n.state for n in sight.value] == [NodeState.STATE_UNSPECIFIED] * 2


def test_an_answer_that_is_not_json_is_unknown():
    """
    A broken answer is neither a list nor an absence.
    """
    with canned(lambda _: (200, b"<html>welcome</html>")) as server:
        assert isinstance(TpuNodes(server.clients()).labelled(LABEL, "demo", [ZONE]), Unknown)
