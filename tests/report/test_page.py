"""The report's page: what it shows, that it loads nothing, and that no text of others becomes part of it."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.contract.training import Training
from orchestrator.domain.events import Event
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.domain.status import DeploymentState
from orchestrator.pricing.use_spans import Use, use_spans
from orchestrator.report import charts
from orchestrator.report.curve_points import MAX_POINTS, losses
from orchestrator.report.page import NEWEST, LiveFacts, page, style_hash, usd_shown
from orchestrator.report.summary import summarise
from orchestrator.report.timeline import timeline
from tests.kit.records import changed
from tests.report.report_kit import ZONE, T, facts, heartbeat

HOSTILE = [
    "<script>alert(1)</script>", "</title><img src=x onerror=alert(1)>", '"><svg onload=alert(1)>',
    "' onclick='x", "</style><script>1</script>", "{{ 7 * 7 }}", "{% raw %}", "javascript:alert(1)",
    "\u202e\u0000evil", "&lt;b&gt;",
]  # fmt: skip

CROSS = "\N{MULTIPLICATION SIGN}"


class PageReader(HTMLParser):
    """Collect the elements, their attributes and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        """Return the text with its white space made even."""
        return " ".join("".join(self.text).split())


def test_the_page_tells_all_that_happened():
    """Machines, loss, time, money, ways back, events."""
    words = PageReader(page(facts())).words
    for part in (
        "mine done", "all is done", "mine-tpu-g1", "mine-tpu-g3", "mine-vm", "steps 113 to 260",
        "starting", "lost", "useful time", "first step", "from the last report of the lost TPU",
            "56 min 40 s", "2 preemptions survived", "% saved (",
        "step 400 of 400, 100%", "TPU v", "recovering", "TPU mine-tpu-g1 is PREEMPTED",
        "Wasted by preemptions", "on demand", "2027-01-15 08:17:30",
    ):  # fmt: skip
        assert part in words, part


@pytest.mark.parametrize("field", ["failing_message", "ignored_message"])
@pytest.mark.parametrize(("outcome", "alarms"), [(None, True), ("done", False)])
def test_a_job_that_fails_or_ignores_its_checkpoint_does_not_look_healthy(field, outcome, alarms):
    """As long as it can still be mended; a run that is over has its end in this line."""
    shown = facts()
    running = replace(
        shown, status=replace(shown.status, outcome=outcome, **{field: "step 7 was not loaded"})
    )
    read = PageReader(page(running))
    assert ("step 7 was not loaded" in read.words) == alarms
    assert (("p", {"class": "alarm"}) in read.elements) == alarms


def test_the_page_needs_no_network_and_runs_no_script():
    """One file: no address of another, its own style by hash, and nothing else is allowed."""
    text = page(facts())
    read = PageReader(text)
    assert not re.findall(r"https?://|//[a-z]|url\(|@import", text)
    assert not [
        tag for tag, _ in read.elements if tag in {"script", "iframe", "link", "img", "object", "form"}
    ]
    assert not [
        a for _, attributes in read.elements for a in attributes if a.startswith("on") or a == "style"
    ]
    (policy,) = [a["content"] for tag, a in read.elements if a.get("http-equiv") == "Content-Security-Policy"]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert policy == f"default-src 'none'; style-src '{style_hash(style)}'"


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_wrote_stays_text(text):
    """Names, messages, events, reasons: no element and no attribute comes of them."""
    row = {"name": "n", "project": "p", "message": "", "preemptions": 0, "usd": 0.0}
    words = dict.fromkeys(("outcome", "tpu", "job", "checkpoint_message"), "x")

    def live(said):
        rows = [{**row, **dict.fromkeys(words, said)}, {**row, "name": said}, {**row, "message": said}]
        return LiveFacts([said], [{**words, **one} for one in rows])

    plain = PageReader(page(facts(), live("x")))
    hostile = PageReader(page(facts(event=text, reason=text, message=text), live(text)))
    names = [(tag, sorted(attributes)) for tag, attributes in plain.elements]
    assert [(tag, sorted(attributes)) for tag, attributes in hostile.elements] == names
    reported = "".join(hostile.text).replace("\0", "")
    assert reported.count(text.replace("\0", "")) >= 8
    addresses = [a["href"] for tag, a in hostile.elements if tag == "a"]
    assert addresses
    assert all(one.startswith("?deployment=") for one in addresses)


