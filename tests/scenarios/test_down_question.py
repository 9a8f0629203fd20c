"""As long as nobody has answered the question of `down`, a watch goes on and keeps the job alive."""

import pytest
from click.exceptions import Exit

from tests.kit.user import User

G1, G2 = "demo-tpu-g1", "demo-tpu-g2"


@pytest.fixture
def at_the_question(cloud, user: User, monkeypatch):
    """Return the output of a `down` at whose open question a TPU is lost and another computer watches."""
    elsewhere, nodes = User(cloud, "elsewhere"), []

    def ask(answer):
        def approve(_name, _data_goes):
            cloud.model.preempt(G1, notice=False)
            assert elsewhere.watch(600).code == 130, "it runs until its Ctrl-C"
            nodes.extend(cloud.nodes())
            if answer == "no":
                raise Exit(1)

        user.up()
        monkeypatch.setattr("orchestrator.cli.questions.confirm_deletion", lambda *, yes: approve)
        return user.run("down", "--yes"), nodes

    return ask


def test_a_watch_replaces_a_lost_tpu_while_the_question_is_open_and_goes_on_after_a_no(
    cloud, at_the_question
):
    """`down` had taken the lease before it asked: the watch ended, and nobody looked after the job."""
    ended, nodes = at_the_question("no")
    assert ended.code == 1
    assert nodes == [G2]
    assert list(cloud.nodes()) == [G2]


def test_what_was_made_while_the_question_was_open_goes_too(cloud, at_the_question):
    """It is the same deployment, and it is named."""
    ended, nodes = at_the_question("yes")
    assert (ended.code, nodes, cloud.nodes()) == (0, [G2], {})
    assert f"- TPU {G2} europe-west4-b READY, made since then" in ended.err


def test_a_watch_that_ran_before_goes_on_after_a_no(cloud, user: User, monkeypatch):
    """Nothing of `down` reaches it before the answer, not even a wish for the lease."""
    elsewhere, ended = User(cloud, "elsewhere"), []

    def approve(_name, _data_goes):
        raise Exit(1)

    user.up()
    monkeypatch.setattr("orchestrator.cli.questions.confirm_deletion", lambda *, yes: approve)
    cloud.later(120, lambda: ended.append(user.run("down", "--yes").code))
    cloud.later(240, lambda: cloud.model.preempt(G1, notice=False))
    assert elsewhere.watch(900).code == 130, "it runs until its Ctrl-C"
    assert (ended, list(cloud.nodes())) == ([1], [G2])
