"""Folders travel whole or not at all, and a machine that sends an archive writes nowhere but into its target."""

import fcntl
import hashlib
import io
import os
import shlex
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from orchestrator.app.machines.cp import CopyOptions, hints_of
from orchestrator.errors import RemoteError, TpuctlError
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.elevate import as_login, elevated
from orchestrator.ssh.run import run_over
from orchestrator.ssh.transfer.copy import FOLDER, MISSING, fetch, send
from orchestrator.ssh.transfer.tree import Incoming, fetch_tree, send_tree, stays_inside, unpack

LONG = "n" * 200


def nobody(_size, _name):
    """Look at no progress."""


def made(folder: Path) -> Path:
    """Make a folder with all that is copied, and some that is not."""
    (folder / "sub" / LONG).mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "sub" / "run.sh").chmod(0o755)
    (folder / "sub" / LONG / "안녕").write_bytes(os.urandom(700_000))
    (folder / "-rf").touch()
    os.link(folder / "sub" / "run.sh", folder / "twin")
    (folder / "latest").symlink_to("sub/run.sh")
    (folder / "sub" / "up").symlink_to("../empty")
    (folder / "host").symlink_to("/etc/hosts")
    (folder / "beside").symlink_to("../elsewhere")
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(folder)
        one.bind("socket")
        os.chdir(here)
    return folder


def shape(folder: Path) -> dict:
    """Return what is in a folder: where each link leads, each file's content and whether it can be run."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            what = f"-> {path.readlink()}"
        else:
            what = (path.read_bytes(), os.access(path, os.X_OK)) if path.is_file() else "folder"
        found[str(path.relative_to(folder))] = what
    return found


def test_a_folder_there_and_back_is_the_same(any_machine, ssh, tmp_path):
    """With empty folders, long names, modes and the links that stay inside; what is left out is named."""
    source = made(tmp_path / "source")
    sent = send_tree(ssh.connect(any_machine.host), source, "kept", str(any_machine.root), nobody)
    assert sorted(sent.skipped) == ["beside", "host", "socket"]
    wanted = shape(source)
    for name in sent.skipped:
        del wanted[name]
    assert shape(any_machine.root / "kept") == wanted
    (any_machine.root / "kept" / "out").symlink_to("/etc")
    os.mkfifo(any_machine.root / "kept" / "pipe")
    back = fetch_tree(ssh.connect(any_machine.host), "kept", tmp_path / "back", str(any_machine.root), nobody)
    assert shape(tmp_path / "back") == wanted
    assert (sorted(back.skipped), back.files, back.size) == (["out", "pipe"], sent.files, sent.size)


def test_into_a_folder_that_is_there_and_never_over_it(machine, ssh, tmp_path):
    """As `cp -r` does; a second time is refused, there as here nothing is mixed."""
    source = made(tmp_path / "source")
    (machine.root / "data").mkdir(parents=True)
    send_tree(ssh.connect(machine.host), source, "data", str(machine.root), nobody)
    before = shape(machine.root / "data")
    assert "source/empty" in before
    with pytest.raises(RemoteError, match="there is data/source already") as caught:
        send_tree(ssh.connect(machine.host), source, "data", str(machine.root), nobody)
    assert "data on demo-tpu-g1 is unchanged" in caught.value.changed
    assert "rsync" in caught.value.hint
    assert shape(machine.root / "data") == before


def test_what_is_missing_there_leaves_nothing_here(machine, ssh, tmp_path):
    """The message is the machine's, and the folder does not appear."""
    with pytest.raises(RemoteError, match="there is no folder gone") as caught:
        fetch_tree(ssh.connect(machine.host), "gone", tmp_path / "back", str(machine.root), nobody)
    assert "tpuctl exec -- ls" in caught.value.hint
    assert list(tmp_path.glob("*back*")) == list(tmp_path.glob(".*")) == []


def test_a_file_that_is_a_folder_has_the_command_for_one(machine, ssh, tmp_path):
    """The status of our script decides, not its words."""
    (machine.root / "kept").mkdir(parents=True)
    with pytest.raises(RemoteError, match="kept is a folder") as caught:
        fetch(ssh.connect(machine.host), "kept", tmp_path / "back", str(machine.root), {FOLDER: "cp -r"})
    assert caught.value.hint == "cp -r"


@pytest.mark.parametrize(
    ("words", "exec_there", "folder"),
    [
        ({"source": ":sub", "target": "sub"}, "tpuctl exec -- ls", "tpuctl cp -r :sub sub"),
        ({"source": "vm:sub", "target": "b"}, "tpuctl exec --vm -- ls", "tpuctl cp -r vm:sub b"),
        ({"source": "w3:sub", "target": "b"}, "tpuctl exec --worker 3 -- ls", "tpuctl cp -r w3:sub b"),
        (
            {"source": ":sub", "target": "b", "worker": None},
            "tpuctl exec --worker all -- ls",
            "tpuctl cp -r --worker all :sub b",
        ),
        (
            {"source": ":sub", "target": "b", "on_vm": True},
            "tpuctl exec --vm -- ls",
            "tpuctl cp -r --vm :sub b",
        ),
    ],
    ids=["TPU", "VM", "worker", "all", "option"],
)
def test_the_next_step_of_a_copy_looks_at_its_machine(words, exec_there, folder):
    """And repeats the command that was typed."""
    found = hints_of(CopyOptions(**words))
    assert (found[MISSING], found[FOLDER]) == (f"see what is there: {exec_there}", folder)


