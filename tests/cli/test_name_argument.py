"""A deployment that this computer has brought up is reached by its NAME, in a folder without its file."""

import pytest

from tests.kit.user import User


@pytest.fixture
def user(elsewhere):
    """Give a user who types names."""
    return elsewhere()


def test_down_deletes_the_named_one_and_no_other(cloud, user):
    """The other's TPU runs on; a name that nothing is known of deletes nothing."""
    assert len(cloud.in_use()) == 2
    said = user.type("down", "demo", "--yes")
    assert said.code == 0, said.err
    assert cloud.in_use() == ["other-tpu-g1"]
    assert user.type("down", "nobody", "--yes").code == 2
    assert cloud.in_use() == ["other-tpu-g1"]


def test_down_of_a_name_whose_data_is_deleted_says_so(user):
    """Only its bill is left."""
    assert user.type("down", "demo", "--yes", "--delete-data").code == 0
    said = user.type("down", "demo", "--yes", "--delete-data")
    assert said.code != 0
    assert "there is nothing to delete: `tpuctl down --delete-data` deleted the data of demo" in said.err


def test_watch_replaces_the_tpu_of_the_named_one(cloud, user):
    """It has what `up` kept; the other one is left alone."""
    cloud.later(100, lambda: [cloud.model.preempt(name, notice=False) for name in cloud.in_use()])
    said = user.type("watch", "other", interrupt=900)
    assert said.code == 130, said.err
    assert cloud.in_use() == ["other-tpu-g2"]
    refused = user.type("watch", "--all", "other")
    assert (refused.code, "--all and NAME exclude each other" in refused.err) == (2, True)


@pytest.mark.parametrize(
    "words", [("logs",), ("logs", "--events"), ("checkpoints",), ("checkpoints", "list")]
)
def test_what_the_bucket_holds_is_shown_by_name(user, words):
    """The controller's log has the event of the named one's TPU; no file is missed."""
    said = user.type(*words, "other")
    assert said.code == 0, said.err
    assert ("other-tpu-g1" in said.out) == ("--events" in words)
    assert user.type(*words, "nobody").code == 2


@pytest.mark.parametrize("words", [("down", "--yes"), ("watch",), ("watch", "--on-vm")])
def test_what_acts_takes_no_file_beside_a_name(cloud, user, words):
    """They may mean different deployments, and no guess decides which one is deleted."""
    said = user.run(*words, "other")
    assert said.code == 2
    assert "NAME and --file exclude each other" in said.err
    assert len(cloud.in_use()) == 2


@pytest.mark.parametrize(
    ("words", "reads"), [(("push",), True), (("ssh-config",), True), (("init", "a"), False)]
)
def test_a_word_too_many_says_what_the_command_is_about(user, words, reads):
    """Where a name is not taken, the way to another deployment is its file."""
    said = user.type(*words, "other")
    command = f"tpuctl {words[0]}"
    assert said.code == 2
    assert f"`{command}` takes no 'other'" in said.err
    assert (f"{command} --file FILE" in said.err, f"see: {command} --help" in said.err) == (reads, not reads)


@pytest.mark.parametrize(
    "words", [("down", "--yes"), ("logs",), ("watch",), ("explain",), ("checkpoints", "list")]
)
def test_without_a_file_the_hint_is_the_name_and_not_a_new_file(user, words):
    """Whoever wrote a new file was told that nothing of it is left, while the machines ran."""
    said = user.type(*words)
    assert (said.code, "TPU-111" in said.err) == (2, True)
    command = " ".join(("tpuctl", *(word for word in words if word != "--yes")))
    assert (
        f"run: {command} NAME   (still billed, as far as known: demo, other; all: tpuctl status --all)"
        in said.err
    )
    assert "tpuctl init" not in said.err
    assert user.type("down", "demo", "--yes").code == 0
    assert "(still billed, as far as known: other; " in user.type(*words).err
    assert user.type("down", "other", "--yes").code == 0
    assert "(known: demo, other; " in user.type(*words).err


def test_a_mistake_in_the_file_names_the_way_past_it(cloud, user):
    """It must not keep anyone from ending what is billed."""
    (user.folder / "tpuctl.yaml").write_text("name: demo\ntpu: {typ: v5litepod-8}\n")
    said = user.run("down", "--yes")
    assert (said.code, "TPU-110" in said.err) == (2, True)
    assert "; without the file: tpuctl down NAME   (still billed, as far as known: demo, other; " in said.err
    assert "NAME" not in user.run("plan").err


def test_where_no_deployment_is_known_the_file_is_named_and_init(cloud, tmp_path, monkeypatch):
    """Down has nothing to write a file for."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    said = User(cloud).type("down", "--yes")
    assert "next:  tpuctl down --file FILE; for a first deployment: tpuctl init" in said.err