def test_a_deployment_that_has_only_begun_has_a_page():
    """No machine, no report, no event: it says so."""
    found = facts()
    bare = replace(
        found, record=changed(found.record, spans=(), outcome=None), heartbeats=(), events=(), losses={},
        status=replace(
            found.status, outcome=None, workers=(), next_changes=("create node x: there is none",)
        ),
        breakdown=replace(found.breakdown, items=(), uses={}),
        summary=replace(found.summary, goodput=None, steps=None, recoveries=()),
    )  # fmt: skip
    words = PageReader(page(bare)).words
    for said in (
        "No machine has been requested yet",
        "reported no loss",
        "No TPU has run",
        "No events are stored",
    ):
        assert said in words


def test_a_long_log_keeps_its_newest_events():
    """A run of a month is no page of a million rows."""
    many = [Event(T + n, "ready", f"event {n}") for n in range(NEWEST + 50)]
    words = PageReader(page(facts(events=many))).words
    assert "53 earlier events are left out" in words
    assert f"event {NEWEST + 49}" in words


def lane(span, report, *, followed=False, now=T + 2000, events=()):
    """Return the bars of one TPU as (kind, seconds from its begin to its end)."""
    spans = [span, *([replace(span, name="mine-tpu-g2", since=now)] if followed else [])]
    found = timeline(spans, [report] if report else [], events, now).lanes[0]
    return [(bar.use.value, bar.since - T, bar.until - T) for bar in found.bars]


G1 = Span(Kind.NODE, "mine-tpu-g1", ZONE, T, T + 1100)


@pytest.mark.parametrize(
    ("span", "report", "followed", "bars"),
    [
        (G1, heartbeat(1, T, 10, phase=Phase.DONE), False,
         [("starting", 0, 60), ("training", 60, 1000), ("idle", 1000, 1100)]),
        (G1, heartbeat(1, T, 10), True, [("starting", 0, 60), ("training", 60, 900), ("lost", 900, 1100)]),
        (G1, heartbeat(1, T, 10, committed_at=None), True, [("starting", 0, 60), ("lost", 60, 1100)]),
        (replace(G1, until=None), heartbeat(1, T, 10), False, [("starting", 0, 60), ("training", 60, 2000)]),
        (replace(G1, until=None), None, False, [("starting", 0, 2000)]),
        (G1, None, False, [("not known", 0, 1100)]),
        (G1, Heartbeat(1, 0, Phase.BOOT, T + 50, timings={"boot": T + 45}), False, [("starting", 0, 1100)]),
    ],
    ids=["done", "taken away", "nothing saved", "runs", "being made", "never heard of", "never trained"],
)  # fmt: skip
def test_a_machine_s_time_is_shown_by_its_last_report(span, report, followed, bars):
    """What was not saved when another TPU took over is lost."""
    assert lane(span, report, followed=followed) == bars


def test_the_machines_and_the_account_of_the_time_say_the_same():
    """One vocabulary: what is red above is lost below, for as many seconds."""
    found = facts(now=T + 3500)
    drawn = timeline(found.record.spans, found.heartbeats, found.events, found.now)
    above = {}
    for bar in (bar for lane in drawn.lanes if lane.number for bar in lane.bars):
        above[bar.use] = above.get(bar.use, 0) + bar.until - bar.since
    below = {}
    for part in use_spans(found.record.spans, found.heartbeats, found.now):
        below[part.use] = below.get(part.use, 0) + part.until - part.since
    # Between two TPUs there is none, and no line; that too is recovering.
    gaps = 2 * 100
    assert {**above, Use.RECOVERING: above[Use.RECOVERING] + gaps} == pytest.approx(below)


