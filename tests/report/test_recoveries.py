"""Recoveries: a row for each TPU that took the place of another one, divided by its parts."""

from dataclasses import replace

import pytest

from orchestrator.cli.views.summary import summary_lines
from orchestrator.contract.phase import Phase
from orchestrator.contract.training import Training
from orchestrator.domain.events import Event
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.report.page import page
from orchestrator.report.recoveries import LEGEND, Recovery, recoveries_of, without_row
from orchestrator.report.summary import Summary
from tests.report.report_kit import facts

T = 1_800_000_000.0
TIMES = {"boot": T + 30, "fetched": T + 32, "restored": T + 35, "spawned": T + 36, "first_step": T + 40}
EVENTS = [
    Event(T + 3, "preempted", "", {"incarnation": 1}),
    Event(T + 4, "tpu-create", "", {"incarnation": 2}),
]


def heartbeat(incarnation, step, resumed_from=None, **more):
    """Return the last heartbeat of one incarnation."""
    return Heartbeat(
        incarnation, 0, Phase.RUN, more.pop("updated", T), step=step, resumed_from=resumed_from, **more
    )


def test_a_recovery_is_shown_by_its_parts():
    """From the last sign of life to the first new step, without a gap."""
    events = [
        Event(T + 3, "preempted", "", {"incarnation": 1}),
        Event(T + 4, "tpu-create", "", {"incarnation": 2}),
    ]
    (way,) = recoveries_of([heartbeat(1, 57), heartbeat(2, 100, 50, timings=TIMES)], events)
    assert way.parts_s["detect"] == 3
    assert way.parts_s["decide"] == 1
    assert way.parts_s["create"] == 26
    assert (way.parts_s["fetch"], way.parts_s["setup"]) == (2, 0)
    assert (way.parts_s["restore"], way.parts_s["compile"]) == (3, 5)
    assert way.total_s == pytest.approx(40)


def test_a_wait_for_the_quota_is_a_part_of_decide_and_the_legend_says_so():
    """The old TPU held the quota until it was deleted: that was the cloud's time, and not that of a decision."""
    events = [
        Event(T + 3, "preempted", "", {"incarnation": 1}),
        Event(T + 4, "failure", "the quota was full", {"incarnation": 2}),
        Event(T + 9, "tpu-create", "", {"incarnation": 2}),
    ]
    (way,) = recoveries_of([heartbeat(1, 57), heartbeat(2, 100, 50, timings=TIMES)], events)
    assert way.parts_s["decide"] == 6
    explained = " ".join(LEGEND).split("decide: ")[1].split("; ")[0]
    assert explained == "until the new TPU is requested, with any wait for quota or capacity"


def test_setup_has_a_part_of_its_own():
    """A checkpoint of three bytes was said to take 78 s to restore, which were pip's."""
    times = {
        **TIMES,
        "setup_began": T + 32.5,
        "setup_done": T + 110,
        "spawned": T + 111,
        "first_step": T + 140,
    }
    events = [Event(T, "tpu-create", "", {"incarnation": 2})]
    (way,) = recoveries_of([heartbeat(1, 57), heartbeat(2, 100, 50, timings=times)], events)
    assert [way.parts_s[part] for part in ("fetch", "setup", "restore", "compile")] == [2.5, 77.5, 0, 30]
    assert way.total_s == pytest.approx(140)


def test_what_comes_back_has_a_part_of_its_own():
    """It lies between the code and the setup; the counts of compiled programs go along."""
    marks = {
        "unpack_began": 32,
        "unpacked": 36,
        "setup_began": 36.5,
        "setup_done": 38,
        "spawned": 39,
        "first_step": 42,
    }
    times = {**TIMES, **{name: T + at for name, at in marks.items()}}
    events = [Event(T, "tpu-create", "", {"incarnation": 2})]
    warm = heartbeat(2, 100, 50, timings=times, xla_programs_restored=7, xla_programs_compiled=1)
    (way,) = recoveries_of([heartbeat(1, 57), warm], events)
    assert [way.parts_s[part] for part in ("fetch", "unpack", "setup", "restore", "compile")] == [
        2,
        4.5,
        1.5,
        0,
        4,
    ]
    assert (way.xla_programs_restored, way.xla_programs_compiled) == (7, 1)


