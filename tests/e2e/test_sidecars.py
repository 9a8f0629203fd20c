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


def answer(stage, url: str) -> dict:
    """Return what a small server says as soon as it says something: a slow computer's begins late."""
    return stage.wait_for(f"an answer of {url}", lambda: ask(url))


def printed(stage, process) -> list[str]:
    """Return the lines that a command has printed to standard output so far."""
    return (stage.folder / f"{process.number}.out").read_text().splitlines()


def test_sidecars_are_reached_through_tunnels_that_outlive_their_machines(stage):
    """Both answer on loopback only; settings reach them without touching the job; `down` ends all."""
    stage.environment["TPUCTL_VENV_CACHE"] = str(fake_environments(stage.folder / "venvs"))
    stage.write(command="exec sleep 600", vm="{spot: true}")
    with (stage.work / "tpuctl.yaml").open("a") as file:
        board_port, jupyter_port = free_port(), free_port()
        file.write(
            f"sidecars: {{tensorboard: {{port: {board_port}}}, jupyter: {{on: tpu, port: {jupyter_port}}}}}\n"
        )
    stage.tpuctl("up")
    (job,) = stage.wait_for("the job", lambda: stage.jobs(b"600"))
    mine = str(free_port())
    board = stage.start("tunnel", "tensorboard", "--port", mine)
    jupyter = stage.start("tunnel", "jupyter", "--json")
    url = stage.wait_for("TensorBoard's address", lambda: printed(stage, board))[0]
    assert url == f"http://127.0.0.1:{mine}/"
    words = answer(stage, url)["argv"]
    assert words[words.index("--logdir") + 1] == f"gs://{stage.bucket()}/tensorboard"
    assert words[words.index("--host") + 1].startswith("127.")
    first = json.loads(stage.wait_for("Jupyter's address", lambda: printed(stage, jupyter))[0])["url"]
    assert answer(stage, first.partition("lab?")[0]) == {"status": 403}
    assert answer(stage, first)["known"]

    # Another port: the tunnel finds it, the job runs on.
    other = str(free_port())
    changed = ("--set", f"sidecars.tensorboard.port={other}")
    assert "sidecars on e2e-vm: the new settings are there" in stage.tpuctl("up", *changed).err
    stage.wait_for("the new port", lambda: other in ask(url).get("argv", []))
    assert list(stage.jobs(b"600")) == [job]

    # Both machines are lost. The VM comes back with its last settings, the TPU is another one.
    watch = stage.start("watch", *changed)
    stage.wait_for("the watcher", lambda: stage.said(watch))
    before = stage.wait_for("TensorBoard", lambda: ask(url).get("pid"))
    stage.tpuctl("local", "preempt", "e2e-vm", "--no-notice")
    stage.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    stage.wait_for("TensorBoard again", lambda: ask(url).get("pid", before) != before)
    assert other in answer(stage, url)["argv"]
    stage.wait_for("a word on it", lambda: "connected again, to e2e-vm" in stage.said(board))
    stage.wait_for("Jupyter's new address", lambda: len(printed(stage, jupyter)) == 2)
    second = json.loads(printed(stage, jupyter)[1])["url"]
    assert second != first
    assert answer(stage, second)["known"]
    stage.wait_for("a word on it", lambda: "connected again, to e2e-tpu-g2-w0" in stage.said(jupyter))

    watch.send_signal(signal.SIGINT)
    stage.end(watch, expect=130)
    board.send_signal(signal.SIGINT)
    stage.end(board, expect=130)
    stage.tpuctl("down", "--yes")
    assert "closed: e2e is not up" in stage.end(jupyter, expect=0).err
    assert stage.processes() == []
