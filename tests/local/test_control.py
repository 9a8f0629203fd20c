"""
The local cloud is started by one command; the others wait for that one, but not for ever.
"""

import pytest
from filelock import FileLock

from orchestrator.errors import LocalCloudError
from orchestrator.local import control
from orchestrator.local.places import local_folder


def test_a_command_that_stands_still_while_it_starts_the_local_cloud_holds_up_no_other(monkeypatch, tmp_path):
    """It keeps the lock, so nobody else starts a second one; they say so and end."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
    monkeypatch.setattr(control, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(control, "_start", lambda *_, **__: pytest.fail("a second one was started"))
    local_folder().mkdir(parents=True)
    with FileLock(local_folder() / "start.lock"):
        with pytest.raises(LocalCloudError) as caught:
            control.ensure_running()
    assert caught.value.unchanged == "nothing was started"
