"""What a command says about the local cloud that it has started by itself."""

import pytest

pytestmark = pytest.mark.e2e


def test_only_a_local_cloud_that_goes_on_is_worth_a_line(lab):
    """A command that only observes starts it and stops it again; `up` leaves it running, and says so."""
    lab.use_example()
    observed = lab.tpuctl("status")
    assert "local cloud" not in observed.err
    up = lab.tpuctl("up", "--yes", "--set", "watch.poll=1s")
    lines = [line for line in up.err.splitlines() if "local cloud" in line and "billed" not in line]
    assert len(lines) == 1, up.err
    assert lines[0].startswith("the local cloud runs at http://127.0.0.1:")
    lab.tpuctl("local", "stop")
    looks = lab.tpuctl("status", "--fresh")
    (line,) = [line for line in looks.err.splitlines() if "local cloud" in line]
    assert line.startswith("the local cloud was stopped and is started again: it runs at http://127.0.0.1:")
    down = lab.tpuctl("down", "--yes", "--delete-data")
    assert down.err.count("local cloud had nothing left to do and was stopped") == 1
    again = lab.tpuctl("down", "--yes")
    assert "local cloud" not in again.err, "it did not run before"
