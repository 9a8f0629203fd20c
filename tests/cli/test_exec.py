"""`exec` on a slice of two real machines: one row for each worker, whatever became of it."""

import json
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tests.cli.cli_kit import document, here, tpuctl
from tests.kit.waiting import until

pytestmark = pytest.mark.e2e
FILE = """\
name: pair
project: local-project
tpu: {type: v4-16, zones: [us-central2-b]}
vm: none
job: {source: src, command: exec sleep 600, env: {COLOUR: deep blue, PLACE: $TPUCTL_NODE}}
"""
SECOND = 'grep -q "^WORKER_ID=1" "$TPUCTL_ROOT/job.env"'


@pytest.fixture
def cloud(tmp_path, monkeypatch, capsys):
    """Give a slice of two workers on a local cloud of its own; return what runs a command on it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "note.txt").write_text("of the job\n")
    (tmp_path / "tpuctl.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TPUCTL_CLOUD", "local")
    assert here(capsys, "local", "start", "--latency", "instant", "--no-fresh-project")[0] == 0
    code, _, err = here(capsys, "up")
    assert code == 0, err
    yield lambda *words: here(capsys, *words)
    assert here(capsys, "local", "reset")[0] == 0


def preempt_when(begun: Path, folder: Path) -> None:
    """Take the machine of worker 1 away as soon as its command has begun; the node stays READY."""
    until(begun.exists, "the command on worker 1", 120, 0.02)
    variables = {"TPUCTL_LOCAL_DIR": str(folder / "cloud"), "TPUCTL_CLOUD": "local"}
    tpuctl("local", "preempt", "pair-tpu-g1", "--worker", "1", cwd=folder, **variables)


def test_each_worker_has_its_row_when_one_is_lost(cloud, tmp_path):
    """A command that fails, a machine that dies under it, one that is gone: the other is not lost."""
    code, out, _ = cloud("exec", "--worker", "all", "--json", "--", f"{SECOND} && exit 7; echo fine")
    first, second = document(out)["results"]
    assert code == 1
    assert first == {
        "machine": "pair-tpu-g1-w0", "exit_code": 0, "stdout": "fine\n", "stderr": "", "unknown_result": False,
        "message": "", "code": None,
    }  # fmt: skip
    assert (second["exit_code"], second["unknown_result"], second["stdout"]) == (7, False, "")

    begun = tmp_path / "begun"
    taker = threading.Thread(target=preempt_when, args=(begun, tmp_path))
    taker.start()
    wait = f"{SECOND} || {{ echo fine; exit 0; }}; echo so far; touch {begun}; exec sleep 600"
    code, out, _ = cloud("exec", "--json", "--", wait)
    taker.join()
    first, second = document(out)["results"]
    assert (code, first["exit_code"], first["stdout"]) == (1, 0, "fine\n")
    assert (second["exit_code"], second["unknown_result"]) == (None, True)
    assert second["stdout"] in {"so far\n", ""}, "what was on its way when the machine died may be lost"
    assert second["code"] == "TPU-500"

    code, out, err = cloud("exec", "--", "echo fine")
    assert (code, out) == (1, "pair-tpu-g1-w0: fine\n")
    ok, lost, hint = err.splitlines()[-3:]
    assert ok == "pair-tpu-g1-w0: ok"
    assert lost.startswith("pair-tpu-g1-w1: lost, so whether it ended well is not known: SSH to pair-tpu-g1")
    assert lost.endswith("(TPU-500)")
    assert hint.startswith("  next:  ")


def test_commands_run_in_the_folder_of_the_job_with_its_variables(cloud):
    """As the job would, on one worker that is named; --home is the login's home, without them."""
    look = 'cat note.txt; echo "$COLOUR $PLACE ${TPUCTL_PROGRESS_FILE:-none}"; echo "$TPUCTL_CHECKPOINT_DIR"'
    code, out, err = cloud("exec", "--worker", "1", "--json", "--", look)
    (only,) = document(out)["results"]
    assert (code, only["machine"], only["exit_code"]) == (0, "pair-tpu-g1-w1", 0), err
    note, variables, checkpoints = only["stdout"].splitlines()
    # Its own step is not the job's: what is run by hand has no file to report it.
    assert (note, variables) == ("of the job", "deep blue pair-tpu-g1 none")
    assert checkpoints.endswith("/checkpoints")

    code, out, _ = cloud("exec", "--home", "--json", "--", 'ls note.txt; echo "<$COLOUR>"')
    assert [r["stdout"] for r in document(out)["results"]] == ["<>\n", "<>\n"]
    for words in (("exec", "--worker", "2", "--", "true"), ("logs", "--worker", "2")):
        code, _, err = cloud(*words)
        assert (code, "TPU-132" in err, "see: tpuctl status" in err) == (2, True, True), words


@pytest.mark.parametrize("command", ["ssh", "exec"])
def test_one_word_is_a_command_line_for_ssh_as_for_exec(cloud, tmp_path, command):
    """Several are passed on as they are, so that a word with blanks or a dollar stays what it is."""
    line = 'test "$COLOUR" = "deep blue" && cat note.txt && ! false'
    variables = {"TPUCTL_LOCAL_DIR": str(tmp_path / "cloud"), "TPUCTL_CLOUD": "local"}
    for words in ((line,), ("test", "$COLOUR", "=", "$" + "COLOUR"), ("test", "a b", "=", "a b")):
        done = tpuctl(command, "--", *words, cwd=tmp_path, **variables)
        assert done.returncode == 0, (words, done.stderr)


