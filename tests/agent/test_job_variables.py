"""The variables of a job: the page that lists them, and how they come into the values of `job.env`."""

import os
from pathlib import Path

import pytest

from orchestrator.contract.job_variables import VARIABLES, expand, expanded, unknown
from orchestrator.scripts.render import machine_scripts
from tests.agent.agent_lab import AgentLab
from tests.scripts.render_kit import a_job_spec, a_target
from tests.scripts.test_render import sourced

PAGE = Path(__file__).parents[2] / "docs" / "job-environment.md"
OWN = frozenset(
    f"TPUCTL_{name}"
    for name in (
        "AGENT", "CACHES", "COMMAND", "EXPAND", "EXPIRES_AT", "FAILURES", "HEARTBEAT_SECONDS", "JOB_DIGEST",
        "PROGRESS", "ROUND", "RUNS_JOB", "SAVE_INTERVAL", "SAVE_PAUSE", "SECRETS", "SETUP", "STALL_SECONDS",
        "WARM_START",
    )
)  # fmt: skip
"""Variables that the agent keeps for itself; everything else is described."""


def test_the_page_lists_each_variable_with_its_meaning() -> None:
    """The table of docs/job-environment.md is that of the code."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in VARIABLES.items()]
    table = "\n".join(["| variable | what it is |", "| --- | --- |", *rows, ""])
    text = PAGE.read_text()
    if os.environ.get("TPUCTL_UPDATE_GOLDEN") and table not in text:
        begin = text.index("| variable | what it is |")
        text = text[:begin] + table + text[text.index("\n\n", begin) + 1 :]
        PAGE.write_text(text)
    assert table in text


def test_a_job_gets_what_the_page_promises_and_nothing_unsaid(lab: AgentLab, tmp_path: Path) -> None:
    """All names of a rendered job.env and of a real job's environment are described or the agent's own."""
    rendered = sourced(machine_scripts(a_job_spec(), a_target(node="t", zone="z")).job_env, tmp_path)
    lab.machine(COMMAND='env | sed "s/=.*//" | sed "s/^/has /"').run_to_end()
    there = {line.removeprefix("has ") for line in lab.log().splitlines() if line.startswith("has ")}
    ours = {name for name in (*rendered, *there) if name.startswith("TPUCTL_")}

    assert ours - set(VARIABLES) - OWN == set()
    promised = {name for name in VARIABLES if name.startswith(("TPUCTL_", "PYTHON"))}
    assert promised - there - set(rendered) == set()


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("gs://$TPUCTL_BUCKET/runs", "gs://b/runs"),
        ("gs://${TPUCTL_BUCKET}x", "gs://bx"),
        ("$TPUCTL_BUCKETS", "$TPUCTL_BUCKETS"),
        ("$$TPUCTL_BUCKET", "$TPUCTL_BUCKET"),
        ("$$$TPUCTL_BUCKET $$", "$b $"),
        ("$HOME ${HOME} $5 $", "$HOME ${HOME} $5 $"),
        ("${TPUCTL_BUCKET:-x}", "${TPUCTL_BUCKET:-x}"),
        ("$TPUCTL_RESUME", ""),
        ("$ZONE", "$TPUCTL_BUCKET"),
    ],
)
def test_names_are_filled_in_once_and_nothing_else_happens(text: str, result: str) -> None:
    """No shell looks at the values; what is put in is not looked at again."""
    assert expand(text, {"TPUCTL_BUCKET": "b", "TPUCTL_RESUME": "", "ZONE": "$TPUCTL_BUCKET"}) == result


def test_only_values_of_the_deployment_file_are_filled_in() -> None:
    """Never a secret, and never a variable of tpuctl's own."""
    environ = {
        "A": "$ZONE",
        "B": "$ZONE",
        "ZONE": "z",
        "TPU_NAME": "$ZONE",
        "TPUCTL_EXPAND": "A TPU_NAME gone",
    }
    assert expanded(environ) == {**environ, "A": "z"}


def test_variable_names_that_are_not_filled_in_are_reported() -> None:
    """Each once; an escaped one is meant to stay."""
    assert unknown("$HOME/$ZONE/${HOME}/${USER}/$$LANG") == ("HOME", "USER")


def test_values_of_the_file_reach_the_job_filled_in(lab: AgentLab, tmp_path: Path) -> None:
    """From the deployment file over job.env to setup and job, with quotes and spaces as they were."""
    value = "gs://$TPUCTL_BUCKET/a b'c\"/$TPUCTL_ATTEMPT/$$HOME/$HOME/`id`"
    env = sourced(machine_scripts(a_job_spec(env={"PLACE": value}), a_target()).job_env, tmp_path)
    assert (env["PLACE"], env["TPUCTL_EXPAND"]) == (value, "PLACE")

    say = 'printf "<%s>\\n" "$PLACE"'
    lab.machine(COMMAND=say, SETUP=say, EXPAND="PLACE", _PLACE=env["PLACE"]).run_to_end()

    assert lab.log().count("<gs://lab-bucket/a b'c\"/1/$HOME/$HOME/`id`>") == 2


def test_the_idiom_of_the_page_gives_the_option_only_with_a_checkpoint(lab: AgentLab) -> None:
    """At the first start there is no option at all; after a resume it has the path, spaces and all."""
    (idiom,) = [line for line in PAGE.read_text().splitlines() if line.startswith("    python3 train.py")]
    command = idiom.strip().replace("python3 train.py", 'printf "[%s]"').replace("[%s]", "[%s]\\n")
    lab.machine(COMMAND=command).run_to_end()
    assert "--resume_from_checkpoint" not in lab.log()
    assert "[--output_dir]" in lab.log()
