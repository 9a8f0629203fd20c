"""Cron on the machines: the small cron of `process`, the real one of `namespace`."""

import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from orchestrator.emulator.machines import cron, namespace
from orchestrator.emulator.machines.namespace import NamespaceMachines, available
from orchestrator.emulator.machines.process import ProcessMachines
from tests.emulator.machines_lab import lab
from tests.kit.waiting import until


def two_minutes(it, folder):
    """Wait until two more minutes of the machine's cron have begun, shown by an entry of its own."""
    ticks = folder / "ticks"
    ticks.write_text("")
    (it.folder / "etc/cron.d/ticks").write_text(f"* * * * * root echo >> {ticks}\n")
    until(lambda: len(ticks.read_text()) >= 2, "two minutes of cron", 90)


def test_a_cron_entry_under_flock_runs_once_at_a_time(tmp_path):
    """The entry starts again in each minute, and the lock keeps a second job from starting."""
    with lab(ProcessMachines, tmp_path) as it:
        it.boot()
        out = tmp_path / "out"
        entry = (
            f"* * * * * root flock -n {tmp_path}/lock sh -c "
            f"'echo $HOME $TPUCTL_ROOT $(date +\\%s.\\%N) >> {out}; sleep 2.5'\n"
        )
        (it.folder / "etc/cron.d/tpuctl").write_text(entry)
        until(lambda: out.exists() and len(out.read_text().splitlines()) >= 2, "two runs of the entry", 90)
        (it.folder / "etc/cron.d/tpuctl").unlink()
        lines = [line.split() for line in out.read_text().splitlines()]
        assert lines[0][:2] == [f"{it.folder}/home/root", f"{it.folder}/opt/tpuctl"]
        assert float(lines[1][2]) - float(lines[0][2]) > 2.4
        two_minutes(it, tmp_path)
        subprocess.run(["flock", tmp_path / "lock", "true"], check=True, timeout=60)  # the last one has ended
        settled = out.read_text()
        two_minutes(it, tmp_path)
        assert out.read_text() == settled


def test_a_broken_crontab_is_reported_once_and_runs_nothing(tmp_path):
    """As with Debian's cron, one bad line refuses the whole file."""
    with lab(ProcessMachines, tmp_path) as it:
        it.boot()
        (it.folder / "etc/cron.d/tpuctl").write_text(
            f"* * * * * root touch {tmp_path}/ran\n61 * * * * root true\n"
        )
        until(lambda: "cron: Error:" in it.serial(), "the error", 90)
        two_minutes(it, tmp_path)
        assert it.serial().count("cron: Error:") == 1
        assert not (tmp_path / "ran").exists()


@pytest.mark.namespace
@pytest.mark.slow_cron
def test_the_real_cron_runs_the_entry_under_flock(tmp_path):
    """Debian's cron starts the job of /etc/cron.d within a minute, as root, with the machine's environment."""
    if reason := available(tmp_path):
        pytest.skip(reason)
    entry = "* * * * * root flock -n /run/lock-job env > /opt/tpuctl/ran"
    script = f'mkdir -p "$TPUCTL_ROOT"; echo "{entry}" > /etc/cron.d/tpuctl'
    with lab(NamespaceMachines, tmp_path, **{"startup-script": script}) as it:
        it.boot()
        ran = it.folder / "disk/upper/opt/tpuctl/ran"
        until(lambda: ran.exists() and "XLA_FLAGS" in ran.read_text(), "the real cron's first run", 150)
        shown = dict(line.partition("=")[::2] for line in ran.read_text().splitlines())
        assert shown["HOME"] == "/root"
        assert shown["TPUCTL_ROOT"] == "/opt/tpuctl"
        assert shown["STORAGE_EMULATOR_HOST"] == it.machines.settings.endpoint
        assert shown["GCE_METADATA_HOST"].startswith(it.machine.address)


