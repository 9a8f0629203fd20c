"""We talk to the machine we made and to no other, with one key and nothing of the user's SSH set-up."""

import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

import orchestrator
from orchestrator.errors import HostKeyError, Retry, UsageError
from orchestrator.ssh.connect import pinned_keys
from orchestrator.ssh.keys import ensure_key, forget_key


def fresh_pin(kind="ssh-ed25519"):
    """Return a host key that no machine has."""
    return asyncssh.generate_private_key(kind).export_public_key().decode().strip()


def test_a_machine_without_a_published_key_is_refused(machine, ssh):
    """Missing guest attributes never mean "trust it"."""
    with pytest.raises(HostKeyError, match="demo-tpu-g1") as caught:
        ssh.run([replace(machine.host, host_keys=())], "echo hi", 20)
    assert machine.commands == []
    assert caught.value.hint
    assert caught.value.changed


def test_another_key_than_the_pinned_one_is_refused(any_machine, ssh):
    """The error names the machine, the key it shows, the key expected, and what to do; nothing was run."""
    wrong = fresh_pin()
    with pytest.raises(HostKeyError) as caught:
        ssh.run([replace(any_machine.host, host_keys=(wrong,))], f"touch {any_machine.root}/hit", 20)
    message = caught.value.message
    for key in (wrong, any_machine.host.host_keys[0]):
        assert asyncssh.import_public_key(key).get_fingerprint() in message
    assert "demo-tpu-g1" in message
    assert caught.value.retry is Retry.PERMANENT
    assert not (any_machine.root / "hit").exists()


def test_a_push_to_a_wrong_key_raises_and_sends_nothing(machine, ssh, bundle_of):
    """A wrong key is no error among others in the results."""
    with pytest.raises(HostKeyError):
        ssh.push([replace(machine.host, host_keys=(fresh_pin(),))], *bundle_of("new"), "/nowhere")
    assert machine.commands == []


def test_a_recycled_address_is_refused(servers, tmp_path, key, ssh):
    """The address is the same, the machine behind it is somebody else's."""
    first = servers.start("demo-tpu-g1", tmp_path / "a", key.public)
    ssh.run([first.host], "true", 20)
    first.stop()
    second = servers.start("x", tmp_path / "b", key.public, first.host.port, first.host.address)
    with pytest.raises(HostKeyError):
        ssh.run([first.host], "true", 20)
    with pytest.raises(HostKeyError):
        ssh.run([replace(first.host, host_keys=())], "true", 20)
    assert second.commands == []
    second.stop()


def test_a_pin_is_remembered_by_machine_name_when_the_attributes_cannot_be_read(machine, ssh, settings):
    """The same name goes on with its pin, the next incarnation does not."""
    ssh.run([machine.host], "true", 20)
    bare = replace(machine.host, host_keys=())
    assert ssh.run([bare], "true", 20)[0].exit_code == 0
    with pytest.raises(HostKeyError):
        ssh.run([replace(bare, name="demo-tpu-g2")], "true", 20)
    (settings.known_hosts / machine.host.name).unlink()
    with pytest.raises(HostKeyError):
        ssh.run([bare], "true", 20)


def test_other_keys_of_a_machine_are_reported(tmp_path):
    """Not the first ones, not those that stay, not one more kind of key."""
    from orchestrator.domain.remote import Host

    reported, folder, first = [], tmp_path / "pins", fresh_pin()
    for pins in [(first,), (first,), (first, fresh_pin("ecdsa-sha2-nistp256"))]:
        pinned_keys.pinned(Host("demo-vm", "127.0.0.1", pins), folder, reported.append)
    assert reported == []
    pinned_keys.pinned(Host("demo-vm", "127.0.0.1", (fresh_pin(),)), folder, reported.append)
    pinned_keys.pinned(Host("demo-vm-2", "127.0.0.1", (fresh_pin(),)), folder, reported.append)
    (text,) = reported
    assert "demo-vm publishes other host keys than before" in text


