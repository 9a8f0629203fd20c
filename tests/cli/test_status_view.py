"""What `status` shows, to the letter, at three widths; the lines of a log; a terminal."""

import os
import re
from pathlib import Path

import pytest

from orchestrator.app.context.choice import Choice
from orchestrator.app.status.all_deployments import DeploymentRow
from orchestrator.app.status.text import checkpoint_text
from orchestrator.app.this_computer.quick_status import aged
from orchestrator.cli.views.all_deployments import TITLES, Browser, table
from orchestrator.cli.views.event_lines import wanted
from orchestrator.cli.views.redraw import EVERY, NEWS_EVERY, follow_status, news_key, news_line, repeat
from orchestrator.cli.views.status import job_text, painted, show, status_rows
from orchestrator.clock import VirtualClock
from orchestrator.domain.status import DeploymentState, DeploymentStatus, StatusSource
from orchestrator.errors import AuthError, TransientError

BUCKET = {"kind": "bucket", "zone": "europe-west4", "name": "tpuctl-numpy-lm-275244f2f4", "state": "present"}
GOLDEN = Path(__file__).parents[1] / "golden"


def worker(number=0, **more):
    """Return what `status --json` prints of one worker."""
    known = {
        "worker": number,
        "phase": "run",
        "step": 120,
        "loss": 2.31,
        "checkpoint_step": 110,
        "attempts": 1,
        "message": "",
    }
    return {**known, "checkpoint_age_s": 12.0, "heartbeat_age_s": 3.0, **more}


def body(**more):
    """Return the status of a deployment with a watcher, sidecars and a budget; *more* is as in `status --json`."""
    tpu = {"kind": "tpu", "zone": "europe-west4-b", "name": "numpy-lm-tpu-g3", "state": "READY"}
    known = {
        "name": "numpy-lm", "project": "p", "state": "running", "outcome": None, "incarnation": 3, "preemptions": 2,
        "usd": 0.0438, "upper_usd": 0.0661, "budget_usd": 5.0, "target_steps": 400,
        "ttl_remaining_s": 80000.0,
        "resources": [
            BUCKET, {"kind": "vm", "zone": "europe-west4-b", "name": "numpy-lm-vm", "state": "RUNNING"}, tpu,
        ],
        "workers": [worker()], "safety_nets": [], "next_changes": [], "next_pass_in_s": 9.0,
        "watcher": {"on": "vm", "who": "root@vm", "command": "watch", "renewed_age_s": 2.0, "alive": True},
        "sidecars": [{"name": "tensorboard", "on": "vm", "port": 6006}],
        "source": {"by": "the loop on the VM", "age_s": 4.0},
    }  # fmt: skip
    return DeploymentStatus.from_dict({**known, **more})


DONE = body(
    resources=[
        BUCKET,
        {"kind": "vm", "zone": "europe-west4-b", "name": "numpy-lm-vm", "state": "TERMINATED"},
        {"kind": "tpu", "zone": "", "name": "-", "state": "absent"},
    ],
    workers=[worker(phase="done", step=400)], watcher=None, state="done", outcome="done", next_pass_in_s=None,
    ttl_remaining_s=None, sidecars=[], source={"by": "cloud", "age_s": 0.0},
)  # fmt: skip
LOST = body(
    resources=[
        BUCKET,
        {"kind": "tpu", "zone": "", "name": "?", "state": "unknown: the list of europe-west4-b was cut off"},
    ],
    workers=[worker(n, phase="stopped" if n else "run", message="") for n in range(8)],
    watcher=None, state="tpu-lost", next_pass_in_s=None,
    safety_nets=[{"name": "tpu", "active": False, "message": "nothing deletes it by itself"}],
    next_changes=["delete TPU numpy-lm-tpu-g3: it is PREEMPTED", "create TPU numpy-lm-tpu-g4: it is PREEMPTED"],
    budget_usd=None, sidecars=[], source={"by": "cloud", "age_s": 0.0},
)  # fmt: skip
NEXT_TRY = {"waits_for": [{"what": "TPU: next try", "in_s": 45.0}]}


def status_lines(found, **options):
    """Return the status as texts."""
    return [row.text for row in status_rows(found, **options)]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize(("name", "found"), [("watched", body()), ("lost", LOST), ("done", DONE)])
