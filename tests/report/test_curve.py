"""The loss by step, from the log of a job that knows nothing of tpuctl, and from hostile reports."""

import time
from math import inf, nan

import pytest

from orchestrator.cli.views.summary import redone_text
from orchestrator.contract.phase import Phase
from orchestrator.contract.training import Training
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.pricing.use_spans import Use
from orchestrator.report.charts import curve
from orchestrator.report.curve_points import PrintedLines, losses, with_printed_steps, with_reported_points
from orchestrator.report.summary import summarise
from orchestrator.report.timeline import timeline
from tests.agent.printed_lines import SAMPLES
from tests.agent.test_printed import after

T = 1_800_000_000.0


def test_the_curve_has_what_a_program_printed():
    """Lines of nanoGPT, of two machines; evaluations are none of it."""
    lines = [(1, f"iter {n}: loss {4 - n / 100:.4f}, time 20.00ms, mfu 1.00%") for n in range(0, 50, 10)]
    lines += [
        (1, "step 40: train loss 3.6, val loss 3.9"),
        (2, "--- TPU #2, worker 0, attempt 1: x ---"),
    ]
    lines += [(2, f"iter {n}: loss {4 - n / 100:.4f}, time 20.00ms, mfu 1.00%") for n in range(30, 70, 10)]
    found = losses([], [], lines)
    assert [step for step, _ in found[1]] == [0, 10, 20, 30, 40]
    assert [step for step, _ in found[2]] == [30, 40, 50, 60]
    assert found[2][-1] == (60, 3.4)
    assert curve(found) is not None


@pytest.mark.parametrize(
    "start",
    ["--- TPU #1, worker 0, attempt 2: x ---", "--- incarnation 1, worker 0, attempt 2: x ---"],
    ids=["now", "earlier releases"],
)
def test_a_start_of_the_same_machine_counts_for_itself(start):
    """After a crash the job begins at an older step; the curve has what it printed then."""
    lines = [
        (1, "step 50 loss 2.0"),
        (1, start),
        (1, "step 41 loss 1.5"),
    ]
    assert losses([], [], lines) == {1: [(41, 1.5), (50, 2.0)]}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.program}-{s.reader}")
def test_each_program_has_a_curve(sample):
    """As the agent reads it: up to the step of its last loss, which a bar may be beyond."""
    found = losses([], [], [(1, line) for line in sample.text.split("\n")])
    now = after(sample.text)
    assert found[1][-1] == (sample.step if now.loss_step is None else now.loss_step, sample.loss)


def test_a_loss_is_drawn_at_the_step_it_was_printed_for():
    """The last heartbeat has a later step, from a save; the curve has no value there."""
    heartbeat = Heartbeat(1, 0, Phase.RUN, T, step=195, loss=0.02, loss_step=180)
    assert losses([], [heartbeat]) == {1: [(180, 0.02)]}
    lines = [(1, "updates: 180"), (1, "loss 0.02"), (1, "updates: 195")]
    own = '{"step": "updates: ([0-9]+)", "loss": "loss ([0-9.]+)"}'
    assert losses([], [], lines, own) == {1: [(180, 0.02)]}


def test_own_patterns_count_in_the_report_too():
    """They are what the agent gets."""
    assert losses(
        [], [], [(1, "round 7 cost 0.5")], '{"step": "round (\\\\d+)", "loss": "cost ([0-9.]+)"}'
    ) == {1: [(7, 0.5)]}


@pytest.mark.parametrize("loss", [nan, inf, -inf, 1e308, -1e308, 1e31, None])
def test_a_loss_that_cannot_be_drawn_is_skipped(loss):
    """From whoever it comes."""
    heartbeat = Heartbeat(1, 0, Phase.RUN, 1.0, step=3, loss=loss)
    assert losses([(0.0, 1, loss, 1), (0.0, 2, 1.0, 1)], [heartbeat]) == {1: [(2, 1.0)]}


@pytest.mark.parametrize(
    "points",
    [
        [(1, 1e30), (2, -1e30)], [(1, 5e-324), (2, 0.0)], [(1, 1e-320), (2, 2e-320)], [(1, 0.0), (2, 0.0)],
        [(1, 1e30), (2, 1e30)], [(0, 1.0), (10**14, 1.0 + 1e-16)], [(1, 1e-300), (2, -1e-300)],
    ],
)  # fmt: skip
def test_extreme_losses_are_drawn_without_an_error(points):
    """Marks of an axis need floats that do not overflow and are not 0."""
    assert curve(losses([(0.0, step, loss, 1) for step, loss in points], [])) is not None


@pytest.mark.parametrize(
    "line",
    [
        "step 1 " * 9000,
        "step " + "9" * 5000 + " loss 1",
        "step 1 loss " + "9" * 5000,
        "step 1 loss 1e999",
        "\0" * 70000,
    ],
    ids=range(5),
)
def test_hostile_lines_of_a_log_cost_little(line):
    """A line of 64 KB was 15 s once."""
    began = time.process_time()
    losses([], [], [(1, line)] * 20)
    assert time.process_time() - began < 1.0


