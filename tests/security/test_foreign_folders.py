"""Folders that another user of the laptop made, or may write: nothing in them is run or believed."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.layout import Layout
from orchestrator.agent.machine import venv
from orchestrator.app import local
from orchestrator.app.source import bundle
from orchestrator.app.this_computer import state_folders
from orchestrator.cli import new_version
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.trusted_folder import untrusted
from orchestrator.domain.remote import Iap
from orchestrator.emulator import control
from orchestrator.emulator.address import Address, start_of, write_address
from orchestrator.emulator.start_options import load_options
from orchestrator.errors import UsageError
from orchestrator.private_folders import own_folder
from orchestrator.scripts import uv_program
from orchestrator.ssh.connect import iap

NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


@pytest.fixture
def for_all(tmp_path):
    """Return a folder like /tmp."""
    folder = tmp_path / "for-all"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def open_folder(tmp_path):
    """Return a folder of this user that every user may write, as a loose umask makes it."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def made(folder, mode=0o755, owner=None):
    """Return *folder*, made with that mode and owner."""
    folder.mkdir()
    folder.chmod(mode)
    if owner is not None:
        os.chown(folder, owner, owner)
    return folder


def test_a_folder_that_others_may_write_is_strange(tmp_path, for_all):
    """And one below it; in a folder for all the sticky bit keeps what is one's own."""
    assert untrusted(made(tmp_path / "own")) is None
    assert untrusted(made(tmp_path / "group", 0o775)) is None
    assert untrusted(made(for_all / "own")) is None
    assert untrusted(for_all / "not" / "yet") is None
    assert untrusted(for_all) == (for_all, None)
    loose = made(tmp_path / "loose", 0o777)
    for folder in (loose, made(loose / "own"), loose / "not-yet"):
        assert untrusted(folder) == (loose, None)
    (tmp_path / "link").symlink_to(loose)
    assert untrusted(tmp_path / "link" / "own") == (loose, None)


@root_only
def test_a_folder_of_another_user_is_strange(tmp_path, for_all):
    """Who owns a folder above is trusted, as on a computer of a group; not in a folder for all."""
    theirs = made(tmp_path / "theirs", owner=NOBODY)
    assert untrusted(theirs) == (theirs, NOBODY)
    assert untrusted(made(theirs / "own")) is None
    planted = made(for_all / "planted", owner=NOBODY)
    assert untrusted(made(planted / "own")) == (planted, NOBODY)
    own, link = made(tmp_path / "own"), for_all / "link"
    link.symlink_to(own)
    assert untrusted(link) is None
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert untrusted(link) == (link, NOBODY)


@root_only
def test_with_sudo_the_folders_of_who_called_it_are_not_strange(tmp_path, monkeypatch):
    """It keeps HOME where it is told to."""
    theirs = made(tmp_path / "theirs", owner=NOBODY)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    assert untrusted(theirs) is None


def test_the_error_says_where_why_and_what_next(open_folder):
    """One error, whichever folder it is."""
    with pytest.raises(UsageError) as caught:
        own_folder(open_folder, "set TPUCTL_STATE_DIR")
    said = caught.value
    assert (said.code, said.exit_code) == ("TPU-145", 2)
    assert "may write" in said.message
    assert f"chmod o-w {open_folder}; or set TPUCTL_STATE_DIR" in said.hint
    assert "nothing was changed" in said.changed


def test_no_planted_file_makes_local_stop_end_a_process(open_folder, monkeypatch):
    """It names the daemon's process; so would anybody."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(open_folder))
    with subprocess.Popen(["sleep", "600"]) as bystander:
        write_address(
            open_folder, Address(bystander.pid, start_of(bystander.pid), "http://127.0.0.1:9", 1, "p", "x")
        )
        for verb in (control.stop, control.reset, control.running, control.ensure_running):
            with pytest.raises(UsageError, match="may write"):
                verb()
        assert bystander.poll() is None
        bystander.kill()


def test_no_planted_deployment_is_read(open_folder, monkeypatch):
    """Its hooks would run at the next command."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(open_folder))
    for ask in (state_folders.known_files, state_folders.record_key, state_folders.state_folder):
        with pytest.raises(UsageError, match="may write"):
            ask("gcp")
    made(open_folder / "gcp", 0o777)
    open_folder.chmod(0o755)
    with pytest.raises(UsageError, match="may write"):
        state_folders.known_files("gcp")


