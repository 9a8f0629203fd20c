"""`watch` at the terminal: what cannot be drawn is reported, and all else is still shown."""

from orchestrator.app.loop import watch
from orchestrator.cli.views import job_progress
from orchestrator.engine.publish.outbox import Notifier


def test_a_notice_goes_out_though_the_pass_cannot_be_drawn(user, monkeypatch):
    """Whoever has asked for notices is not at the terminal; the loop goes on to the end."""
    reported = []

    def broken(*_):
        raise OverflowError("a number that cannot be drawn")

    take_pass = Notifier.take_pass
    monkeypatch.setattr(
        Notifier, "take_pass", lambda self, result: reported.append(result) or take_pass(self, result)
    )
    monkeypatch.setattr(job_progress.ProgressLine, "show", broken)
    monkeypatch.setattr(watch.Publication, "after", broken)
    said = user.watch(300)
    assert "could not be shown" in said.err, said.err
    assert len(reported) > 1
