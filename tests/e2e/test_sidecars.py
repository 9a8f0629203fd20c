"""Sidecars on real machines: they start with them, are reached through a tunnel, and go with the deployment."""

import json
import signal
import urllib.error
import urllib.request

import pytest

from tests.kit.sidecar_kit import fake_environments, free_port

pytestmark = pytest.mark.e2e


def ask(url: str) -> dict:
    """Return what a small server says of itself, its status when it refuses, nothing while it is away."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return {"status": error.code}
    except OSError:
        return {}


def answer(lab, url: str) -> dict:
    """Return what a small server says as soon as it says something: a slow computer's begins late."""
    return lab.wait_for(f"an answer of {url}", lambda: ask(url))


def printed(lab, process) -> list[str]:
    """Return the lines that a command has printed to standard output so far."""
    return (lab.folder / f"{process.number}.out").read_text().splitlines()


def test_sidecars_are_reached_through_tunnels_that_outlive_their_machines(lab):
    """Both answer on loopback only; settings reach them without touching the job; `down` ends all."""
    lab.environment["TPUCTL_VENV_CACHE"] = str(fake_environments(lab.folder / "venvs"))
    lab.write(command="exec sleep 600", vm="{spot: true}")
    with (lab.work / "tpuctl.yaml").open("a") as file:
        board_port, jupyter_port = free_port(), free_port()
        file.write(
            f"sidecars: {{tensorboard: {{port: {board_port}}}, jupyter: {{on: tpu, port: {jupyter_port}}}}}\n"
        )
    lab.tpuctl("up")
    (job,) = lab.wait_for("the job", lambda: lab.jobs(b"600"))
    mine = str(free_port())
    board = lab.start("tunnel", "tensorboard", "--port", mine)
    jupyter = lab.start("tunnel", "jupyter", "--json")
    url = lab.wait_for("TensorBoard's address", lambda: printed(lab, board))[0]
    assert url == f"http://127.0.0.1:{mine}/"
    words = answer(lab, url)["argv"]
    assert words[words.index("--logdir") + 1] == f"gs://{lab.bucket()}/tensorboard"
    assert words[words.index("--host") + 1].startswith("127.")
    first = json.loads(lab.wait_for("Jupyter's address", lambda: printed(lab, jupyter))[0])["url"]
    assert answer(lab, first.partition("lab?")[0]) == {"status": 403}
    assert answer(lab, first)["known"]

    # Another port: the tunnel finds it, the job runs on.
    other = str(free_port())
    changed = ("--set", f"sidecars.tensorboard.port={other}")
    assert "sidecars on e2e-vm: the new settings are there" in lab.tpuctl("up", *changed).err
    lab.wait_for("the new port", lambda: other in ask(url).get("argv", []))
    assert list(lab.jobs(b"600")) == [job]

    # Both machines are lost. The VM comes back with its last settings, the TPU is another one.
    watch = lab.start("watch", *changed)
    lab.wait_for("the watcher", lambda: lab.said(watch))
    before = lab.wait_for("TensorBoard", lambda: ask(url).get("pid"))
    lab.tpuctl("local", "preempt", "e2e-vm", "--no-notice")
    lab.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    lab.wait_for("TensorBoard again", lambda: ask(url).get("pid", before) != before)
    assert other in answer(lab, url)["argv"]
    lab.wait_for("a word on it", lambda: "connected again, to e2e-vm" in lab.said(board))
    lab.wait_for("Jupyter's new address", lambda: len(printed(lab, jupyter)) == 2)
    second = json.loads(printed(lab, jupyter)[1])["url"]
    assert second != first
    assert answer(lab, second)["known"]
    lab.wait_for("a word on it", lambda: "connected again, to e2e-tpu-g2-w0" in lab.said(jupyter))

    watch.send_signal(signal.SIGINT)
    lab.end(watch, expect=130)
    board.send_signal(signal.SIGINT)
    lab.end(board, expect=130)
    lab.tpuctl("down", "--yes")
    assert "closed: e2e is not up" in lab.end(jupyter, expect=0).err
    assert lab.processes() == []
