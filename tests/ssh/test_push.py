"""A push is all or nothing, sends nothing twice, and ends within its bound."""

import os
import shutil
import time
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.domain.remote_script import RemoteScript
from orchestrator.errors import RemoteError
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.remote import Ssh
from orchestrator.ssh.transfer import upload
from tests.kit.waiting import until


def test_a_push_puts_the_tree_under_its_digest_and_switches_current(any_machine, ssh, bundle_of):
    """The new tree is complete, `current` is a relative link to it, and no temporary file is left."""
    bundle, digest = bundle_of("print(1)", ballast=300_000)
    (result,) = ssh.push([any_machine.host], bundle, digest, "/nowhere")
    assert (result.error, result.sent_bytes) == ("", bundle.stat().st_size)
    assert any_machine.tree() == "print(1)"
    assert (any_machine.root / "current").readlink() == Path("bundle") / digest
    assert (any_machine.root / "current" / ".tpuctl-bundle").read_text().strip() == digest
    assert any_machine.leftovers() == []


def test_a_push_without_changes_sends_no_byte(any_machine, ssh, bundle_of):
    """A machine that has the bundle answers so."""
    bundle, digest = bundle_of("print(1)")
    ssh.push([any_machine.host], bundle, digest, "/nowhere")
    (again,) = ssh.push([any_machine.host], bundle, digest, "/nowhere")
    assert (again.error, again.sent_bytes) == ("", 0)


def test_a_login_script_that_talks_does_not_confuse_a_push(machine, ssh, bundle_of):
    """The answers are found among other lines, and words on the error stream are no failure."""
    bundle, digest = bundle_of("print(1)", ballast=600_000)
    machine.greeting = "echo welcome; echo send; echo no locale >&2; "
    (result,) = ssh.push([machine.host], bundle, digest, "/nowhere")
    assert (result.error, result.sent_bytes, machine.tree()) == ("", bundle.stat().st_size, "print(1)")


@pytest.mark.parametrize("first", [b"", b"tpuctl-have\n"])
def test_a_machine_that_talks_without_end_is_cut_off(first, monkeypatch):
    """Else it would fill the memory of the computer that watches it; before its answer and after it."""
    monkeypatch.setattr(
        upload, "read", lambda connection, channel: chain([first or b"x"], repeat(b"x" * (1 << 16)))
    )
    connection = SimpleNamespace(
        host=SimpleNamespace(name="w0", address="10.0.0.2"), settings=SimpleNamespace(push=900.0),
        execute=lambda command: None,
    )  # fmt: skip
    with pytest.raises(RemoteError, match="printed more than 1 MiB"):
        upload._push(connection, b"", "0" * 64, "/r", upload.UploadProgress())


def test_going_back_to_an_older_bundle_sends_no_byte_and_switches(machine, ssh, bundle_of):
    """`current` follows the digest that was asked for."""
    old, new = bundle_of("old"), bundle_of("new")
    for bundle, digest in (old, new):
        ssh.push([machine.host], bundle, digest, "/nowhere")
    assert machine.tree() == "new"
    (back,) = ssh.push([machine.host], *old, "/nowhere")
    assert (back.sent_bytes, machine.tree()) == (0, "old")


def test_a_wrong_digest_leaves_the_old_tree_and_says_so(any_machine, ssh, bundle_of):
    """Bytes that are not those announced never become a tree."""
    ssh.push([any_machine.host], *bundle_of("old"), "/nowhere")
    bundle, _ = bundle_of("new")
    (result,) = ssh.push([any_machine.host], bundle, "0" * 64, "/nowhere")
    assert "arrived cut or changed" in result.error
    assert "unchanged" in result.error
    assert (any_machine.tree(), any_machine.leftovers()) == ("old", [])
    assert not (any_machine.root / "bundle" / ("0" * 64)).exists()


