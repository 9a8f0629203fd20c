"""Nobody ever comes back: which safety nets end the bill, and when (R14)."""

from contextlib import contextmanager, redirect_stderr
from io import StringIO
from types import SimpleNamespace
from unittest import mock

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment import expired
from orchestrator.app.deployment.expired import end_expired
from tests.crash import commands
from tests.crash.crash_lab import HERE
from tests.engine.engine_lab import PROJECT

SLACK = 600.0
"""Seconds after the time to live in which the bill has to stop."""


def check_abandoned(lab, spec):
    """
    Check that the VM has stopped by itself, and that the next command of another deployment ends the rest.

    Each safety net is one line here: what the machines do by themselves, then what the next command does.
    """
    lab.clock.advance(float(spec.watch.ttl) + SLACK)
    lab.cloud.tick()
    machines = [name for name in paid(lab) if not name.startswith("TPU")]
    assert not machines, f"paid for after the time to live: {machines}"
    next_command(lab)
    lab.wait(60)
    assert not paid(lab), f"paid for after the next command: {paid(lab)}"


def paid(lab):
    """Return our machines that cost money now; the disk of a stopped VM is kept on purpose."""
    uses = [use for use in lab.cloud.kernel.state.usage if use.end is None and "demo" in use.resource]
    kinds = {"tpu": "TPU", "vm": "VM"}
    return [f"{kinds[use.kind]} {use.resource}" for use in uses if use.kind in kinds]


def next_command(lab):
    """Do what every command does first: end what has expired on this computer, whatever its file says."""
    here = (lab.folder / HERE).parents[1]
    about = SimpleNamespace(cloud="gcp")
    other = SimpleNamespace(
        choice=about,
        clock=lab.clock,
        project=PROJECT,
        spec=SimpleNamespace(name="next"),
        reporter=Reporter(),
    )

    class Opened:
        """Stand in for what is opened over the real cloud: the same parts over the lab's."""

        def __init__(self, choice, sink, spec):
            self._spec = spec

        @contextmanager
        def holding_lease(self, command):
            with commands.process(lab, self._spec, HERE) as self._made:
                yield

        @property
        def records(self):
            return self._made.records

        @property
        def deployment(self):
            return self._made.deployment

    with (
        mock.patch.object(expired, "Session", Opened),
        mock.patch.object(expired, "state_folder", return_value=here),
        redirect_stderr(StringIO()),  # What it prints is the same at hundreds of points.
    ):
        end_expired(other)
