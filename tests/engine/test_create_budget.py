"""The create budget: what all deployments of a project on this computer may ask for, and what they share."""

import json

import pytest
from filelock import FileLock

from orchestrator.engine.records import create_budget_file
from orchestrator.engine.records.create_budget_file import CreateBudgetFile, limit_of
from orchestrator.planning.tpu.create_budget import MAX_A_MINUTE, ZONE_PAUSE
from tests.engine.engine_lab import OTHER_ZONE, ZONE, EngineLab, one_zone_spec
from tests.planning.worlds import NOW


@pytest.fixture
def path(tmp_path):
    """Return where the budget of a test lies."""
    return tmp_path / "creates.json"


def test_a_minute_holds_sixty_creates_of_all_together(path):
    """Two processes share one file; the next create waits until the first one is a minute old."""
    here, there = CreateBudgetFile(path), CreateBudgetFile(path)
    for number in range(60):
        assert (here, there)[number % 2].take(f"zone-{number}", NOW + number / 10) == 0
    assert here.take("another", NOW + 6) == NOW + 60
    assert there.pauses(["another"], NOW + 6) == {"another": NOW + 60}
    assert there.take("another", NOW + 60) == 0


def test_a_zone_is_asked_once_in_five_seconds(path):
    """Another zone may be asked meanwhile."""
    budget = CreateBudgetFile(path)
    assert budget.take(ZONE, NOW) == 0
    assert budget.take(ZONE, NOW + 1) == NOW + ZONE_PAUSE
    assert budget.pauses([ZONE, OTHER_ZONE], NOW + 1) == {ZONE: NOW + ZONE_PAUSE}
    assert budget.take(OTHER_ZONE, NOW + 1) == 0
    assert budget.take(ZONE, NOW + ZONE_PAUSE) == 0


@pytest.mark.parametrize(("reported", "limit"), [("", 60), ("5", 5), ("1000", 91), ("0", 1), ("many", 60)])
def test_the_limit_may_be_set_and_is_never_above_what_the_api_takes(path, reported, limit):
    """A number that is none is left out."""
    budget = CreateBudgetFile(path, limit_of({"TPUCTL_CREATES_A_MINUTE": reported}))
    taken = [budget.take(f"zone-{number}", NOW) for number in range(100)]
    assert taken.count(0.0) == limit <= MAX_A_MINUTE


@pytest.mark.parametrize("content", [b"", b"{", b'{"creates": [[1]], "stockouts": []}', b"[]"])
def test_a_file_that_cannot_be_read_stops_no_deployment(path, content):
    """It counts as empty, and the next create writes it again."""
    path.write_bytes(content)
    budget = CreateBudgetFile(path)
    assert (budget.pauses([ZONE], NOW), budget.stockouts("v2-8", NOW)) == ({}, ())
    assert budget.take(ZONE, NOW) == 0
    assert json.loads(path.read_bytes())["creates"] == [[NOW, ZONE]]


def test_a_clock_that_was_ahead_delays_no_deployment(path):
    """What lies in the future has not happened."""
    CreateBudgetFile(path, 1).take(ZONE, NOW + 1e6)
    assert CreateBudgetFile(path, 1).take(ZONE, NOW) == 0


def test_a_lock_that_is_never_released_stops_no_deployment(path, monkeypatch):
    """The budget is courtesy; a deployment that waits for a hung process for ever would be worse."""
    monkeypatch.setattr(create_budget_file, "LOCK_TIMEOUT", 0.01)
    with FileLock(path.with_suffix(".lock")):
        assert CreateBudgetFile(path).take(ZONE, NOW) == 0


def test_the_file_stays_small(path):
    """What is older than it counts is dropped."""
    budget = CreateBudgetFile(path, 91)
    for number in range(80):
        budget.take(f"zone-{number}", NOW + 20 * number)
        budget.refused(f"zone-{number}", "v2-8", NOW + 300 * number)
    assert path.stat().st_size < 2000


def with_create_budget(lab, name):
    """Return the controller of one of several deployments that share a computer."""
    spec = one_zone_spec(name=name, tpu__zones=[ZONE, OTHER_ZONE], vm="none")
    controller = lab.controller(spec, state=name, beside=True)
    object.__setattr__(controller.deployment, "create_budget", CreateBudgetFile(lab.folder / "creates.json"))
    controller.want()
    return controller


def creates(controller):
    """Return when and where a controller asked for a TPU."""
    return [(e.at, e.data["zone"]) for e in controller.events if e.kind == "tpu-create"]


def test_two_deployments_keep_their_distance_in_one_zone(tmp_path):
    """The second one waits its five seconds, says so, and asks then."""
    lab = EngineLab(tmp_path)
    one, two = with_create_budget(lab, "one"), with_create_budget(lab, "two")
    one.one_pass()
    result = two.one_pass()
    assert creates(one)
    assert creates(two) == []
    assert "TPU: next try in 5 s, by tpuctl's own create budget (docs/zones.md)" in result.plan.waiting
    assert 0 < result.plan.wake_in <= ZONE_PAUSE
    lab.wait(ZONE_PAUSE)
    two.one_pass()
    assert creates(two)[0][1] == ZONE


def test_a_stockout_of_one_deployment_sends_the_other_elsewhere_at_once(tmp_path):
    """It does not have to be refused itself; an hour later the zone is asked again."""
    lab = EngineLab(tmp_path)
    one, two = with_create_budget(lab, "one"), with_create_budget(lab, "two")
    lab.change(stockouts=frozenset({ZONE}))
    one.run(lambda r: one.record.node.zone == OTHER_ZONE)
    lab.wait(ZONE_PAUSE)
    two.one_pass()
    assert [zone for _, zone in creates(one)] == [ZONE, OTHER_ZONE]
    assert [zone for _, zone in creates(two)] == [OTHER_ZONE]
    lab.wait(4 * 3600)
    three = with_create_budget(lab, "three")
    three.one_pass()
    assert creates(three)[0][1] == ZONE