def test_status_is_shown_like_this(name, found, width):
    """Wider than 80 columns it is the same as at 80; nothing is cut off, long lines are wrapped."""
    lines = status_lines(found, unbilled=False, width=min(width, 80))
    assert max(map(len, lines)) <= min(width, 80)
    path = GOLDEN / f"status-{name}-{min(width, 80)}.txt"
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        path.write_text("\n".join(lines) + "\n")
    assert "\n".join(lines) + "\n" == path.read_text()
    whole = " ".join(" ".join(lines).split())
    unbroken = status_lines(found, unbilled=False, width=0)
    assert whole == " ".join(" ".join(unbroken).split())


@pytest.mark.parametrize(
    ("loop", "vm", "next_step"),
    [
        (None, "RUNNING", "tpuctl watch"),
        ("vm", "RUNNING", "tpuctl watch --on-vm"),
        ("vm", "TERMINATED", "tpuctl up"),
        ("elsewhere", "RUNNING", "tpuctl watch"),
    ],
)
def test_without_a_watcher_the_next_step_is_to_watch(loop, vm, next_step):
    """A job that runs needs nothing, but after a preemption nothing would come."""
    holder = loop and {
        "on": loop, "who": "root@vm", "command": "watch", "renewed_age_s": 900.0, "alive": False
    }  # fmt: skip
    rows = [{**row, "state": vm} if row["kind"] == "vm" else row for row in body().as_dict()["resources"]]
    lines = status_lines(body(watcher=holder, next_pass_in_s=None, resources=rows), unbilled=False, width=0)
    assert [line.split("  ")[-1].strip() for line in lines if line.startswith("next ")] == [
        f"run: {next_step}"
    ]


@pytest.mark.parametrize(
    ("state", "step", "meaning"),
    [
        ("tpu-lost", 110, "TPU lost, no watcher: no new TPU is requested, so the job does not resume"),
        ("replacing", 110, "replacing its TPU: the job resumes from step 110"),
        (
            "replacing", None,
            "replacing its TPU: the job begins again, since nothing was saved",
        ),
        ("resuming", 110, "resuming: from step 110"),
    ],
)  # fmt: skip
def test_the_last_report_of_a_lost_tpu_is_no_progress(state, step, meaning):
    """It says whether a new TPU is requested and where the job goes on, and promises no time."""
    workers = [worker(steps_per_second=4.0)] if state != "resuming" else []
    found = body(state=state, resumes_from=step, workers=workers, eta_s=None)
    lines = status_lines(found, unbilled=False, width=0, drawn=True)
    assert f"state        {meaning}" in lines
    job = [line for line in lines if line.startswith("job ")]
    assert job == ["job          last report, step 120 of 400 (30%), loss 2.31"] * len(workers)
    assert not any("━" in line for line in lines)
    reports = [line for line in lines if line.startswith("worker 0")]
    assert all(line.startswith("worker 0     last report: runs, step 120") for line in reports)
    assert len(reports) == len(workers)


@pytest.mark.parametrize(
    "workers", [[], [worker(checkpoint_step=None, step=None, loss=None)]], ids=["none", "new"]
)
@pytest.mark.parametrize("state", ["tpu-lost", "replacing", "resuming"])
def test_the_checkpoint_of_a_job_without_a_tpu_is_the_one_it_resumes_from(state, workers):
    """No worker reports it, and it is what a person who finds no TPU asks for first."""
    found = body(state=state, resumes_from=150, workers=workers)
    lines = status_lines(found, unbilled=False, width=0)
    saved = [line for line in lines if line.startswith("checkpoint ")]
    assert saved == ["checkpoint   step 150, in the bucket: the job resumes from it"]
    assert checkpoint_text(found, step="") == "150"


def test_a_last_report_without_a_step_says_so():
    """An empty text after `last report` looks like a fault."""
    found = body(state="tpu-lost", workers=[worker(step=None, loss=None)])
    assert job_text(found) == "last report, no step reported yet"


def test_the_reason_of_an_end_is_with_the_state():
    """A failure without its reason sends people to the log."""
    found = body(state="failed", outcome="failed", message="worker 0: it left with status 1", watcher=None)
    assert "state        failed: worker 0: it left with status 1" in status_lines(
        found, unbilled=False, width=0
    )


