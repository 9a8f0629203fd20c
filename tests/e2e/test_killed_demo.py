"""A demo or a rehearsal that is killed: its local cloud ends with it."""

from pathlib import Path

import pytest

from tests.e2e.process_lab import ProcessLab

pytestmark = pytest.mark.e2e


def running_in(folder: Path) -> list[str]:
    """Return the commands of the processes that have *folder* in their command line."""
    lines = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                lines.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return [line for line in lines if str(folder) in line]


def test_a_killed_demo_leaves_no_machine_and_no_local_cloud(lab: ProcessLab) -> None:
    """The local cloud sees that its owner has ended, and cleans up in its place."""
    folder = lab.folder / "temporary"
    folder.mkdir()
    lab.environment["TMPDIR"] = str(folder)
    demo = lab.start("demo")
    machines = lab.wait_for("a machine", lambda: list(folder.glob("tpuctl-demo-*/cloud/machines/*")))
    cloud = machines[0].parents[1]
    assert running_in(cloud)
    demo.kill()
    demo.wait(30)
    lab.wait_for("the end of its local cloud", lambda: not cloud.exists() and not running_in(cloud))
