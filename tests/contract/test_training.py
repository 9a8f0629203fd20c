"""When a machine has trained, over all attempts of the job on it."""

from orchestrator.contract.training import (
    MAX_TRAININGS,
    Training,
    first_timings,
    joined,
    trained_from,
    trainings,
)

BODY = {
    "attempt": 2, "progress_at": 90.0, "resumed_from": 40, "step": 70, "timings": {"first_step": 60.0},
    "trained": [[1, 10, 50.0, 0, 45]],
}  # fmt: skip
FIRST = Training(1, 10.0, 50.0, 0, 45)


def test_the_last_attempt_is_one_of_them():
    """From its first step to its newest one."""
    assert trainings(BODY) == [FIRST, Training(2, 60.0, 90.0, 40, 70)]


def test_an_attempt_without_a_step_of_its_own_is_none():
    """The time of the first step is still that of the attempt before."""
    assert trainings({**BODY, "timings": {"first_step": 10.0}}) == [FIRST]
    assert trainings({**BODY, "step": None}) == [FIRST]
    assert trainings({}) == []


def test_what_is_no_training_is_ignored():
    """Any program can write a report; what came before it stays."""
    for odd in (None, 7, [1, 2], [1, 2, 3, 4, "x"], [1, 2, -3.0, 4, 5], [1, float("nan"), 2, 3, 4]):
        assert trainings({**BODY, "trained": [list(FIRST), odd]}) == [FIRST]
    assert trainings({**BODY, "step": -1}) == [FIRST]


def test_the_oldest_ones_become_one():
    """A job that is restarted for ever does not make the report longer."""
    many = [Training(n, 10.0 * n, 10.0 * n + 5, n, n + 1) for n in range(1, MAX_TRAININGS + 3)]
    found = joined(many)
    assert len(found) == MAX_TRAININGS
    assert (found[0].began_at, found[0].from_step, found[0].to_step) == (10.0, 1, 4)
    assert found[1:] == many[3:]


def test_the_times_of_the_first_attempt_with_a_step_stay():
    """An older agent has replaced them; foreign values are none."""
    first = {"boot": 5.0, "first_step": 10.0}
    assert first_timings({**BODY, "first_timings": first}) == first
    assert first_timings({"timings": first}) == first
    assert first_timings({"timings": {"boot": 5.0}}) == {}
    assert first_timings(BODY) == {}
    for odd in ([], 7, {"first_step": "x"}, {"first_step": float("nan")}, {"first_step": True}):
        assert first_timings({**BODY, "first_timings": odd}) == {}


def test_an_attempt_trained_from_where_it_really_began():
    """Not from a checkpoint that it ignored; an older agent tells only its first reported step."""
    assert trained_from(0, 50, 20) == 0
    assert trained_from(None, 50, 20) == 19
    assert [trained_from(None, 50, began) for began in (None, 50, 51)] == [50, 50, 50]
    assert trained_from(None, None, 20) == 0
    assert trainings({**BODY, "from_step": 7})[-1].from_step == 7
    assert trainings({**BODY, "began_step": 1})[-1].from_step == 0