@pytest.mark.namespace
def test_the_computers_own_cron_jobs_do_not_run_on_the_machine(tmp_path):
    """A namespace machine starts with empty crontabs, and what it writes stays its own."""
    if reason := available(tmp_path):
        pytest.skip(reason)
    with lab(NamespaceMachines, tmp_path) as it:
        it.boot()
        assert (
            it.output(
                "ls /etc/cron.d; ls /etc/crontab 2>/dev/null || true; pgrep -x cron >/dev/null && echo up"
            )
            == "up"
        )
        it.output("echo '# mine' > /etc/cron.d/only-on-the-machine")
        assert not Path("/etc/cron.d/only-on-the-machine").exists()


@pytest.mark.namespace
def test_a_machine_disk_that_is_full_says_so_and_harms_nothing_else(tmp_path):
    """The limit of the disk holds, and survives a reboot with what fits on it."""
    if reason := available(tmp_path):
        pytest.skip(reason)
    with lab(NamespaceMachines, tmp_path, kind="vm", disk_bytes=64 << 20) as it:
        it.boot()
        refused = it.run("echo small > /opt/kept; dd if=/dev/zero of=/opt/big bs=1M count=100")
        assert refused.exit_status != 0
        assert "No space left on device" in str(refused.stderr)
        it.output("rm /opt/big")
        it.machines.stop(it.machine.id)
        it.boot()
        assert it.output("cat /opt/kept") == "small"


@pytest.mark.namespace
def test_a_machine_cannot_read_the_users_own_secrets(tmp_path):
    """Home folders of the computer, and so gcloud's credentials and SSH keys, are empty on the machine."""
    if reason := available(tmp_path):
        pytest.skip(reason)
    needed = {Path(folder).parts[2] for folder in namespace._needed() if folder.startswith("/root/")}
    own = {path.name for path in Path("/root").iterdir()} - needed
    with lab(NamespaceMachines, tmp_path) as it:
        it.boot()
        assert not own & set(it.output("ls -A /root").split())
        assert it.output("test -e ~/.config/gcloud || echo none") == "none"


@pytest.mark.parametrize(
    ("schedule", "minute", "due"),
    [
        ("* * * * *", "2026-11-21 10:07", True),
        ("*/5 * * * *", "2026-11-21 10:05", True),
        ("*/5 * * * *", "2026-11-21 10:07", False),
        ("0 4 * * 1-5", "2026-11-23 04:00", True),
        ("0 4 * * 1-5", "2026-11-22 04:00", False),
        ("0 0 1 jan *", "2027-01-01 00:00", True),
    ],
)
def test_a_job_is_due_in_the_minutes_its_fields_name(schedule, minute, due):
    """Fields follow crontab(5)."""
    job = cron.parse(f"{schedule} root true\n")[0]
    assert job.due(datetime.fromisoformat(minute)) is due


def test_assignments_nicknames_comments_and_percent_signs():
    """Assignments hold for the lines below them; a bare percent sign starts standard input."""
    text = "# about\nSHELL=/bin/bash\nA = 'b c'\n@hourly root one\nA=d\n@reboot ada two%in\\%put%more\n"
    one, two = cron.parse(text)
    assert (one.schedule, one.user, one.environment) == (
        "0 * * * *",
        "root",
        {"SHELL": "/bin/bash", "A": "b c"},
    )
    assert two.environment["A"] == "d"
    assert two.command_and_input() == ("two", b"in%put\nmore\n")
    assert not two.due(datetime.fromisoformat("2026-01-01"))


@pytest.mark.parametrize(
    "text", ["* * * * * root true", "* * * * * root\n", "61 * * * * root true\n", "@often root x\n"]
)
def test_a_file_that_cron_would_refuse_is_refused(text):
    """No newline at the end, no command, a minute that does not exist, an unknown nickname."""
    with pytest.raises(ValueError, match=r".+"):
        cron.parse(text)


def test_only_file_names_that_debian_accepts_are_read(tmp_path):
    """Backups and hidden files in cron.d are not crontabs."""
    for name in ("tpuctl", "tpuctl.bak", ".placeholder", "tpuctl~"):
        (tmp_path / name).write_text(f"* * * * * root {name}\n")
    jobs, errors = cron.read_folder(tmp_path)
    assert ([job.command for job in jobs], errors) == (["tpuctl"], [])
