"""One list of a zone serves all deployments that are looked at in one process."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from orchestrator.domain.observation import Unknown
from orchestrator.google.clients import Clients
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.shared_lists import ZoneLists
from tests.google.adapter_lab import LABEL, PROJECT, ZONE, canned

PATH = f"projects/{PROJECT}/locations/{ZONE}/nodes"


def page_of(*names):
    """Return a list of nodes, each of the deployment that has its name."""
    return {"nodes": [{"name": f"{PATH}/{n}", "state": "READY", "labels": {LABEL: n}} for n in names]}


def shared(server, lists):
    """Return the nodes as a client of its own sees them, with *lists* shared."""
    return TpuNodes(Clients(replace(server.clients().settings, lists=lists)))


def test_a_zone_is_listed_once_for_all_who_look_at_the_same_moment():
    """Each gets its own nodes; two that come at once wait for the same answer."""
    asked = []

    def answer(request):
        asked.append(request.path)
        return 200, page_of("a", "b")

    with canned(answer) as server, ThreadPoolExecutor(2) as pool:
        lists = ZoneLists(3.0)
        looks = pool.map(lambda name: shared(server, lists).labelled(LABEL, name, [ZONE]), ("a", "b", "c"))
        found = [[node.name for node in observed.value] for observed in looks]
    assert found == [["a"], ["b"], []]
    assert len(asked) == 1


def test_an_observation_serves_for_a_while_only():
    """The next look sees what is new."""
    now, worlds = [0.0], [page_of("a"), page_of("a", "b")]
    with canned(lambda _: (200, worlds.pop(0))) as server:
        lists = ZoneLists(3.0, lambda: now[0])
        nodes = shared(server, lists)
        assert nodes.labelled(LABEL, "b", [ZONE]).value == ()
        now[0] = 2.9
        assert nodes.labelled(LABEL, "b", [ZONE]).value == ()
        now[0] = 3.0
        assert [node.name for node in nodes.labelled(LABEL, "b", [ZONE]).value] == ["b"]


def test_a_list_from_before_a_poll_is_not_shared_with_it():
    """Otherwise a poll could compare what was listed up to three seconds ago."""
    worlds = [page_of("a"), page_of("a", "b")]
    with canned(lambda _: (200, worlds.pop(0))) as server:
        lists = ZoneLists(3.0, lambda: 0.0)
        nodes = shared(server, lists)
        assert nodes.labelled(LABEL, "b", [ZONE]).value == ()
        lists.outdate()
        assert [node.name for node in nodes.labelled(LABEL, "b", [ZONE]).value] == ["b"]


def test_a_failed_list_is_not_shared_with_the_next_reader():
    """Who looks next asks again, and sees."""
    answers = [
        (403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "no"}}),
        (200, page_of("a")),
    ]
    with canned(lambda _: answers.pop(0)) as server:
        nodes = shared(server, ZoneLists(3.0))
        assert isinstance(nodes.labelled(LABEL, "a", [ZONE]), Unknown)
        assert [node.name for node in nodes.labelled(LABEL, "a", [ZONE]).value] == ["a"]


@pytest.mark.parametrize("places", [("p/zone-a", "p/zone-b"), ("p/zone-a", "q/zone-a")])
def test_zones_and_projects_are_not_mixed(places):
    """What one shows is not the other's."""
    lists, asked = ZoneLists(3.0), []
    for place in places:
        lists.labelled(place, LABEL, "a", lambda _, place=place: asked.append(place) or ())
    assert asked == list(places)


def test_without_sharing_each_look_asks():
    """Whoever acts must see what came of it."""
    asked = []
    with canned(lambda request: (asked.append(request.path), (200, page_of("a")))[1]) as server:
        nodes = TpuNodes(server.clients())
        for _ in range(2):
            nodes.labelled(LABEL, "a", [ZONE])
    assert len(asked) == 2


def of_one(nodes):
    """Return what a list shows of the deployment "x", by name."""
    return {node.name: node for node in nodes.labelled(LABEL, "x", [ZONE]).value}


def page_of_one(**states):
    """Return a list of nodes of the deployment "x", each in a state."""
    return {"nodes": [{"name": f"{PATH}/{n}", "state": s, "labels": {LABEL: "x"}} for n, s in states.items()]}


def test_only_what_has_changed_is_parsed_again():
    """A node that is listed as it was is the very same value; one that changed, came or went is noticed at once."""
    worlds = [
        page_of_one(a="READY", b="READY", c="READY"),
        page_of_one(b="PREEMPTED", a="READY", d="CREATING"),
    ]
    with canned(lambda _: (200, worlds.pop(0))) as server:
        nodes = TpuNodes(server.clients())
        before, after = of_one(nodes), of_one(nodes)
    assert [(name, node.state.name) for name, node in after.items()] == [
        ("b", "PREEMPTED"), ("a", "READY"), ("d", "CREATING"),
    ]  # fmt: skip
    assert after["a"] is before["a"]


def test_a_list_that_breaks_off_is_not_what_the_next_one_is_compared_with():
    """What the first page had shown is parsed again, and nothing of before comes back."""
    answers = [
        (200, page_of_one(a="READY", b="READY")),
        (200, {**page_of_one(a="PREEMPTED"), "nextPageToken": "2"}),
        (403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "no"}}),
        (200, page_of_one(a="PREEMPTED")),
    ]
    with canned(lambda _: answers.pop(0)) as server:
        nodes = TpuNodes(server.clients())
        of_one(nodes)
        assert isinstance(nodes.labelled(LABEL, "x", [ZONE]), Unknown)
        assert {name: node.state.name for name, node in of_one(nodes).items()} == {"a": "PREEMPTED"}


def test_who_has_changed_something_believes_no_list_from_before():
    """The others go on with it: a storm of changes must not list a zone for each."""
    asked = []

    def answer(got):
        if got.method == "DELETE":
            return 200, {"name": f"projects/{PROJECT}/locations/{ZONE}/operations/o"}
        asked.append(got.path)
        return 200, page_of("a", "b")

    with canned(answer) as server:
        lists = ZoneLists(3.0)
        ours, other = shared(server, lists), shared(server, lists)
        ours.labelled(LABEL, "a", [ZONE])
        ours.delete("a", ZONE)
        other.labelled(LABEL, "b", [ZONE])
        assert len(asked) == 1
        ours.labelled(LABEL, "a", [ZONE])
        assert len(asked) == 2
