"""What zones refuse to a hundred nodes is a line for each zone and cause."""

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.fleet.watch import REFUSED_SECONDS, Refusals


class LineReporter(Reporter):
    """Keep what is said."""

    def __init__(self):
        self.all = []

    def say(self, text, *, style=""):
        """Take one line."""
        self.all.append(text)


def test_a_refusal_is_reported_once_and_again_when_more_nodes_have_met_it():
    """However often each of them asks; another zone and another cause are news at once."""
    lines = LineReporter()
    refusals = Refusals(lines)
    for second in range(int(REFUSED_SECONDS)):
        refusals.take(f"n-{second % 9}", "z-a", "quota", 1000.0 + second)
    assert lines.all == ["z-a: quota, refused to 1 node; why: tpuctl explain n-0"]
    refusals.take("n-0", "z-a", "capacity", 1001.0)
    refusals.take("n-0", "z-b", "quota", 1002.0)
    assert len(lines.all) == 3
    for second in range(600):
        refusals.take(f"n-{second % 9}", "z-a", "quota", 1000.0 + REFUSED_SECONDS + second)
    assert lines.all[3:] == ["z-a: quota, refused to 9 nodes; why: tpuctl explain n-0"]