def test_a_tpu_that_up_started_again_recovers_from_nothing_on_its_lane_as_in_the_account():
    """The second TPU starts, and no TPU was lost: what was not saved before `down` was repeated after `up`."""
    found = facts(now=T + 3500)
    times = (T, T + 1150)
    drawn = timeline(found.record.spans, found.heartbeats, found.events, found.now, times)
    bars = [[bar.use for bar in lane.bars] for lane in drawn.lanes if lane.number in (1, 2)]
    first, second = [Use.STARTING, Use.TRAINING, Use.REPEATED], [Use.STARTING, Use.TRAINING, Use.LOST]
    assert bars == [first, second]


def test_a_lane_names_the_steps_of_all_attempts():
    """After a push it has trained from the first attempt's step on."""
    known = heartbeat(1, T, 1230, 1095, attempt=2, trained=(Training(1, T + 20, T + 50, 0, 1095),))
    drawn = timeline((G1,), [known], (), T + 2000)
    assert drawn.lanes[0].steps == "steps 0 to 1,230"


def test_the_share_of_training_is_the_useful_time():
    """Card, table and sentence speak of the same time: from `up` to the end of the last TPU."""
    found = facts(now=T + 3500)
    used = use_spans(found.record.spans, found.heartbeats, found.now)
    trained = sum(one.until - one.since for one in used if one.use is Use.TRAINING)
    wall = T + 3500 - found.record.started_at
    summary = summarise(
        found.heartbeats, found.events, preemptions=2, wall=wall, usd=1.5, on_demand_usd=4.0, trained=trained
    )
    words = PageReader(page(replace(found, summary=summary))).words
    share = f"{trained / wall:.1%}"
    assert summary.goodput == pytest.approx(trained / wall)
    assert words.count(share) >= 2


def test_a_preemption_runs_through_every_drawing():
    """At its time through each machine's bar and the steps, at its step through the loss, never through a name."""
    text = page(facts(points=[(T + 100, 5, 3.0, 1), (T + 900, 90, 2.0, 1)]))
    timeline, loss = (one.split("</section>")[0] for one in text.split('class="chart"')[1:])
    lanes, plotted = timeline.split('class="plotted"')
    assert [lane.count('class="preemption"') for lane in lanes.split('class="lane"')[1:]] == [2] * 4
    assert 'class="over"' not in lanes, "a line over the whole chart runs through the names"
    assert [one.count('class="preemption"') for one in (plotted, loss)] == [2, 2]
    alone = page(replace(facts(), events=()))
    assert 'class="preemption"' not in alone


@pytest.mark.parametrize(
    ("phase", "sign", "kind"), [(Phase.FAILED, "!", "failed"), (Phase.DONE, "✓", "done")]
)
def test_a_mark_of_the_timeline_has_its_sign_of_the_legend(phase, sign, kind):
    """A TPU on which the job failed looks like none that was preempted."""
    found = facts()
    last = replace(found.heartbeats[-1], phase=phase)
    text = page(replace(found, heartbeats=(*found.heartbeats[:-1], last)))
    drawn = re.findall(r'<text class="mark"[^>]*>(.)</text><title>(\w+) at ', text)
    assert drawn == [*[(CROSS, "preempted")] * 2, (sign, kind)]
    assert re.findall(r"<li><b>(.)</b>(\w+)</li>", text) == [(CROSS, "preempted"), (sign, kind)]


def lines_of(text, label):
    """Return number of points and whether it is dashed, of each line of a drawing."""
    (drawn,) = (part for part in re.split('role="img"', text) if label in part[:80])
    found = re.findall(r'<polyline class="([^"]+)" points="([^"]+)"', drawn)
    return [(len(points.split()), "dashed" in style) for style, points in found]


def test_the_line_of_steps_begins_where_each_machine_trained_on():
    """The watcher has one point of each: alone it would be no line. The third ran without a watcher."""
    text = page(facts(points=[(T + 500, 50, 3.0, 1), (T + 1700, 180, 2.0, 2)]))
    assert [count for count, _ in lines_of(text, "Steps by time")] == [3, 3, 2]


