"""Verdicts: when a rehearsal says that a job recovers, what it costs, and what it advises otherwise."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.advice.rehearsal.recovery import ResumeDefect
from orchestrator.advice.rehearsal.run import Fault, InjectedFault, ObservedRun, RunCheckpoint
from orchestrator.advice.rehearsal.same_bytes import FileDigest
from orchestrator.advice.rehearsal.verdict import Cause, RehearsalResult, judge, judge_crash
from orchestrator.cli.views.verdict import fitted, retained_lines, verdict_lines
from orchestrator.contract.phase import Phase
from orchestrator.domain.events import Event
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Outcome
from orchestrator.report.summary import summarise

T = 1_800_000_000.0
KILLED = InjectedFault(Fault.NO_NOTICE, 1, T + 15, step=60, committed=50)


def heartbeat(incarnation, step, resumed_from=None, **more):
    """Return the last heartbeat of an incarnation that trained."""
    timings = more.pop("timings", {"first_step": T + 10 * incarnation})
    known = {"loss": 2.5, "progress_from": "file", "timings": timings, "resumed_from": resumed_from, **more}
    return Heartbeat(incarnation, 0, Phase.RUN, T, step=step, **known)


def observed_run(heartbeats, faults=(KILLED,), **more):
    """Return a run that reached its end and reported its steps."""
    known = {"outcome": Outcome.DONE, "checkpoints": (RunCheckpoint(50, 1), RunCheckpoint(100, 2)), **more}
    known.setdefault("written", known["checkpoints"])
    steps = {b.step for b in heartbeats if b.step is not None}
    return ObservedRun(heartbeats=tuple(heartbeats), faults=tuple(faults), steps=frozenset(steps), **known)


WHOLE = observed_run([heartbeat(1, 100, loss=2.5)], faults=())
GOOD = [heartbeat(1, 60), heartbeat(2, 100, 50, began_step=51)]

OTHER_CAUSES = "the rest is of other causes, such as other work on this computer"


def verdict(heartbeats, faults=(KILLED,), undisturbed=WHOLE, missed=0, **more):
    """Judge with an undisturbed run of the same loss."""
    return judge(observed_run(heartbeats, faults, **more), undisturbed, missed)


def quiet(*heartbeats):
    """Return reports of a job that reports neither loss nor steps."""
    return [replace(one, loss=None, progress_from="commits") for one in heartbeats]


def test_a_job_that_goes_on_from_its_newest_checkpoint_recovers():
    """Step 50 was saved, step 60 reached: ten are redone, nothing is lost."""
    found = verdict(GOOD)
    assert found.result is RehearsalResult.PASS
    assert verdict_lines(found)[1] == "PASS: job recovered from 1 of 1 faults"
    assert (found.recoveries[0].steps_redone, found.recoveries[0].total_s) == (10, 5.0)
    assert found.hints == ()


def test_a_job_that_starts_again_though_it_had_saved_does_not_recover():
    """The checkpoint was there and the script did not read it."""
    found = verdict([heartbeat(1, 60), heartbeat(2, 100, 50, began_step=1)])
    assert found.result is RehearsalResult.FAIL
    assert found.recoveries[0].steps_redone == 59
    assert found.recoveries[0].ignored
    assert any("ignores its checkpoint" in text for text in found.hints)
    # It reports each twentieth step.
    rarely = verdict([heartbeat(1, 60), heartbeat(2, 100, 50, began_step=20, from_step=0)])
    assert (rarely.recoveries[0].resumed, rarely.recoveries[0].steps_redone) == (False, 60)


def test_a_job_that_goes_on_from_an_older_checkpoint_does_not_recover():
    """An older checkpoint means that a newer one was lost."""
    assert verdict([heartbeat(1, 60), heartbeat(2, 100, 25)]).recoveries[0].defect is ResumeDefect.OLDER


def test_a_job_that_had_saved_nothing_does_not_recover():
    """Training from the beginning again is not resuming."""
    fault = InjectedFault(Fault.NOTICE, 1, T + 15, step=60, committed=None)
    found = verdict([heartbeat(1, 60), heartbeat(2, 100)], (fault,))
    assert not found.survives
    assert found.hints == (
        "save earlier and more often: TPU #1 was lost before the first checkpoint was complete",
    )


def test_a_first_checkpoint_that_was_saved_at_the_notice_is_no_reason_to_save_earlier():
    """The notice came before the first commit, and the machine still saved step 60 in its last seconds."""
    fault = InjectedFault(Fault.NOTICE, 1, T + 15, step=60, committed=None)
    found = verdict(
        [heartbeat(1, 60), heartbeat(2, 100, 60)],
        (fault,),
        checkpoints=(RunCheckpoint(60, 1), RunCheckpoint(100, 2)),
    )
    assert found.survives
    assert found.hints == ()


def test_a_machine_that_made_no_step_is_no_recovery():
    """Killed again while it restored: only the machine after it counts."""
    heartbeats = [heartbeat(1, 60), heartbeat(2, None, timings={}), heartbeat(3, 100, 50)]
    checkpoints = (RunCheckpoint(50, 1),)
    assert verdict(heartbeats, checkpoints=checkpoints).survives
    assert not verdict(heartbeats[:2], checkpoints=checkpoints).survives


def test_another_loss_is_said_but_does_not_fail_the_rehearsal():
    """Many jobs do not promise the same loss; the user decides, and the verdict says where it comes from."""
    other = replace(WHOLE, heartbeats=(heartbeat(1, 100, loss=2.6),))
    found = verdict(GOOD, undisturbed=other)
    assert found.survives
    assert found.same_loss is False
    (text,) = found.hints
    assert all(word in text for word in ("data order", "RNG state", "step counters"))


def test_the_last_step_of_equal_loss_is_named():
    """Equal before the resume and different after it points at what the checkpoint lacks."""
    whole = replace(
        WHOLE, heartbeats=(heartbeat(1, 100, loss=2.6),), losses={1: ((40, 4.0), (50, 3.0), (60, 2.9))}
    )
    found = verdict(GOOD, undisturbed=whole, losses={1: ((40, 4.0), (50, 3.0)), 2: ((60, 2.7),)})
    assert found.causes == (Cause.DIFFERENT,)
    assert "the same up to step 50" in found.hints[0]


def test_a_job_that_differs_before_any_fault_does_not_repeat_itself():
    """Then resuming is not to blame."""
    whole = replace(WHOLE, heartbeats=(heartbeat(1, 100, loss=2.6),), losses={1: ((40, 4.1), (60, 2.9))})
    found = verdict(GOOD, undisturbed=whole, losses={1: ((40, 4.0),), 2: ((60, 2.7),)})
    assert found.causes == (Cause.UNSTEADY,)


def test_without_an_undisturbed_run_nothing_is_said_about_loss_and_bytes():
    """No comparison, no claim."""
    found = verdict(GOOD, undisturbed=None)
    assert (found.same_loss, found.same_bytes, found.longer_s) == (None, None, None)
    assert any("weaker: nothing to compare; it came back 1 of 1 times" in t for t in verdict_lines(found))


def test_a_job_that_ends_before_its_next_step_is_observed_has_resumed():
    """Its last save says so: a short job may report nothing between restore and end."""
    after = Heartbeat(2, 0, Phase.DONE, T, resumed_from=50, committed_step=100)
    assert verdict([heartbeat(1, 60), after], undisturbed=None).survives
    idle = Heartbeat(2, 0, Phase.DONE, T, resumed_from=50, committed_step=50)
    assert not verdict(
        [heartbeat(1, 60), idle], undisturbed=None, checkpoints=(RunCheckpoint(50, 1),)
    ).survives


def test_faults_that_were_not_injected_prove_nothing():
    """The verdict says that a job is too short, and not that it recovers."""
    found = verdict(GOOD, missed=1)
    assert found.result is RehearsalResult.INCONCLUSIVE
    assert "let it run longer" in found.hints[0]
    assert verdict_lines(found)[1] == "INCONCLUSIVE: the job ended after 1 of 2 faults"


def test_a_job_that_shows_neither_steps_nor_checkpoints_is_reported_as_that():
    """More steps would not help where neither steps nor checkpoints are observed."""
    heartbeats = quiet(
        heartbeat(1, None, timings={}), replace(heartbeat(2, None, timings={}), phase=Phase.DONE)
    )
    for missed, faults in ((1, ()), (0, (InjectedFault(Fault.NO_NOTICE, 1, T, None, None),))):
        found = verdict(heartbeats, faults, checkpoints=(), missed=missed)
        assert found.result is RehearsalResult.INCONCLUSIVE
        assert "tpuctl saw no step and no checkpoint of this job" in verdict_lines(found)[1]
        (text,) = found.hints
        assert "job.checkpoint.format" in text
        assert "job.progress" in text
        assert "longer" not in text


def test_nothing_is_claimed_of_steps_where_only_checkpoints_are_observed():
    """The newest save against itself would always be 0 steps redone."""
    heartbeats = quiet(heartbeat(1, 50), heartbeat(2, 100, 50))
    found = verdict(heartbeats, (InjectedFault(Fault.NO_NOTICE, 1, T + 15, step=50, committed=50),))
    assert found.survives
    assert (found.recoveries[0].steps_redone, found.recoveries[0].total_s) == (None, None)
    assert not any("redone" in line for line in verdict_lines(found))


def test_a_warm_start_says_what_it_saved_against_the_first_machine():
    """Unpacking is part of its time; a machine to which nothing came back says nothing."""
    cold = {"setup_began": T, "setup_done": T + 80, "spawned": T + 81, "first_step": T + 91}
    warm = {
        "unpack_began": T + 1, "unpacked": T + 5, "setup_began": T + 5, "setup_done": T + 7, "spawned": T + 8,
        "first_step": T + 10,
    }  # fmt: skip
    found = verdict([heartbeat(1, 60, timings=cold), heartbeat(2, 100, 50, timings=warm)])
    assert found.recoveries[0].warm_saved_s == 82
    assert found.recoveries[0].parts_s["unpack"] == 4
    line = "  setup and first step, against the first machine, which had no packages yet: no-notice 82.0 s shorter"
    assert line in verdict_lines(found)
    anew = verdict([heartbeat(1, 60, timings=cold), heartbeat(2, 100, 50, timings=cold)])
    assert anew.recoveries[0].warm_saved_s is None


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (80, "10 s: recoveries and steps redone took 10 s"),
        (123, f"53 s: recoveries and steps redone took 10 s, {OTHER_CAUSES}"),
    ],
)
def test_the_verdict_names_what_the_faults_took_of_the_longer_time(ended, said):
    """5 s until the next step, and 10 steps redone at the half second of the undisturbed run; "vm" took nothing."""
    marks = {"boot": T, "first_step": T + 10}
    whole = replace(WHOLE, heartbeats=(replace(heartbeat(1, 120, timings=marks), updated=T + 70),))
    heartbeats = [
        heartbeat(1, 60, timings=marks),
        replace(heartbeat(2, 120, 50, began_step=51), updated=T + ended),
    ]
    faults = (KILLED, InjectedFault(Fault.VM, 2, T + 30, step=70, committed=50))
    lines = verdict_lines(verdict(heartbeats, faults, undisturbed=whole))
    assert f"  longer than the undisturbed run by {said}" in lines
    assert lines[-1] == "  next:  tpuctl up"
    # Both lead to the same next step, so the job waited once.
    twice = verdict(heartbeats, (KILLED, replace(KILLED, at=T + 17)), undisturbed=whole)
    assert (twice.faults_s, twice.recoveries[1].total_s) == (5.0 + 20 * 0.5, 3.0)


def test_only_a_job_that_recovers_is_sent_to_up():
    """Any other has something to do first."""
    assert "  next:  tpuctl up" not in verdict_lines(verdict(GOOD, missed=1))


def test_setup_is_a_part_of_its_own_of_what_a_recovery_cost():
    """The 78 seconds of an install are not the restore of three bytes."""
    marks = {
        "boot": T + 17, "setup_began": T + 18, "setup_done": T + 96, "restore_began": T + 18,
        "restored": T + 18.5, "spawned": T + 97, "first_step": T + 99,
    }  # fmt: skip
    found = verdict([heartbeat(1, 60), heartbeat(2, 100, 50, timings=marks)])
    assert found.recoveries[0].parts_s == {"machine": 2.0, "setup": 78.0, "restore": 0.0, "first step": 3.0}
    row = next(line for line in verdict_lines(found) if line.startswith("    no-notice"))
    assert row.split() == ["no-notice", "2.0", "-", "78.0", "0.0", "3.0"]


@pytest.mark.parametrize(("restored", "wait"), [(18.5, 0.0), (100.5, 4.5)], ids=["beside setup", "after it"])
def test_the_tables_of_watch_and_rehearse_divide_one_recovery_alike(restored, wait):
    """Only what the checkpoint takes beyond code, packages and setup is a wait for it; then the job is started."""
    marks = {
        "boot": T + 17, "restore_began": T + 17.8, "fetched": T + 18, "unpack_began": T + 18,
        "unpacked": T + 20, "setup_began": T + 20, "setup_done": T + 96, "restored": T + restored,
        "spawned": T + 101, "first_step": T + 103,
    }  # fmt: skip
    before, after = heartbeat(1, 60), heartbeat(2, 100, 50, timings=marks)
    events = [Event(T + 16, "tpu-create", "", {"incarnation": 2})]
    (shown,) = summarise(
        [before, after], events, preemptions=1, wall=200, usd=1.0, on_demand_usd=3.0
    ).recoveries
    (rehearsed,) = verdict([before, after]).recoveries
    watch = {name: shown.parts_s[name] for name in ("unpack", "setup", "restore", "compile")}
    assert [*watch.values()] == [2.0, 76.0, wait, 7.0 - wait]
    assert [rehearsed.parts_s[name] for name in ("unpack", "setup", "restore", "first step")] == [
        *watch.values()
    ]


def test_the_recovery_table_names_its_parts_as_that_of_watch_does():
    """Both stand below each other, and their totals differ: the legend says why."""
    found = verdict([heartbeat(1, 60), heartbeat(2, 100, 50, timings={"boot": T + 17, "first_step": T + 20})])
    lines = verdict_lines(found)
    at = next(number for number, line in enumerate(lines) if line.startswith("  recovery, s"))
    assert lines[at].split()[2:] == ["machine", "packages", "setup", "restore", "first", "step"]
    assert (
        lines[at + 2]
        .strip()
        .startswith("counted from the fault; the table of `watch` counts from the last report")
    )


SAVED_AGAIN = (
    RunCheckpoint(10, 1),
    RunCheckpoint(60, 1),
    RunCheckpoint(30, 2),
    RunCheckpoint(40, 2),
    RunCheckpoint(70, 2),
)


def test_a_job_that_counts_its_steps_from_0_again_is_reported():
    """It resumed at 60, but its next saves are 30 and 40: no save of a fresh start."""
    heartbeats = quiet(heartbeat(1, 60), heartbeat(2, 70, 60))
    fault = InjectedFault(Fault.NO_NOTICE, 1, T + 15, step=60, committed=60)
    found = verdict(heartbeats, (fault,), written=SAVED_AGAIN)
    assert found.result is RehearsalResult.FAIL
    assert found.recoveries[0].defect is ResumeDefect.COUNTS_AGAIN
    assert found.recoveries[0].message == "step 60 was restored, but its next saves are 30, 40"
    assert any("your script restarts its step count after a resume" in text for text in found.hints)


@pytest.mark.parametrize(("loss", "defect"), [(2.0, ResumeDefect.COUNTS_AGAIN), (9.0, ResumeDefect.IGNORED)])
def test_losses_distinguish_a_counter_from_an_ignored_checkpoint(loss, defect):
    """At step 5 again: with the loss of the end the model was read, with that of the beginning it was not."""
    curves = {1: ((5, 9.0), (60, 2.1)), 2: ((5, loss),)}
    found = verdict([heartbeat(1, 60), heartbeat(2, 100, 50, began_step=1)], losses=curves)
    assert found.recoveries[0].defect is defect


def test_saves_that_are_observed_late_do_not_blame_the_counter():
    """The newest is committed before a look finds the others on disk; the script has just begun again."""
    written = (
        RunCheckpoint(15, 1),
        RunCheckpoint(5, 1),
        RunCheckpoint(10, 1),
        RunCheckpoint(5, 2),
        RunCheckpoint(10, 2),
    )
    heartbeats = [heartbeat(1, 39, loss=0.03), heartbeat(2, 60, 15, loss=0.02, began_step=1)]
    found = verdict(
        heartbeats, (InjectedFault(Fault.NO_NOTICE, 1, T + 15, 39, 15),), undisturbed=None, written=written
    )
    assert found.recoveries[0].defect is ResumeDefect.IGNORED


def test_a_script_that_ignores_its_checkpoint_saves_as_at_its_first_start():
    """The last machine repeats all saves to the end; the one before it is explained by that."""
    faults = (InjectedFault(Fault.NO_NOTICE, 1, T, 8, 8), InjectedFault(Fault.NO_NOTICE, 2, T + 20, 16, 16))
    heartbeats = quiet(heartbeat(1, 8), heartbeat(2, 16, 8), heartbeat(3, 24, 16))
    written = tuple(
        RunCheckpoint(n, i) for i, last in ((1, 8), (2, 16), (3, 24)) for n in range(4, last + 1, 4)
    )
    whole = replace(WHOLE, written=tuple(RunCheckpoint(n, 1) for n in range(4, 25, 4)))
    found = judge(observed_run(heartbeats, faults, written=written), whole)
    assert [c.defect for c in found.recoveries] == [ResumeDefect.IGNORED, ResumeDefect.IGNORED]
    assert found.causes == (Cause.IGNORED,)


def test_equal_bytes_are_as_strong_as_an_equal_loss():
    """A job without a loss is compared by its last checkpoint."""
    digests = {100: {"w0/w.npz": FileDigest("a" * 64)}}
    whole = replace(WHOLE, heartbeats=tuple(quiet(heartbeat(1, 100))), digests=digests)
    found = verdict(quiet(*GOOD), undisturbed=whole, digests=digests)
    assert found.same_bytes
    assert not any("weaker" in line for line in verdict_lines(found))
    other = verdict(quiet(*GOOD), undisturbed=whole, digests={100: {"w0/w.npz": FileDigest("b" * 64)}})
    assert other.survives
    assert other.same_bytes is False
    assert other.causes == (Cause.DIFFERENT,)
    assert any("DIFFERENT in 1 of 1 files" in line for line in verdict_lines(other))


def test_a_job_that_fails_undisturbed_is_shown_with_its_last_lines():
    """The cause, not a verdict about faults that were never injected."""
    failed = replace(heartbeat(1, None, timings={}), phase=Phase.FAILED, exit_code=1)
    whole = observed_run(
        [failed], (), outcome=Outcome.FAILED, checkpoints=(), log=("Traceback", "FileNotFoundError: x")
    )
    found = judge_crash(whole)
    lines = verdict_lines(found)
    assert lines[1] == "FAIL: the job fails with no fault injected: exit status 1"
    assert lines[3:5] == ["    | Traceback", "    | FileNotFoundError: x"]
    assert not any("longer than" in line or "torn" in line for line in lines)
    assert json.loads(json.dumps(found.as_dict()))["failure"]["log"][1] == "FileNotFoundError: x"


def test_a_job_that_ends_with_0_before_its_target_hears_why():
    """Keras deletes its backup at the end of fit(): nothing to resume, no end."""
    failed = replace(heartbeat(1, 14), phase=Phase.FAILED, exit_code=0)
    found = judge_crash(observed_run([failed], (), outcome=Outcome.FAILED))
    assert found.causes == (Cause.EARLY,)
    assert "delete_checkpoint=False" in found.hints[0]


def test_a_job_whose_saves_no_format_reads_is_reported_at_once():
    """It ended with status 0, and nothing that a TPU could resume from is in the bucket."""
    ended = replace(heartbeat(1, 20, timings={}), phase=Phase.UNCOMMITTED, exit_code=0)
    found = judge_crash(
        observed_run(
            [ended], (), outcome=Outcome.UNCOMMITTED, checkpoints=(), message="latest.npz lies there"
        )
    )
    assert verdict_lines(found)[1:3] == [
        "FAIL: the job fails with no fault injected: no checkpoint was saved",
        "  cause      latest.npz lies there",
    ]
    assert found.causes == (Cause.UNCOMMITTED,)


def test_a_job_that_fails_under_faults_shows_its_lines_too():
    """It came back and then crashed: not done, whatever it resumed."""
    failed = replace(heartbeat(2, 70, 50), phase=Phase.FAILED, exit_code=3)
    found = verdict([heartbeat(1, 60), failed], outcome=Outcome.FAILED, log=("boom",))
    assert found.result is RehearsalResult.FAIL
    assert verdict_lines(found)[1] == "FAIL: the job did not reach its end: exit status 3"
    assert "    | boom" in verdict_lines(found)
    assert found.longer_s is None


def test_the_commands_for_a_retained_cloud_can_be_pasted_into_another_shell():
    """Variables are exported, paths are quoted, and a command ends it."""
    lines = retained_lines(Path("/tmp/a b/cloud"), Path("/home/me"), ("job.env.X=1 2",))
    pasted = [line.strip() for line in lines if line.startswith("  ")]
    assert pasted == [
        "cd /home/me",
        "export TPUCTL_CLOUD=local TPUCTL_LOCAL_DIR='/tmp/a b/cloud'",
        "tpuctl logs --set 'job.env.X=1 2'",
        "TPUCTL_LOCAL_DIR='/tmp/a b/cloud' tpuctl local reset; rmdir '/tmp/a b'",
    ]


def test_no_line_of_the_verdict_is_broken_in_a_word():
    """What goes on is indented; a file gets each line whole."""
    (line,) = [one for one in verdict_lines(verdict(GOOD)) if "resumed" in one]
    long = f"{line}, and so many more words that no terminal of eighty columns has room for them"
    first, *rest = fitted([long], 80)
    assert len(first) <= 80
    assert all(part.startswith("    ") and len(part) <= 80 for part in rest)
    assert " ".join([first, *(part.strip() for part in rest)]) == long
    assert fitted([long], 0) == [long]