def test_what_a_lost_machine_printed_counts_without_a_report_of_it():
    """It was lost at step 70, soon after its last heartbeat, while it restored: the next one made it all again."""
    lost = Heartbeat(1, 0, Phase.RESTORE, T + 20)
    after = Heartbeat(2, 0, Phase.DONE, T + 90, step=100, timings={"first_step": T + 60})
    before = PrintedLines()
    before.add((1, f"step {step} loss 2.0") for step in range(10, 80, 10))
    heartbeats = with_printed_steps((lost, after), before)
    assert [heartbeat.step for heartbeat in heartbeats] == [70, 100]
    found = summarise(heartbeats, (), preemptions=1, wall=90, usd=1.0, on_demand_usd=3.0)
    assert (
        redone_text(found) == "at least 70 (how many more a lost TPU made after its last report is not known)"
    )
    assert found.steps_redone == 70
    spans = [Span(Kind.NODE, f"a-tpu-g{n}", "z", T + 40 * n - 40, T + 40 * n) for n in (1, 2)]
    lane = timeline(spans, heartbeats, (), T + 90).lanes[0]
    assert [(bar.use, bar.until - bar.since) for bar in lane.bars] == [(Use.STARTING, 20), (Use.LOST, 20)]
    assert lane.steps == "steps 0 to 70"


def test_a_point_of_the_watcher_counts_as_a_printed_step():
    """The agent was started again, and its newest report has no step yet."""
    heartbeats = (
        Heartbeat(1, 0, Phase.SETUP, T),
        Heartbeat(1, 1, Phase.SETUP, T, workers=2),
        Heartbeat(2, 0, Phase.RUN, T),
    )
    found = with_printed_steps(heartbeats, PrintedLines(), [(T, 30, None, 1), (T + 1, 40, 0.5, 1)])
    assert [heartbeat.step for heartbeat in found] == [40, None, None]


def test_an_attempt_without_a_step_has_none_of_the_attempts_before_it():
    """After a push the new code crashed at once, from an older checkpoint: it has not trained from 50 to 65."""
    crashed = Heartbeat(
        1, 0, Phase.FAILED, T + 43, resumed_from=50, attempt=4, timings={"spawned": T + 41},
        trained=(Training(1, T + 5, T + 30, 0, 65),),
    )  # fmt: skip
    printed = PrintedLines(points={1: {60: 1.0, 65: 0.9}})
    found = with_printed_steps((crashed,), printed)
    assert found == (crashed,)
    assert summarise(found, (), preemptions=0, wall=90, usd=1.0, on_demand_usd=3.0).steps_redone == 0
    points = with_reported_points([(T + 20, 40, 1.5, 1)], found)
    assert [(at - T, step) for at, step, _, _ in points] == [(5, 0), (20, 40), (30, 65)]
    (further,) = with_printed_steps((crashed,), PrintedLines(points={1: {65: 0.9, 70: 0.8}}))
    assert further.step == 70, "which no earlier attempt has reported"


def test_a_machine_has_a_line_from_where_it_trained_on_to_its_last_step():
    """The watcher saw it 100 steps later; one that ran without a watcher has its line by its report alone."""
    points = [(T + 20, 100, 2.0, 1), (T + 90, 190, 1.5, 2)]
    heartbeats = [
        Heartbeat(1, 0, Phase.RUN, T + 20, step=100, timings={"first_step": T + 5}),
        Heartbeat(2, 0, Phase.RUN, T + 90, step=190, resumed_from=80, timings={"first_step": T + 70}),
        Heartbeat(3, 0, Phase.RUN, T + 99, step=200, resumed_from=180, timings={"first_step": T + 95}),
        Heartbeat(
            4,
            0,
            Phase.DONE,
            T + 300,
            step=260,
            resumed_from=200,
            progress_at=T + 250,
            attempt=2,
            timings={"first_step": T + 220},
            trained=(Training(1, T + 150, T + 160, 190, 210),),
        ),
        Heartbeat(2, 1, Phase.RUN, T + 90, step=190, resumed_from=70, timings={"first_step": T + 60}),
    ]
    found = with_reported_points(points, heartbeats)
    assert found[:4] == [(T + 5, 0, None, 1), points[0], (T + 70, 80, None, 2), points[1]]
    assert [point[:2] for point in found[4:]] == [
        (T + 95, 180), (T + 99, 200), (T + 150, 190), (T + 160, 210), (T + 220, 200), (T + 250, 260),
    ]  # fmt: skip
    assert with_reported_points(points, [Heartbeat(1, 0, Phase.BOOT, T)]) == points


def test_a_line_goes_on_to_the_last_step_although_its_watcher_has_ended():
    """The report is newer than the last point."""
    report = Heartbeat(1, 0, Phase.RUN, T + 99, step=900, progress_at=T + 98, timings={"first_step": T + 5})
    found = with_reported_points([(T + 20, 100, 2.0, 1)], [report])
    assert [point[:2] for point in found] == [(T + 5, 0), (T + 20, 100), (T + 98, 900)]