@pytest.mark.parametrize(
    ("states", "count"),
    [
        (["running", "deleted"], 2),
        (["deleted"], 1),
        (["running", "down"], 2),
        (["down", "running", "done"], 3),
    ],
)
def test_a_watch_of_the_status_ends_with_the_deployment(capsys, states, count):
    """It says that the deployment is deleted, and does not go on for ever; one that is down may be awaited."""
    gone = {"up": False, "workers": [], "watcher": None}
    looks = [
        body(
            state=one, outcome=one if one == "done" else None, **(gone if one in {"deleted", "down"} else {})
        )
        for one in states
    ]
    follow_status(Choice(None, (), "gcp"), VirtualClock(), lambda: looks.pop(0), wide=False)
    out = capsys.readouterr().out.splitlines()
    assert (len(out), looks) == (count, [])
    assert f"numpy-lm: {DeploymentState(states[-1]).phrase}, " in out[-1]


def test_wide_has_a_line_for_each_worker():
    """Of many workers the default shows counts and the one with the oldest report."""
    few, wide = (status_lines(LOST, unbilled=True, wide=wide) for wide in (False, True))
    (line,) = [line for line in few if line.startswith("worker")]
    assert line.startswith("workers      last reports: runs (1), stopped (7); oldest report: worker 0")
    assert len([line for line in wide if line.startswith("worker ")]) == 8


def test_a_wait_that_names_its_end_has_no_second_number():
    """Only the time until it is asked for again is of interest, and without a watcher there is none."""
    for look, shown in ((15.0, "in 45 s"), (None, "(when a watcher runs)")):
        lines = status_lines(body(**NEXT_TRY, next_pass_in_s=look), unbilled=False, width=0)
        assert f"waiting      TPU: next try {shown}" in lines


@pytest.mark.parametrize(
    ("look", "shown"),
    [
        (15.0, "checked again in 15 s"),
        (0.0, "checked again now"),
        (None, "checked again when a watcher runs"),
    ],
)
def test_what_is_waited_for_is_no_next_step(look, shown):
    """A TPU that is CREATING now will not be CREATING in 15 s; a change is still to come."""
    found = body(waits_for=[{"what": "TPU: CREATING"}], next_pass_in_s=look)
    assert f"waiting      TPU: CREATING ({shown})" in status_lines(found, unbilled=False, width=0)
    assert news_line(found).endswith(", waiting: TPU: CREATING")
    change = body(next_changes=["create TPU g4: it is PREEMPTED"], next_pass_in_s=15.0)
    assert "next         create TPU g4: it is PREEMPTED (now)" in status_lines(
        change, unbilled=False, width=0
    )
    done = body(outcome="done", next_changes=["delete TPU g3"], next_pass_in_s=None)
    billed = "next         delete TPU g3 (when `tpuctl watch` or `tpuctl down` runs)"
    assert billed in status_lines(done, unbilled=False, width=0)


def test_ages_go_on_while_a_published_status_lies_there():
    """What is said to be 12 s old was so 30 s ago."""
    found = aged(body(), 30.0, "the watcher")
    assert found.workers[0].checkpoint_age_s == 42.0
    assert found.workers[0].heartbeat_age_s == 33.0
    assert found.watcher.renewed_age_s == 32.0
    assert found.next_pass_in_s == 0.0
    assert aged(body(**NEXT_TRY), 30.0, "the watcher").upcoming[0].text == "TPU: next try in 15 s"
    assert found.ttl_remaining_s == 79970.0
    assert found.source == StatusSource(by="the watcher", age_s=30.0)
    assert aged(body(watcher=None, ttl_remaining_s=None), 30.0, "x").ttl_remaining_s is None


def test_a_log_gets_a_line_for_each_piece_of_news(capsys):
    """Ages and steps alone are none; a cloud that is away for a moment is asked again, a refusal ends it."""
    looks = [
        body(), aged(body(), 5.0, "x"), TransientError("the network failed"),
        body(workers=[worker(step=121)]), body(outcome="done", state="done"),
    ]  # fmt: skip

    def read():
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found, bool(found.outcome)

    clock = VirtualClock()
    repeat(
        Choice(None, (), "gcp"),
        clock,
        "status",
        read,
        str,
        lambda found: [(news_key(found), news_line(found))],
    )
    out, err = capsys.readouterr()
    rest = "of 400 (30%), loss 2.31, checkpoint at step 110, 2 preemptions, 0.0438 to 0.0661 USD"
    assert [line.split("  ", 1)[1] for line in out.splitlines()] == [
        f"numpy-lm: running, numpy-lm-tpu-g3 READY, runs, step 120 {rest}",
        f"numpy-lm: done, numpy-lm-tpu-g3 READY, runs, step 120 {rest}",
    ]
    assert err == "the network failed (TPU-400); trying again at least once a minute, until it answers\n"
    looks.append(AuthError("not logged in"))
    with pytest.raises(AuthError):
        repeat(Choice(None, (), "gcp"), clock, "status", read, str, lambda found: [])