def test_no_planted_uv_is_used(tmp_path, monkeypatch):
    """It makes the environments of every machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "tpuctl" / "machines"
    folder.mkdir(parents=True)
    for digest in uv_program.PROGRAMS.values():
        (folder / f"uv-{digest}").write_text("#!/bin/sh\ntouch /tmp/ran\n")
    folder.chmod(0o777)
    for ask in (uv_program.program, uv_program.shared_folder):
        with pytest.raises(UsageError, match="may write"):
            ask()


def test_folders_are_made_for_this_user_whatever_the_umask(tmp_path, monkeypatch):
    """Of the uv that is shared, of bundles, of gcloud's settings, of the word on a newer version."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "project").mkdir()
    monkeypatch.setattr(new_version, "_ask_index", lambda _: None)
    before = os.umask(0)
    try:
        uv_program.shared_folder()
        bundle.build(tmp_path / "project", tmp_path / "state" / "bundles")
        iap._environment(Iap("p", "z", "vm", "wss://127.0.0.1:1/v4"), tmp_path / "relay" / "gcloud")
        new_version._report(tmp_path / "words" / "tpuctl" / "update.json", "0.1.0", 1e9)
    finally:
        os.umask(before)
    folders = [path for path in tmp_path.rglob("*") if path.is_dir() and path != tmp_path / "project"]
    assert len(folders) >= 8
    assert [path for path in folders if path.stat().st_mode & 0o077] == []


@pytest.mark.e2e
def test_what_a_local_cloud_holds_is_its_users_wherever_it_lies(tmp_path, monkeypatch):
    """In a folder that others may read, too: disks and buckets hold code, data and what a job was given."""
    folder = made(tmp_path / "cloud")
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(folder))
    before = os.umask(0o022)
    try:
        address, _ = local.ensure_running(replace(load_options(folder), machines="process"))
        url = f"{address.endpoint}/storage/v1/b?project={address.project}"
        ask = ["curl", "-sf", "-H", "Content-Type: application/json", "-d", '{"name": "a-bucket"}', url]
        subprocess.run(ask, check=True, capture_output=True)
        observed = {path.name for path in folder.iterdir() if path.stat().st_mode & 0o077}
        assert {"machines", "storage", "state", "daemon.log"} <= {path.name for path in folder.iterdir()}
    finally:
        os.umask(before)
        control.reset()
    assert observed <= {"start.lock", "ssh_config", "bin"}


def test_no_planted_environment_is_used(open_folder, tmp_path):
    """Its name is known to whoever knows the list of requirements."""
    lists = tmp_path / "requirements.txt"
    lists.write_text("numpy\n")
    wanted, layout = venv.WantedPackages((lists,), (), ""), Layout(tmp_path / "machine")
    planted = open_folder / wanted.key(".".join(map(str, sys.version_info[:3])))
    (planted / "bin").mkdir(parents=True)
    (planted / "bin/python").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho Python 3\n")
    (planted / "bin/python").chmod(0o755)
    (planted / "complete").write_text("Python 3\n")
    with pytest.raises(AgentError, match=r"TPUCTL_VENV_CACHE.*may write"):
        venv.make(wanted, {venv.CACHE: str(open_folder)}, layout, lambda: None)
    assert not (tmp_path / "ran").exists()
    open_folder.chmod(0o755)
    assert venv.make(wanted, {venv.CACHE: str(open_folder)}, layout, lambda: None) == planted
    assert Path(tmp_path / "ran").exists()
