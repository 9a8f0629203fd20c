"""Commands that reach a machine say what they have not done when it is not there."""

import pytest

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