def test_a_log_of_a_week_stays_short(capsys):
    """Steps alone are said every five minutes: 300 lines a day, not 17,000."""
    clock, step = VirtualClock(), iter(range(1000))

    def read():
        number = next(step)
        return body(workers=[worker(step=number)]), number == 400

    repeat(Choice(None, (), "gcp"), clock, "status", read, str, lambda b: [(news_key(b), news_line(b))])
    steps = [int(line.split("step ")[1].split()[0]) for line in capsys.readouterr().out.splitlines()]
    apart = int(NEWS_EVERY / EVERY)
    assert steps == list(range(0, 401, apart))


def test_a_bar_shows_how_far_the_job_is():
    """On a terminal only, and only where the last step is known; it fits 60 columns."""
    for width in (60, 80, 120):
        lines = status_lines(body(), unbilled=False, width=width, drawn=True)
        (drawn,) = [line for line in lines if "━" in line]
        assert drawn.endswith("30%")
        assert drawn.count("━") == round(0.3 * (drawn.count("━") + drawn.count("╌")))
        assert len(drawn) <= width
    assert not any("━" in line for line in status_lines(body(), unbilled=False))
    unknown = body(target_steps=None)
    assert not any("━" in line for line in status_lines(unknown, unbilled=False, drawn=True))


@pytest.mark.parametrize("found", [body(), LOST, DONE])
def test_colours_say_nothing_alone(found):
    """Without its colours a line is what it was; states of a TPU that is there, waits or is lost differ."""
    coloured = painted(status_rows(found, unbilled=False, width=60))
    lines = status_lines(found, unbilled=False, width=60)
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in coloured] == lines
    assert coloured[0] == f"\x1b[1m{lines[0]}\x1b[0m"
    rows = "\n".join(coloured)
    assert ("\x1b[32mREADY" in rows) == ("READY" in str(found.resources))


