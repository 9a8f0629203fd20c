"""`tpuctl ssh-config`: what OpenSSH reads of it, and what it does to a file that belongs to the user."""

import pytest

from tests.kit.user import User

OWN = "Host *\n  User me\n# no line feed at the end"


@pytest.fixture
def user(cloud):
    """Give a user with a configuration of OpenSSH."""
    one = User(cloud, tpu__type="v5litepod-16", vm={})
    (one.folder / ".ssh").mkdir(mode=0o700)
    config(one).write_text(OWN)
    config(one).chmod(0o640)
    return one


def config(user):
    """Return the user's own configuration."""
    return user.folder / ".ssh" / "config"


def backups(user):
    """Return the copies of it."""
    return sorted(user.folder.glob(".ssh/config.before-tpuctl*"))


def test_the_blocks_name_every_machine_and_no_address(user):
    """They are the same before, during and after the lifetime of a TPU, and weaken nothing."""
    before = user.run("ssh-config", "--json")
    assert before.code == 0, before.err
    found = before.document
    assert found["hosts"] == ["demo", "demo-w0", "demo-w1", "demo-w2", "demo-w3", "demo-vm"]
    user.up()
    assert user.run("ssh-config", "--json").document == found
    assert "HostName" not in found["config"]
    blocks = found["config"].split("\n\n")
    for block, machine in zip(blocks, ("w0", "w1", "w2", "w3", "vm"), strict=True):
        assert f"HostKeyAlias demo-{machine}\n" in block
        assert "StrictHostKeyChecking yes\n" in block
        assert f"--cloud gcp --file {user.folder}/tpuctl.yaml {machine}\n" in block


def test_what_the_user_has_written_stays_byte_for_byte(user):
    """Our lines stand above it; a second time changes nothing, and --remove takes out no more than they."""
    said = user.run("ssh-config", "--write", "--yes", "--json")
    assert said.code == 0, said.err
    assert config(user).read_text().endswith(f"\n\n{OWN}")
    assert config(user).read_text().splitlines()[1] == f'Include "{user.state}/ssh/*.conf"'
    assert config(user).stat().st_mode & 0o777 == 0o640
    assert [one.read_text() for one in backups(user)] == [OWN]
    assert (user.state / "ssh" / "gcp-local-project-demo.conf").read_text() == said.document["config"]
    # Nothing is left to ask, so nobody has to be there.
    again = user.run("ssh-config", "--write", "--json")
    assert (again.code, again.document["changed"], len(backups(user))) == (0, False, 1)
    more = config(user).read_text() + "\nHost other\n"
    config(user).write_text(more)
    assert user.run("ssh-config", "--remove").code == 0
    assert config(user).read_text() == f"{OWN}\nHost other\n"
    assert not (user.state / "ssh" / "gcp-local-project-demo.conf").exists()


def test_without_an_answer_nothing_is_changed(user):
    """Without a terminal it needs --yes."""
    said = user.run("ssh-config", "--write")
    assert (said.code, config(user).read_text(), backups(user)) == (2, OWN, [])
    assert not (user.state / "ssh").exists()


def test_a_linked_configuration_stays_a_link(user):
    """Dotfiles are often kept elsewhere."""
    place = user.folder / "dotfiles"
    config(user).rename(place)
    config(user).symlink_to(place)
    assert user.run("ssh-config", "--write", "--yes").code == 0
    assert config(user).is_symlink()
    assert place.read_text().startswith("# tpuctl")


def test_lines_that_the_user_has_changed_are_not_touched(user):
    """They are not ours any more."""
    assert user.run("ssh-config", "--write", "--yes").code == 0
    changed = config(user).read_text().replace("*.conf", "demo.conf")
    config(user).write_text(changed)
    assert user.run("ssh-config", "--remove").code == 0
    assert config(user).read_text() == changed


def test_the_last_deployment_takes_the_line_with_it(cloud, user):
    """As long as one is there, the other ones' removal changes nothing of the user's."""
    other = User(cloud, "second", beside=user, name="other")
    assert user.run("ssh-config", "--write", "--yes").code == 0
    config(other).parent.mkdir()
    config(other).symlink_to(config(user))
    assert other.run("ssh-config", "--write").code == 0
    assert user.run("ssh-config", "--remove", "--json").document["changed"] is False
    assert other.run("ssh-config", "--remove", "--json").document["changed"] is True
    assert config(user).read_text() == OWN
    assert "was not there" in other.run("ssh-config", "--remove").err


def test_the_file_goes_with_the_data(user):
    """OpenSSH would be led to a key that is no more."""
    user.up()
    assert user.run("ssh-config", "--write", "--yes").code == 0
    user.down()
    assert len(list((user.state / "ssh").iterdir())) == 1
    user.down("--delete-data")
    assert list((user.state / "ssh").iterdir()) == []


@pytest.mark.parametrize("name", ['say"x', "a\nHost *", "100%h", "$HOME", "st*r"])
def test_a_folder_that_openssh_reads_otherwise_is_refused(user, name):
    """It would be another file, or another line."""
    user.state = user.folder / name / "state"
    (user.state / "gcp").mkdir(parents=True)
    said = user.run("ssh-config", "--write", "--yes")
    assert (said.code, config(user).read_text()) == (2, OWN)
    assert "OpenSSH cannot be told of th" in said.err


def test_write_and_remove_together_are_refused(user):
    """--write and --remove together mean nothing."""
    assert user.run("ssh-config", "--write", "--remove", "--yes").code == 2
    assert config(user).read_text() == OWN
