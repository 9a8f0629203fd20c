"""Commands that reach a machine say what they have not done when it is not there."""

import re

import pytest

from orchestrator.app.machines.workers import log_command
from orchestrator.scripts import wheel
from tests.docs.pages import text_of
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.mark.parametrize("words", [("exec", "--vm"), ("cp", "--vm", ":run.log", ".")], ids=["exec", "cp"])
def test_without_the_vm_no_connection_was_opened(tmp_path, words):
    """The error of the route knows nothing of the command, so the command's use case adds it."""
    with VirtualCloud(tmp_path).open() as cloud:
        user = User(cloud)
        after = ("--", "true") if words[0] == "exec" else ()
        said = user.type(*words, "--file", str(user.folder / "tpuctl.yaml"), *after)
    assert said.code == 1, said.err
    assert "the VM is not listed" in said.err
    assert "state: no connection was opened" in said.err


def test_a_log_on_a_machine_is_shown_by_a_command_of_its_cloud():
    """A machine of the local cloud has no sudo, and its folder is none of the computer's; the page has both."""
    found = [log_command(cloud, "watch", on_vm=True) for cloud in ("gcp", "local")]
    assert found == [
        "tpuctl ssh --vm -- sudo tail -n 30 /opt/tpuctl/log/watch.log",
        "tpuctl ssh --vm -- 'tail -n 30 $TPUCTL_ROOT/log/watch.log'",
    ]
    assert log_command("gcp", "sidecar-jupyter", on_vm=False).startswith("tpuctl ssh -- sudo tail ")
    page = text_of("docs/on-vm.md")
    assert [one for one in found if f"`{one.replace(' -n 30', '')}`" not in page] == []


def test_the_page_says_how_much_goes_to_the_vm_for_its_loop():
    """Who has a slow line wants to know it."""
    size = (len(wheel.build()) + len(wheel.lock())) / 1e6
    said = re.search(r"copies your tpuctl to the VM \(([\d.]+) MB\)", text_of("docs/on-vm.md"))
    assert float(said[1]) == pytest.approx(size, rel=0.15)