@pytest.mark.parametrize("order", [0, 1])
def test_any_pinned_kind_of_key_is_enough(machine, ssh, order):
    """A machine publishes several kinds and shows one of them."""
    pins = (machine.host.host_keys[0], fresh_pin("ecdsa-sha2-nistp256"), fresh_pin("ssh-rsa"))
    host = replace(machine.host, host_keys=pins if order else pins[::-1])
    assert ssh.run([host], "true", 20)[0].exit_code == 0


@pytest.mark.parametrize(
    "line", ["", "ssh-ed25519", "ssh-ed25519 !!!!", "ssh-ed25519 AAAA", "nonsense AAAAB3NzaC1"]
)
def test_a_published_text_that_is_no_key_is_refused(line, machine, ssh):
    """Broken attributes are not skipped over."""
    with pytest.raises(HostKeyError, match="not a key"):
        ssh.run([replace(machine.host, host_keys=(line,))], "true", 20)


def test_names_cannot_leave_the_folder_of_pins(tmp_path):
    """A name is one file name, whatever is in it."""
    from orchestrator.domain.remote import Host

    host = Host("../../evil", "127.0.0.1", (fresh_pin(),))
    pinned_keys.pinned(host, tmp_path / "pins")
    assert pinned_keys.recall(tmp_path / "pins", "../../evil") == host.host_keys
    assert [path.parent.name for path in tmp_path.rglob("*evil*")] == ["pins"]


def test_the_users_ssh_set_up_is_not_read_and_no_agent_is_asked(machine, ssh, tmp_path, monkeypatch):
    """~/.ssh/config, the user's keys, fabric's own files and the agent's socket have no effect."""
    import socket

    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text(
        "Host *\n  Hostname 127.255.255.1\n  User nobody\n  ForwardAgent yes\n"
    )
    (home / ".fabric.yaml").write_text("forward_agent: true\nuser: nobody\nport: 1\n")
    asked = threading.Event()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "agent"))
    listener.listen()

    def accept():
        try:
            listener.accept()
        except OSError:
            return
        asked.set()

    threading.Thread(target=accept, daemon=True).start()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    (result,) = ssh.run([machine.host], "true", 20)
    listener.close()
    assert result.exit_code == 0
    assert not asked.is_set()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_key_is_readable_by_its_owner_only(umask, tmp_path):
    """Folder 0700, file 0600, under any umask; made once."""
    before = os.umask(umask)
    try:
        key = ensure_key(tmp_path / "state" / "ssh")
    finally:
        os.umask(before)
    assert stat.S_IMODE(key.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.path.parent.stat().st_mode) == 0o700
    assert ensure_key(key.path.parent) == key
    assert key.metadata_line() == f"tpuctl:{key.public} tpuctl"
    assert key.public.startswith("ssh-ed25519 AAAA")
    assert [path.name for path in key.path.parent.iterdir()] == [key.path.name]


def test_two_makers_end_with_the_same_key(tmp_path):
    """Whoever comes second takes the first one's key."""
    keys = []
    threads = [threading.Thread(target=lambda: keys.append(ensure_key(tmp_path / "k"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({key.public for key in keys}) == 1


def test_a_forgotten_key_is_gone_and_a_damaged_one_is_named(tmp_path):
    """`down` removes the key; a damaged file is never replaced silently."""
    key = ensure_key(tmp_path)
    forget_key(tmp_path)
    forget_key(tmp_path)
    assert not key.path.exists()
    key.path.write_text("garbage")
    with pytest.raises(UsageError, match="id_ed25519"):
        ensure_key(tmp_path)
    assert key.path.read_text() == "garbage"


def test_nothing_in_the_package_turns_host_key_checking_off():
    """The spellings that do so are nowhere in the code or the templates."""
    package = Path(orchestrator.__file__).parent
    folders = [package, package.parent / "templates"]
    texts = {
        file: file.read_text(errors="replace")
        for folder in folders
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert len(texts) > 30
    for word in (
        "AutoAddPolicy",
        "WarningPolicy",
        "StrictHostKeyChecking",
        "known_hosts=None",
        "UserKnownHostsFile=/dev/null",
        '"UserKnownHostsFile": "/dev/null"',
    ):
        # The blocks for the stock ssh turn it on.
        on = '"StrictHostKeyChecking": "yes"'
        assert [str(file) for file, text in texts.items() if word in text.replace(on, "")] == []