def parts(where: Path, name: str) -> list[Path]:
    """Make what two copies of *name* have written so far, and return their folders."""
    made = [where / f"{name}{mark}" for mark in ("killed", "works")]
    for part in made:
        (part / "deep").mkdir(parents=True)
        (part / "deep" / "file").write_bytes(b"x")
    return made


def test_the_leftovers_of_a_killed_copy_are_deleted_by_the_next_one(machine, ssh, tmp_path):
    """There and here; what another copy still writes is not, whose lock says that it lives."""
    source = made(tmp_path / "source")
    machine.root.mkdir(parents=True, exist_ok=True)
    there, here = parts(machine.root, ".mine.tpuctl-part."), parts(tmp_path, ".back.tpuctl-part-")
    whole = machine.root / "one.tpuctl-part.7"
    whole.write_bytes(b"half")
    held = [os.open(works, os.O_RDONLY) for _, works in (there, here)]
    for handle in held:
        fcntl.flock(handle, fcntl.LOCK_EX)
    send_tree(ssh.connect(machine.host), source, "mine", str(machine.root), nobody)
    fetch_tree(ssh.connect(machine.host), "mine", tmp_path / "back", str(machine.root), nobody)
    send(ssh.connect(machine.host), source / "sub" / "run.sh", "one", str(machine.root))
    assert [part.exists() for part in (*there, *here, whole)] == [False, True, False, True, False]
    assert (machine.root / "one").read_text() == "#!/bin/sh\n"
    for handle in held:
        os.close(handle)