LATER = {"boot": T + 90, "fetched": T + 91, "restored": T + 91, "spawned": T + 92, "first_step": T + 95}
PUSHED = heartbeat(
    2, 200, 100, attempt=2, timings=LATER, first_timings=TIMES,
    trained=(Training(1, T + 40, T + 88, 50, 100),),
)  # fmt: skip


def test_new_code_on_the_same_tpu_hides_no_recovery():
    """`push` starts the job again there: the row has the times of the first start."""
    alone = recoveries_of([heartbeat(1, 57), heartbeat(2, 100, 50, timings=TIMES)], EVENTS)
    assert recoveries_of([heartbeat(1, 57), PUSHED], EVENTS) == alone
    assert alone[0].total_s == 40


@pytest.mark.parametrize(
    ("after", "total", "message"),
    [
        (
            replace(PUSHED, first_timings={}),
            40,
            "the times of its first start were replaced by those of a later one",
        ),
        (
            heartbeat(2, 100, 50, attempt=2, timings=TIMES, progress_at=T + 60),
            40,
            "its first start made no step",
        ),
        (heartbeat(2, 100, 50, timings={"boot": T}), None, "not all of its times are known"),
    ],
    ids=["an older agent", "a crash before the first step", "no time of a first step"],
)
def test_a_recovery_whose_parts_are_not_known_has_a_row_that_says_why(after, total, message):
    """Never a preemption without a row, and never half a measurement."""
    assert recoveries_of([heartbeat(1, 57), after], EVENTS) == (Recovery(2, total_s=total, message=message),)


def test_a_tpu_that_was_lost_before_its_first_step_has_a_row():
    """Two preemptions are two rows, and the second one counts from the last report of the TPU in between."""
    events = [
        *EVENTS,
        Event(T + 13, "preempted", "", {"incarnation": 2}),
        Event(T + 14, "tpu-create", "", {"incarnation": 3}),
    ]
    heartbeats = [
        heartbeat(1, 57), heartbeat(2, None, updated=T + 10), heartbeat(3, 100, 50, timings=TIMES)
    ]  # fmt: skip
    second, third = recoveries_of(heartbeats, events)
    assert second == Recovery(2, message="it made no step")
    assert (third.incarnation, third.parts_s["detect"], third.total_s) == (3, 3, 30)
    assert without_row((second, third), 2) == ""
    assert [one.message for one in recoveries_of(heartbeats[:2], EVENTS)] == ["it made no step"]


def test_a_preemption_after_which_nothing_came_is_said():
    """It has no TPU to name a row by."""
    assert recoveries_of([heartbeat(1, 57)], EVENTS) == ()
    said = "1 preemption has no row: no TPU has reported since, or `tpuctl up` started anew"
    assert without_row((), 1) == said
    lines = summary_lines(Summary(57, None, 1, 0, False, (), None, 9.0, 0, 0), unbilled=True)
    assert " ".join(" ".join(lines[-2:]).split()).endswith(said)
    none = replace(facts(), summary=Summary(57, None, 1, 0, False, (), None, 9.0, 0, 0))
    assert f"{said}." in page(none)


def test_a_row_without_figures_has_dashes_and_its_reason():
    """In the summary and on the page."""
    ways = (
        Recovery(2, total_s=13.14, message="its first start made no step"),
        Recovery(3, message="it made no step"),
    )
    found = Summary(400, None, 2, 0, False, ways, 0.5, 100.0, 1.0, 3.0)
    rows = [" ".join(line.split()) for line in summary_lines(found, unbilled=True)]
    assert "TPU #2 13.1 - - - - - - - -" in rows
    assert "TPU #3 - - - - - - - - -" in rows
    assert "-: of TPU #2: its first start made no step" in rows
    shown = page(replace(facts(), summary=found))
    assert "-: of TPU #3: it made no step." in shown
    assert shown.count('class="n">-<') == 8 + 8