def test_a_tpu_has_the_same_line_in_both_drawings():
    """Also where another one has a line in one of them only."""
    found = facts()
    losses = {number: part for number, part in found.losses.items() if number != 2}
    text = page(replace(found, losses=losses))
    assert [dashed for _, dashed in lines_of(text, "Steps by time")] == [False, True, False]
    assert [dashed for _, dashed in lines_of(text, "Loss from")] == [False, False]
    assert "every second one is dashed" in text
    assert "lowest loss" in text


def test_the_page_begins_when_its_timeline_does():
    """`up` has started it again after its end: the last start is not when it began."""
    found = facts()
    assert "began 2027-01-15 07:59:50 UTC, as of" in page(found)
    again = replace(found, record=replace(found.record, started_at=T + 2400, up_times=(T - 10, T + 2400)))
    words = PageReader(page(again)).words
    said = "began 2027-01-15 07:59:50 UTC, started again by `tpuctl up` at 2027-01-15 08:40:00 UTC"
    assert f"{said} (the time between is not counted), as of" in words
    assert "56 min 40 s in all" in words


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        ((), "as of"),
        ((T + 60, T + 120), "at 2027-01-15 08:01:00 UTC and 2027-01-15 08:02:00 UTC (the time"),
        ((T + 60, T + 120, T + 180), "3 times, the last at 2027-01-15 08:03:00 UTC (the time"),
    ],
)
def test_each_start_by_up_is_named(starts, said):
    """Two are named; of more the page says how many there were."""
    found = facts()
    again = replace(found, record=replace(found.record, started_at=T - 10, up_times=(T - 10, *starts)))
    begin = "began 2027-01-15 07:59:50 UTC, " + "started again by `tpuctl up` " * bool(starts)
    assert begin + said in PageReader(page(again)).words


def test_checkpoints_are_drawn_where_they_were_saved():
    """By time and by step; one of another run is not drawn outside."""
    words = page(facts(checkpoints=[(113, T + 900), (253, T + 2100), (9_999, T + 90_000)]))
    assert words.count("checkpoint of step 113") == 2
    assert "9,999" not in words
    assert "checkpoint still in the bucket" in words
    assert "checkpoint still in the bucket" not in page(facts())


def test_a_running_job_shows_how_far_it_is_and_when_it_ends():
    """The share, the rate, and the time by the clock."""
    found = facts()
    worker = replace(found.status.workers[0], phase="run", steps_per_second=2.0, reported_target_steps=800)
    status = replace(found.status, outcome=None, target_steps=None, eta_s=200.0, workers=(worker,))
    words = PageReader(page(replace(found, status=status))).words
    assert "step 400 of 800, 50%, 2 steps/s, about 3 min 20 s left (until 09:26 UTC)" in words
    unknown = replace(status, eta_s=None, workers=(replace(worker, reported_target_steps=None),))
    assert "left (until" not in PageReader(page(replace(found, status=unknown))).words


def test_a_saving_that_is_not_known_is_not_claimed():
    """A price that is missing makes each share of the whole wrong."""
    found = facts()
    assert "% saved" in PageReader(page(found)).words
    dearer = replace(found.breakdown, machines_upper_usd=found.breakdown.on_demand_usd / 2)
    assert "50 to" in PageReader(page(replace(found, breakdown=dearer))).words, "by the dearer price list"
    both = f"{usd_shown(dearer.usd)} to {usd_shown(dearer.upper_usd)} "
    assert both in PageReader(page(replace(found, breakdown=dearer))).words, "the headline has both ends too"
    missing = replace(found, breakdown=replace(found.breakdown, unpriced=("TPU in x",)))
    assert "% saved" not in PageReader(page(missing)).words
    setup = replace(found.status.workers[0], phase="setup")
    losing = replace(found.status, outcome=None, workers=(setup,))
    assert "survived" not in PageReader(page(replace(found, status=losing))).words, "not yet"