@pytest.mark.parametrize("script", ["cp-take-file", "cp-take-folder"])
@pytest.mark.parametrize("moment", ["mktemp", "flock"])
def test_a_part_that_another_copy_deletes_before_it_is_locked_is_made_again(script, moment, tmp_path):
    """Two copies to one target at once: what the other one took for the leftover of a killed copy."""
    real, tools = shutil.which(moment), tmp_path / "tools"
    tools.mkdir()
    # The other copy's deletion, right after the part was made or right before it is locked, once.
    (tools / moment).write_text(
        f"""#!/bin/bash
made=$({real} "$@"); code=$?
[ -e {tools}/once ] || {{ touch {tools}/once; rm -rf {tmp_path}/root/*mine.tpuctl-part* {tmp_path}/root/.mine*; }}
[ -z "$made" ] || echo "$made"
exit $code
"""
    )
    # A third copy deletes what nobody has locked.
    (tools / "tee").write_text(
        f"""#!/bin/bash
{shutil.which("tee")} "$@"; code=$?
for old in {tmp_path}/root/mine.tpuctl-part.*; do {shutil.which("flock")} --nonblock "$old" rm -f "$old"; done
exit $code
"""
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (tmp_path / "root").mkdir()
    data = b"all of it"
    if script == "cp-take-file":
        arguments, stdin = (hashlib.sha256(data).hexdigest(), "source"), data
    else:
        arguments, stdin = ("source", "mark"), archive((member("file"), data), (member("mark"), b""))
    command = shlex.split(as_login(remote_script(script, "mine", *arguments), str(tmp_path / "root")))
    path = f"{tools}:{os.environ['PATH']}"
    done = subprocess.run(
        command, check=False, input=stdin, capture_output=True, env={"PATH": path}, timeout=20
    )
    assert (done.returncode, done.stderr) == (0, b"")
    mine = tmp_path / "root" / "mine"
    assert (mine if script == "cp-take-file" else mine / "file").read_bytes() == data
    assert list((tmp_path / "root").iterdir()) == [mine]


@pytest.mark.parametrize("way", ["to", "from"])
def test_a_link_that_breaks_leaves_no_part(openssh, ssh, tmp_path, relay, way):
    """Neither on the machine nor here, whatever the last file was."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(40):
        (source / f"{number:02}").write_bytes(os.urandom(100_000))
    shutil.copytree(source, openssh.root / "theirs")
    wire, host = relay(openssh, None, "close")
    root = str(openssh.root)

    def cut(size, _name):
        if size > 1_500_000:
            wire.break_now()

    ways = {
        "to": lambda: send_tree(ssh.connect(host), source, "mine", root, cut),
        "from": lambda: fetch_tree(ssh.connect(host), "theirs", tmp_path / "back", root, cut),
    }
    with pytest.raises(TpuctlError):
        ways[way]()
    assert list(tmp_path.glob("*back*")) == []
    assert not (openssh.root / "mine").exists()


def member(name, kind=tarfile.REGTYPE, **more):
    """Return a header."""
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in more.items():
        setattr(info, key, value)
    return info


def archive(*members):
    """Return an archive of headers, each with its content."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def test_a_stream_that_ends_between_two_files_is_not_whole(machine, ssh):
    """For tar it would be: so the last thing that is sent says that it is the last."""
    command = elevated(remote_script("cp-take-folder", "mine", "source", "mark"), str(machine.root))
    whole = archive((member("a"), b"x"), (member("mark"), b""))
    for cut, code in ((1024, 3), (1536, 0)):
        with ssh.connect(machine.host) as connection:
            done = run_over(connection, command, whole[:cut])
        assert (done.exit_code, "not all of it arrived" in done.stderr) == (code, bool(code))
        assert (machine.root / "mine").exists() is not bool(code)


LINK = tarfile.SYMTYPE
ATTACKS = {
    "a path from the root": [(member("/tmp/tpuctl-evil"), b"x")],
    "a path up": [(member("../evil"), b"x")],
    "a path up in the middle": [(member("a/../../evil"), b"x")],
    "a file through a link": [(member("a", LINK, linkname="b"), b""), (member("a/evil"), b"x")],
    "a link through a link": [
        (member("d/e/keep"), b""), (member("l", LINK, linkname="d/e"), b""),
        (member("l/x", LINK, linkname="../y"), b""),
    ],
    "a file in the place of a link": [(member("a", LINK, linkname="b"), b""), (member("a"), b"x")],
    "a folder in the place of a file": [(member("a"), b"x"), (member("a", tarfile.DIRTYPE), b"")],
    "one name twice": [(member("a"), b"x"), (member("a"), b"y")],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_of_an_attacker_writes_nothing_elsewhere(tmp_path, attack):
    """A machine runs other people's code, which may have replaced its tar."""
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    with pytest.raises(RemoteError) as caught:
        unpack(Incoming(iter([archive(*ATTACKS[attack])])), into, nobody)
    assert (caught.value.hint.endswith("tar --version"), caught.value.changed) == (True, "nothing was copied")
    assert [path.name for path in tmp_path.rglob("*") if into not in path.parents] == ["deep", "into"]


def test_devices_hard_links_and_programs_of_root_come_as_nothing(tmp_path):
    """A device is left out, as is a hard link, which may name any file; setuid is not kept."""
    data = archive(
        (member("dev", tarfile.CHRTYPE, devmajor=1, devminor=3), b""),
        (member("hard", tarfile.LNKTYPE, linkname="/etc/shadow"), b""),
        (member("su", mode=0o4777), b"#!"),
    )
    done = unpack(Incoming(iter([data])), tmp_path, nobody)
    assert done.skipped == ["dev", "hard"]
    assert [path.name for path in tmp_path.iterdir()] == ["su"]
    assert (tmp_path / "su").stat().st_mode & 0o7000 == 0


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_header_without_end_does_not_fill_the_memory(tmp_path, kind):
    """It is refused by its size, before it is read."""
    head = member("x", kind)
    head.size = 1 << 40
    sent = 0

    def machine():
        nonlocal sent
        yield head.tobuf(tarfile.GNU_FORMAT)
        while True:
            sent += 1 << 16
            yield bytes(1 << 16)

    with pytest.raises(RemoteError, match="header"):
        unpack(Incoming(machine()), tmp_path, nobody)
    assert sent < 1 << 22


def test_a_sparse_file_does_not_fill_the_disk(tmp_path):
    """Some bytes of a header would become a terabyte of zeros here."""
    head = member("holes")
    head.pax_headers = {"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,0", "GNU.sparse.name": "holes"}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(head)
    done = unpack(Incoming(iter([data.getvalue()])), tmp_path, nobody)
    assert (done.files, list(tmp_path.iterdir())) == (0, [])


def test_a_machine_that_goes_on_after_the_end_is_cut(tmp_path):
    """Nothing after the last block is of use to anybody."""

    def machine():
        yield archive((member("a"), b"x"))
        while True:
            yield bytes(1 << 16)

    with pytest.raises(RemoteError, match="more after the end"):
        unpack(Incoming(machine()), tmp_path, nobody)


@pytest.mark.parametrize(
    ("name", "leads_to", "inside"),
    [
        ("a", "b", True), ("a", "b/c", True), ("d/a", "../b", True), ("d/a", "..", True), ("a", ".", True),
        ("a", "..", False), ("d/a", "../../b", False), ("a", "/b", False), ("a", "", False),
        # b may be a link to somewhere higher up.
        ("d/a", "b/../../c", False), ("a", "./../b", False),
    ],
)  # fmt: skip
def test_a_link_may_lead_to_its_own_folder_only(name, leads_to, inside):
    """Judged by its words alone."""
    assert stays_inside(name, leads_to) is inside