@pytest.mark.parametrize(
    ("variables", "colours"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colours_follow_the_usual_variables(variables, colours, monkeypatch, capsys):
    """Where no terminal is there are none, unless they are asked for."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    show(body(), unbilled=False, wide=False, as_json=False)
    assert ("\x1b[32mREADY" in capsys.readouterr().out) is colours


def test_a_name_or_text_that_looks_like_a_state_is_not_painted():
    """Only a state is, also where it is wrapped to a line of its own."""
    rows = [{"kind": "tpu", "zone": "z", "name": "a  READY", "state": "PREEMPTED: somebody took it away"}]
    for width in (0, 24):
        shown = "\n".join(painted(status_rows(body(resources=rows), unbilled=False, width=width)))
        assert "a  READY" in shown
        assert "\x1b[31mPREEMPTED" in shown
    named_so = status_rows(body(sidecars=[{"name": "job", "on": "vm", "port": 80}]), unbilled=False)
    assert [row.phases for row in named_so if row.label == "job"] == [True, False]


def rows_of(*figures):
    """Return rows of the table of all deployments: name, preemptions, cost; None for what did not answer."""
    return [
        DeploymentRow(name, "p", None, "gone") if count is None
        else DeploymentRow(name, "p", body(preemptions=count, usd=usd, upper_usd=2 * usd))
        for name, count, usd in figures
    ]  # fmt: skip


def test_keys_select_sort_and_leave():
    """Arrows stay within the rows, s goes through the columns, r reverses, q ends."""
    rows = rows_of(("b", 3, 20.0), ("a", None, None), ("c", 1, 9.5))
    browser = Browser()
    assert [row.name for row in browser.ordered(rows)] == ["a", "b", "c"]
    for _ in range(5):
        browser = browser.press("down", len(rows))
    assert browser.cursor == 2
    assert browser.press("up", len(rows)).cursor == 1
    assert browser.press("up", 1).cursor == 0, "rows that are gone are not selected"
    assert browser.press("enter", 3).details
    assert not browser.press("enter", 0).details
    assert not browser.press("enter", 3).press("back", 3).details
    orders = {}
    for title in TITLES:
        orders[title] = "".join(row.name for row in browser.ordered(rows))
        browser = browser.press("sort", 3)
    assert orders["preempted"] == "acb"
    assert orders["cost in USD"] == "acb", "by the amount, not by its text"
    assert browser.sort == 0
    assert [row.name for row in browser.press("reverse", 3).ordered(rows)] == ["c", "b", "a"]
    assert browser.press("quit", 3).over
    assert not browser.press("other", 3).over


def test_the_table_of_all_deployments_fits_the_terminal():
    """A long name and a long reason are folded."""
    rows = [
        DeploymentRow("a" * 40, "p", body()),
        DeploymentRow("b", "p", None, "what is kept of b cannot be read: its checksum does not fit"),
    ]
    for width in (60, 80):
        assert max(map(len, table(rows, width).splitlines())) <= width


@pytest.mark.parametrize(
    ("workers", "more", "cells"),
    [
        ([worker(steps_per_second=4.25)], {"eta_s": 65.0},
         ("step 120 of 400 (30%), 1 min 5 s left", "110, 12 s ago")),
        ([worker(phase="setup", step=None, loss=None, checkpoint_step=None)], {}, ("setup runs", "-")),
        ([worker(phase="done", checkpoint_counted=True)], {}, ("step 120 of 400 (30%)", "save 110, 12 s ago")),
        ([], {}, ("-", "-")),
    ],
)  # fmt: skip
def test_a_row_of_all_deployments_leaves_out_loss_and_rate(workers, more, cells):
    """So that it fits one line; the state column says that a job runs."""
    text = table([DeploymentRow("a", "p", body(workers=workers, **more))], 160).splitlines()[-1]
    assert re.split(r" {2,}", text) == ["a", "running", *cells, "2", "0.0438 to 0.0661"]


def test_a_row_of_all_deployments_has_the_same_keys_with_and_without_an_answer():
    """As `status --all --json` prints it."""
    known, unknown = DeploymentRow("a", "p", body()).as_dict(), DeploymentRow("a", "p", None, "why").as_dict()
    assert list(known) == list(unknown)
    assert (known["job"], known["checkpoint_message"]) == (
        "runs, step 120 of 400 (30%), loss 2.31",
        "step 110, committed 12 s ago",
    )
    assert (unknown["message"], unknown["job"]) == ("why", None)


def test_nothing_is_drawn_without_a_terminal():
    """Tests have no terminal."""
    assert not wanted()


def test_rate_and_remaining_time_are_shown_where_they_are_known():
    """The slowest worker's; nothing is said of what nobody knows."""
    reported = job_text(body(workers=[worker(steps_per_second=4.25, reported_target_steps=None)], eta_s=65.0))
    assert reported == "runs, step 120 of 400 (30%), loss 2.31, 4.25 steps/s, 1 min 5 s left"
    assert job_text(body(workers=[worker(steps_per_second=0.05)])).endswith("loss 2.31, 20 s/step")
    assert job_text(body(workers=[worker(steps_per_second=None)], eta_s=None)).endswith("loss 2.31")
    earlier = job_text(body(workers=[worker(steps_per_second=None, loss_step=110)], eta_s=None))
    assert earlier.endswith("step 120 of 400 (30%), loss 2.31 (at 110)")


def test_the_last_step_may_be_known_from_the_job_alone():
    """A progress bar of the job shows it, where the deployment file has no target_steps."""
    workers = [worker(reported_target_steps=240, steps_per_second=2.0)]
    reported = job_text(body(target_steps=None, workers=workers, eta_s=60.0))
    assert reported == "runs, step 120 of 240 (50%), loss 2.31, 2 steps/s, 1 min 0 s left"


def test_what_a_job_does_not_report_is_said_once_it_has_saved():
    """A line without them looks like a job that stands still; before the first save it may be starting."""

    def said(**more):
        return " ".join(
            status_lines(body(workers=[worker(**{"saved_in_attempt": True, **more})]), unbilled=True, width=0)
        )

    assert "progress     the job prints no loss that tpuctl knows; job.progress" in said(loss=None)
    assert "prints neither step nor loss" in said(loss=None, step=None)
    early = {"loss": None, "step": None, "saved_in_attempt": False}
    for known in ({}, early, {"loss": None, "phase": "done"}):
        assert "progress  " not in said(**known)