@pytest.mark.parametrize("span", [1, 37, 600, 4000, 30_000, 90_000, 500_000, 9e6, 3e8])
def test_an_axis_of_time_has_few_round_times(span):
    """Of a minute and of years; on a telephone they do not run into each other."""
    marks = charts.time_ticks(T + 17, T + 17 + span)
    assert len(marks) <= 6
    assert all(0 <= mark.at <= 100 for mark in marks)
    assert marks or span < 2


def test_bars_and_marks_stay_within_the_drawing():
    """Also for a machine that lived for a moment, and an event after its end."""
    spans = [G1, Span(Kind.NODE, "mine-tpu-g2", ZONE, T + 1200, T + 1200.01)]
    events = [Event(T + 9999, "preempted", "", {"incarnation": 1})]
    for one in charts.lanes(timeline(spans, [], events, T + 1300)):
        assert all(0 <= bar["x"] <= 100 and bar["width"] >= charts.LEAST for bar in one["bars"])
        assert all(0 < mark["x"] < 100 for mark in one["marks"])


def test_the_loss_is_read_from_logs_of_any_writing():
    """The watcher's points win over the log's; what is no number is left out."""
    lines = [
        (1, "step 1 loss 3.5"), (1, "[INFO] Step: 2, lr=1e-3, loss=2.5e-1"), (1, "step 3 loss nan"),
        (1, "no step here, loss 9"), (2, "global step=10 | train loss: 1.5"),
    ]  # fmt: skip
    found = losses(
        [(T, 2, 0.5, 1), (T, 4, None, 1)], [Heartbeat(2, 0, Phase.RUN, T, step=12, loss=1.0)], lines
    )
    assert found == {1: [(1, 3.5), (2, 0.5)], 2: [(10, 1.5), (12, 1.0)]}


def test_a_long_curve_is_thinned_and_keeps_its_end():
    """A million steps do not make a page of a hundred megabytes."""
    (points,) = losses([(T, n, 1.0, 1) for n in range(MAX_POINTS * 10 + 3)], []).values()
    assert len(points) <= MAX_POINTS + 1
    assert points[-1][0] == MAX_POINTS * 10 + 2


@pytest.mark.parametrize("values", [[1.0, 1.0], [0.0, 0.0], [1e-9, 2e-9], [-5.0, 1e9], [3.0, 2.99999]])
def test_any_loss_can_be_drawn(values):
    """Equal, tiny and huge values have an axis with round numbers, and stay inside."""
    found = charts.curve({1: list(enumerate(values))})
    for pair in found["lines"][0]["points"].split():
        x, y = map(float, pair.split(","))
        assert 0 <= x <= charts.WIDE
        assert 0 <= y <= charts.HIGH
    assert found["ys"]
    assert charts.curve({1: [(5, 1.0)]}) is None


def test_a_request_that_was_refused_counts_as_no_tpu():
    """It took a number, and nothing was ever billed for it."""
    reported = facts()
    nodes = [span for span in reported.record.spans if span.kind is Kind.NODE]
    spans = tuple(span for span in reported.record.spans if span is not nodes[1])
    words = PageReader(page(replace(reported, record=replace(reported.record, spans=spans)))).words
    assert f"TPUs used{len(nodes) - 1}" in words


def test_the_page_of_a_deployment_that_is_down_says_so_and_shows_its_checkpoint():
    """No plan of a next `up`, and no sentence about a figure that is not known."""
    found = facts()
    status = replace(
        found.status, state=DeploymentState.DOWN, outcome=None, workers=(), checkpoint_step=1230,
        next_changes=("create VM mine-vm: there is none yet",),
    )  # fmt: skip
    summary = replace(found.summary, goodput=None)
    words = PageReader(page(replace(found, status=status, summary=summary))).words
    assert "`tpuctl down` has run" in words
    assert "create VM" not in words
    assert "step 1,230" in words
    assert "not known of the time" not in words
    assert "reports no steps" not in words
    assert "a TPU has reported its saves only" in words