@pytest.mark.parametrize("action", ["close", "reset"])
def test_a_push_cut_at_any_byte_leaves_the_old_tree_or_the_new(action, openssh, ssh, bundle_of, relay):
    """Cuts at the first and last bytes and between them: never a mix, one error, and the next push repairs all."""
    machine = openssh
    old, new = bundle_of("old"), bundle_of("new", ballast=400_000)
    ssh.push([machine.host], *new, "/nowhere")
    counting, through = relay(machine)
    _remove(machine.root / "bundle" / new[1])
    ssh.push([through], *new, "/nowhere")
    size = new[0].stat().st_size
    total = counting.forwarded
    first = total - size
    for offset in (first - 900, first, first + 1, total - size // 2, total - 600, total - 40, total - 1):
        ssh.push([machine.host], *old, "/nowhere")
        _remove(machine.root / "bundle" / new[1])
        _, cut = relay(machine, offset, action)
        (result,) = ssh.push([cut], *new, "/nowhere")
        _settle(machine)
        assert machine.tree() in ("old", "new"), offset
        assert result.error or machine.tree() == "new", offset
        assert machine.tree() == "old" or (machine.root / "current" / "ballast.bin").stat().st_size == 400_000
        (repaired,) = ssh.push([machine.host], *new, "/nowhere")
        assert (repaired.error, machine.tree(), machine.leftovers()) == ("", "new", []), offset


def test_a_link_that_swallows_everything_is_given_up_within_the_stall_time(
    any_machine, settings, bundle_of, relay
):
    """Data sent into a dead link looks like success; the missing answers end it."""
    bundle = bundle_of("new", ballast=3_000_000)
    _, hole = relay(any_machine, 500_000, "hole")
    start = time.monotonic()
    (result,) = Ssh(replace(settings, stall=1.0)).push([hole], *bundle, "/nowhere")
    assert time.monotonic() - start < 60
    assert "no answer for 1 s" in result.error
    assert any_machine.tree() == ""


def test_a_full_disk_leaves_the_old_tree_and_names_the_cause(small_disk, servers, key, ssh, bundle_of):
    """The machine's own words reach the user."""
    machine = servers.start("demo-tpu-g1", small_disk, key.public)
    ssh.push([machine.host], *bundle_of("old"), "/nowhere")
    (result,) = ssh.push([machine.host], *bundle_of("new", ballast=4_000_000), "/nowhere")
    assert "No space left on device" in result.error
    assert (machine.tree(), machine.leftovers()) == ("old", [])
    machine.stop()


def test_leftovers_of_a_killed_push_are_removed_by_the_next_one(machine, ssh, bundle_of):
    """Temporary files of dead pushes go; the agent's own work in the same folder stays."""
    bundle = machine.root / "bundle"
    bundle.mkdir()
    (bundle / ".tmp-abc.4194000").write_text("half")
    (bundle / ".tmp-dir-abc.4194000").mkdir()
    (bundle / ".tmp-abc").mkdir()
    ssh.push([machine.host], *bundle_of("new"), "/nowhere")
    assert machine.leftovers() == [".tmp-abc"]


def test_four_machines_get_the_bundle_and_one_failure_stays_one(servers, tmp_path, key, ssh, bundle_of):
    """A machine that is down has its own error; the others are done, in the order they were given."""
    machines = [servers.start(f"demo-tpu-g1-w{n}", tmp_path / f"m{n}", key.public) for n in range(4)]
    gone = replace(machines[2].host, port=1)
    hosts = [machines[0].host, machines[1].host, gone, machines[3].host]
    results = ssh.push(hosts, *bundle_of("new"), "/nowhere")
    assert [result.host for result in results] == [host.name for host in hosts]
    assert [bool(result.error) for result in results] == [False, False, True, False]
    assert [machine.tree() for machine in machines] == ["new", "new", "", "new"]
    for machine in machines:
        machine.stop()


def test_the_machines_root_wins_over_the_one_asked_for(machine, ssh, bundle_of, tmp_path):
    """A machine of the local cloud names its folder by TPUCTL_ROOT."""
    ssh.push([machine.host], *bundle_of("new"), str(tmp_path / "never"))
    assert machine.tree() == "new"
    assert not (tmp_path / "never").exists()


def test_a_put_file_is_whole_has_its_mode_and_leaves_nothing_else(any_machine, ssh):
    """The agent arrives byte by byte the same, NULs included."""
    data = os.urandom(100_000)
    ssh.put([any_machine.host], data, "state/it's an agent.pyz", 0o700)
    target = any_machine.root / "state" / "it's an agent.pyz"
    assert target.read_bytes() == data
    assert target.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_an_elevated_script_gets_the_machine_folder(any_machine, ssh):
    """Its `$1` is the folder that the machine names."""
    (result,) = ssh.run_elevated([any_machine.host], RemoteScript("probe", 'cd "$1" && pwd'), 20)
    assert (result.exit_code, result.stdout) == (0, f"{any_machine.root}\n")


def test_a_startup_script_above_the_limit_of_an_argument_runs_with_the_folder(any_machine, ssh):
    """An adopted machine runs it over SSH; a boot gets it as metadata, which may have 256 KiB."""
    text = "#!/bin/bash\n" + f"# {'x' * 100}\n" * 2000 + 'echo "$TPUCTL_ROOT"\nexit 7\n'
    ssh.put([any_machine.host], text.encode(), "startup", 0o700)
    (result,) = ssh.run_elevated([any_machine.host], remote_script("run-startup"), 20)
    assert (result.exit_code, result.stdout) == (7, f"{any_machine.root}\n"), result.stderr


def test_a_login_without_rights_uses_sudo(machine, ssh, bundle_of, tmp_path):
    """Where the folder cannot be made, the same script runs through `sudo -n`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sudo").write_text(
        f'#!/bin/bash\n[ "$1" = -n ] || exit 9\nshift\nrm {machine.root}/bundle\nexec "$@"\n'
    )
    (tools / "sudo").chmod(0o755)
    (machine.root / "bundle").write_text("a file in the way stands for missing rights")
    command = f"PATH={tools}:$PATH; export PATH; "
    script = RemoteScript("probe", 'mkdir -p "$1/bundle"; echo "$0 $1 $2"', ("a b",))
    (result,) = ssh.run([machine.host], command + elevated(script, "/nowhere"), 10)
    assert (result.exit_code, result.stdout) == (0, f"tpuctl-probe {machine.root} a b\n")


def test_a_login_without_rights_and_without_sudo_is_refused_with_the_folder(machine, ssh):
    """The error names the folder."""
    (machine.root / "bundle").write_text("in the way")
    hide = "command() { return 1; }; export -f command; "
    (result,) = ssh.run([machine.host], hide + elevated(RemoteScript("probe", "true"), "/nowhere"), 10)
    assert result.exit_code == 77
    assert str(machine.root) in result.stderr


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _settle(machine) -> None:
    """Wait until the cut script has cleaned up after itself."""
    until(lambda: not machine.leftovers(), "the cut script's end", 60, 0.02, machine.leftovers)
