"""Options that exclude each other, and those that need another one: refused before anything is looked at."""

import pytest

from tests.cli.cli_kit import here

ALL = "status --all"
WATCH_ALL = "watch --all"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("adopt x --bucket --vm", "--bucket and --vm exclude each other"),
        ("checkpoints fetch --step 1 --uncommitted", "--step and --uncommitted exclude each other"),
        ("checkpoints fetch --step 0 --uncommitted", "--step and --uncommitted exclude each other"),
        ("checkpoints fetch --incarnation 1", "--incarnation goes with --uncommitted"),
        ("down mine --file x.yaml", "NAME and --file exclude each other"),
        ("down mine --set name=x", "NAME and --set exclude each other"),
        ("--set name=x down mine", "NAME and --set exclude each other"),
        ("init --recipe numpy-lm --all-settings", "--recipe and --all-settings exclude each other"),
        ("init --from x --all-settings", "--from and --all-settings exclude each other"),
        ("init --recipe numpy-lm --from x", "--recipe and --from exclude each other"),
        ("plan --offline --output p", "--output and --offline exclude each other"),
        ("report --live --output x", "--output and --live exclude each other"),
        ("report --port 80", "--port goes with --live"),
        ("report --port 0", "--port goes with --live"),
        ("cp --worker 1 --vm a :b", "--worker and --vm exclude each other"),
        ("exec --worker 0 --vm -- ls", "--worker and --vm exclude each other"),
        ("ssh --worker 0 --vm", "--worker and --vm exclude each other"),
        ("tunnel --worker 0 --vm 80", "--worker and --vm exclude each other"),
        ("logs --worker 0 --all-workers", "--worker and --all-workers exclude each other"),
        ("logs --worker 0 --events", "--worker and --events exclude each other"),
        ("rehearse --fault notice --random 3", "--fault and --random exclude each other"),
        ("ssh-config --write --remove", "--write and --remove exclude each other"),
        ("ssh-config --write --remove -o x", "--write, --remove and --output exclude each other"),
        ("up p --dry-run", "PLAN and --dry-run exclude each other"),
        ("up p --no-tpu", "PLAN and --no-tpu exclude each other"),
        ("up p --file x.yaml", "PLAN and --file exclude each other"),
        ("up p --set name=x", "PLAN and --set exclude each other"),
        (f"{ALL} mine", "--all and NAME exclude each other"),
        (f"{ALL} --file x.yaml", "--all and --file exclude each other"),
        (f"{ALL} --set name=x", "--all and --set exclude each other"),
        (f"{ALL} --wide", "--all and --wide exclude each other"),
        (f"{ALL} --fresh", "--all and --fresh exclude each other"),
        (f"{WATCH_ALL} mine", "--all and NAME exclude each other"),
        (f"{WATCH_ALL} --file x.yaml", "--all and --file exclude each other"),
        (f"{WATCH_ALL} --set name=x", "--all and --set exclude each other"),
        (f"{WATCH_ALL} --on-vm", "--all and --on-vm exclude each other"),
        (f"{WATCH_ALL} --metrics 9100", "--all and --metrics exclude each other"),
        ("watch mine --file x.yaml", "NAME and --file exclude each other"),
        ("watch --stop", "--stop goes with --on-vm"),
        ("fleet watch --stop", "--stop goes with --on-vm"),
    ],
)
def test_a_contradiction_is_one_error_and_changes_nothing(line, said, capsys, tmp_path, monkeypatch):
    """It names the words, says that nothing was changed, and what to run instead. No file is needed for that."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    code, _, err = here(capsys, *line.split())
    assert code == 2
    assert f"{said}\n" in err
    assert "nothing was changed" in err
    assert "next:" in err
    assert list(tmp_path.iterdir()) == []


def test_how_long_a_task_takes_is_for_a_dry_run(capsys, tmp_path):
    """The duration only tells the cost, so a real submission with it is a mistake."""
    job = tmp_path / "job.yaml"
    job.write_text("name: sweep\n")
    code, _, err = here(capsys, "fleet", "submit", str(job), "--takes", "30m")
    assert code == 2
    assert "--takes goes with --dry-run\n" in err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("plan --zone x", "see: tpuctl plan --help"),
        ("status --intervall 3", "see: tpuctl status --help"),
        ("status --ful", "see: tpuctl status --help"),
        ("status --folow", "did you mean --follow?"),
        ("logs --tial 3", "did you mean --tail?"),
        ("watch --lop", "see: tpuctl watch --help"),
        ("watch --hepl", "did you mean --help?"),
        ("checkpoints fetch --setp 3", "did you mean --set or --step?"),
    ],
)
def test_an_option_that_does_not_exist_is_answered_with_near_ones_of_the_command(line, hint, capsys):
    """By the rule for keys of the file; no far guess, and none that help does not show."""
    code, _, err = here(capsys, *line.split())
    command = line.partition(" --")[0]
    option = line.split()[len(command.split())]
    assert (code, f"TPU-101: `tpuctl {command}` has no option {option}\n" in err) == (2, True)
    assert f"next:  {hint}\n" in err