def test_a_file_is_copied_whole_and_verified_or_not_at_all(cloud, tmp_path, monkeypatch):
    """To the source folder and back; what is missing there leaves the file here as it was."""
    (tmp_path / "big.bin").write_bytes(bytes(range(256)) * 9000)
    (tmp_path / "empty").touch()
    assert cloud("cp", "--worker", "1", "big.bin", ":")[0] == 0
    assert cloud("cp", "empty", ":sub/")[0] == 0
    code, out, _ = cloud("cp", "--worker", "1", "--json", ":big.bin", "back.bin")
    assert (code, document(out)["bytes"]) == (0, 2304000)
    assert (tmp_path / "back.bin").read_bytes() == (tmp_path / "big.bin").read_bytes()
    assert cloud("cp", ":sub/empty", ".")[0] == 0

    code, _, err = cloud("cp", ":no-such-file", "back.bin")
    assert code == 1
    for part in (
        "there is no no-such-file in",
        "back.bin is unchanged",
        "see what is there: tpuctl exec -- ls",
    ):
        assert part in " ".join(err.split()), part
    assert (tmp_path / "back.bin").stat().st_size == 2304000
    for words in (("a", "b"), (":a", ":b"), ("no-such-file", ":")):
        assert cloud("cp", *words)[0] == 2
    code, _, err = cloud("cp", "src", ":")
    assert (code, "tpuctl cp -r" in err) == (2, True)
    # A folder to one worker that is named, and one of each worker to a folder of its own.
    assert cloud("cp", "-r", "src", "w1:sub/")[0] == 0
    code, out, _ = cloud("cp", "-r", "--worker", "all", "--json", ":sub", "both")
    assert (code, [json.loads(line)["files_count"] for line in out.splitlines()]) == (0, [1, 1])
    found = sorted(str(path.relative_to(tmp_path / "both")) for path in (tmp_path / "both").rglob("*.*"))
    assert (found, (tmp_path / "both/w0/sub/empty").exists()) == (["w1/sub/src/note.txt"], True)
    assert cloud("cp", "-r", "w1:sub", "both/w1")[0] == 2, "it is there already"
    # What is cut under way has another checksum, and gets no name.
    with monkeypatch.context() as cut:
        cut.setattr("orchestrator.ssh.transfer.copy.sha256_of", lambda _: "0" * 64)
        assert cloud("cp", "big.bin", ":cut.bin")[0] == 1
    assert cloud("exec", "--json", "--", "ls")[1].count("cut.bin") == 0


@pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH is not installed")
def test_the_stock_programs_reach_the_machines_over_a_preemption(cloud, tmp_path):
    """With one file, by ssh, scp, sftp and rsync; who waits for the new TPU gets it; a stranger is refused."""
    config = tmp_path / "ssh config"
    assert cloud("ssh-config", "-o", str(config))[0] == 0
    options = ("-F", str(config), "-o", "BatchMode=yes")

    def ssh(*words, program="ssh", said=""):
        return subprocess.run(
            [program, *options, *words], capture_output=True, text=True, check=False, timeout=120, input=said
        )  # fmt: skip

    said = ssh("pair-w1", f"{SECOND} && echo second")
    assert (said.returncode, said.stdout) == (0, "second\n"), said.stderr
    (tmp_path / "sent").write_text("by scp")
    # The path of docs/ssh.md, although a local machine has no /opt/tpuctl.
    copied = ssh("pair:tpuctl/current/note.txt", str(tmp_path / "here"), program="scp")
    assert (copied.returncode, (tmp_path / "here").read_text()) == (0, "of the job\n"), copied.stderr
    assert ssh(str(tmp_path / "sent"), "pair:sent", program="scp").returncode == 0
    assert ssh("-b", "-", "pair-w0", program="sftp", said=f"get sent {tmp_path}/got").returncode == 0
    assert (tmp_path / "got").read_text() == "by scp"
    if shutil.which("rsync"):
        (tmp_path / "tree" / "sub").mkdir(parents=True)
        (tmp_path / "tree" / "sub" / "leaf").write_text("by rsync")
        words = ["-a", "--rsync-path", shutil.which("rsync"), "-e", f"ssh -F '{config}'"]
        subprocess.run(["rsync", *words, str(tmp_path / "tree"), "pair:"], check=True, timeout=120)
        assert ssh("pair", "cat tree/sub/leaf").stdout == "by rsync"

    # Nobody watches, so there is no TPU until somebody brings it up again.
    assert cloud("local", "preempt", "pair-tpu-g1", "--no-notice")[0] == 0
    with (
        subprocess.Popen(
            ["ssh", *options, "pair", "echo back"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as waiting,
    ):  # fmt: skip
        assert "waiting for pair-w0" in waiting.stderr.readline()
        code, _, err = cloud("up")
        assert code == 0, err
        out, said = waiting.communicate(timeout=120)
    assert (waiting.returncode, out) == (0, "back\n"), said
    assert ssh(str(tmp_path / "got"), "pair-w1:new", program="scp").returncode == 0

    # Another machine answers where the first worker is looked for.
    config.write_text(config.read_text().replace("tpuctl.yaml w0\n", "tpuctl.yaml w1\n"))
    refused = ssh("pair-w0", "true")
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr
