"""The real TensorBoard and JupyterLab on machines of the local cloud, reached through tunnels."""

import json
import subprocess
import urllib.error
import urllib.request

import pytest

from tests.e2e.test_sidecars import printed
from tests.kit.sidecar_kit import free_port
from tests.recipes.kit import INSTALL_TIMEOUT, VENVS

pytestmark = [pytest.mark.recipes, pytest.mark.e2e, pytest.mark.xdist_group("sidecars")]
WRITE = """\
import glob, os, sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("events")
for step in range(5):
    value = Summary.Value(tag="loss", simple_value=5.0 - step)
    writer.add_event(Event(step=step, wall_time=1e9 + step, summary=Summary(value=[value])))
writer.close()
"""


def get(url: str) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def listening(words: list[str]) -> set[str]:
    """Return the addresses on which processes listen whose command line holds one of *words*."""
    table = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True, check=True).stdout
    return {line.split()[3] for line in table.splitlines() if any(f'(("{word}' in line for word in words)}


def address_of(lab, tunnel) -> str:
    """Return the first line that a tunnel prints; it must not end before."""
    lab.wait_for("an address", lambda: printed(lab, tunnel) or tunnel.poll() is not None, INSTALL_TIMEOUT)
    assert tunnel.poll() is None, lab.said(tunnel)
    return printed(lab, tunnel)[0]


def test_tensorboard_and_jupyter_answer_only_to_those_who_may(lab):
    """Runs are read from the bucket; Jupyter wants its token; only loopback; nothing is left."""
    lab.write(command="exec sleep 3000", vm="{machine_type: e2-small}")
    with (lab.work / "tpuctl.yaml").open("a") as file:
        board_port, jupyter_port = free_port(), free_port()
        file.write(
            f"sidecars: {{tensorboard: {{port: {board_port}}}, jupyter: {{on: tpu, port: {jupyter_port}}}}}\n"
        )
    lab.tpuctl("up")
    board = lab.start("tunnel", "tensorboard")
    jupyter = lab.start("tunnel", "jupyter", "--json")
    url = address_of(lab, board)
    page = json.loads(address_of(lab, jupyter))["url"]

    python = next(p.parent / "python" for p in VENVS.glob("*/bin/tensorboard") if _small(p))
    (lab.folder / "write.py").write_text(WRITE)
    subprocess.run([python, "write.py"], cwd=lab.folder, check=True, capture_output=True)
    (events,) = (lab.folder / "events").iterdir()
    address = json.loads((lab.cloud / "daemon.json").read_text())["endpoint"]
    place = f"/upload/storage/v1/b/{lab.bucket()}/o?uploadType=media&name=tensorboard/run1/{events.name}"
    urllib.request.urlopen(
        urllib.request.Request(address + place, events.read_bytes(), method="POST")
    ).close()
    lab.wait_for("the run", lambda: json.loads(get(f"{url}data/runs")[1]) == ["run1"], 60)
    tags = json.loads(get(f"{url}data/plugin/scalars/tags")[1])
    assert list(tags["run1"]) == ["loss"]

    base, _, token = page.partition("lab?token=")
    assert get(f"{base}api/status")[0] == 403
    assert get(f"{base}api/status?token={token}")[0] == 200
    assert get(page)[0] == 200
    places = listening(["tensorboard", "jupyter-lab"])
    assert len(places) >= 2
    assert all(place.startswith("127.") for place in places)
    logs = [path.read_text(errors="replace") for path in lab.cloud.glob("machines/*/opt/tpuctl/log/*")]
    assert len(logs) >= 4
    assert not any(token in text for text in logs)

    lab.tpuctl("down", "--yes", "--delete-data")
    for process in (board, jupyter):
        lab.end(process)
    assert lab.processes() == []


def _small(program) -> bool:
    """Return whether an environment is the sidecar's: the one with gcsfs and without TensorFlow."""
    packages = {path.name for path in program.parent.parent.glob("lib/python3*/site-packages/*")}
    return "gcsfs" in packages and "tensorflow" not in packages
