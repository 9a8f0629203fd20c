"""What a command that was killed leaves in the lease, and what others say of it."""

from tests.kit.user import User


def test_status_names_no_loop_whose_process_was_killed_here(cloud, user):
    """On its computer that is known at once; elsewhere the lease has to run out."""
    other = User(cloud, "elsewhere")
    user.up()
    user.write("train.py", "print('other step')\n")
    assert user.run("up", kill=(2, "after")).code is None
    here = user.run("status", "--fresh", "--json").document
    there = other.run("status", "--fresh", "--json").document
    assert here["watcher"] is None
    assert there["watcher"]["alive"]
    assert "not running" in user.run("status", "--fresh").out
