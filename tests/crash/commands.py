"""The commands of people as short-lived processes: each has its computer, takes the lease and gives it back."""

from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

from orchestrator.app.down import delete_all
from orchestrator.app.expired import remember
from orchestrator.app.reporter import Reporter
from orchestrator.app.up import Goal, pass_until, want
from orchestrator.domain.lease import LIFE
from orchestrator.errors import LeaseHeldError
from tests.crash.oracle import asked
from tests.crash.stage import ELSEWHERE, HERE
from tests.engine.engine_lab import DIGEST, PROJECT

LOOK = 15.0
"""Seconds after which somebody who was told that the lease is held tries again."""


@contextmanager
def process(stage, spec, place, **options):
    """
    Start a process that may act.

    On the computer of a killed one it is known to be dead; elsewhere its lease must run out first.
    """
    began, found, calls = stage.clock.now(), None, Counter(stage.cloud.calls)
    there = {"beside": True, "who": "there"} if place == ELSEWHERE else {}
    while found is None:
        try:
            found = stage.controller(spec, place, **there, **options)
        except LeaseHeldError:
            assert stage.clock.now() - began <= LIFE, "nobody could take over from a dead process"
            stage.clock.advance(LOOK)
    try:
        yield found
    finally:
        found.lease.release()
        asked(stage, calls)


def up(stage, spec, place=HERE):
    """`tpuctl up`."""
    # Nobody is logged in there, and settings of one run leave no mark for quick answers.
    where = SimpleNamespace(cloud="local", settings=("tpu.spot=true",))
    kept = SimpleNamespace(spec=spec, project=PROJECT, folder=stage.folder / place, choice=where)
    with process(stage, spec, place) as made:
        stage.step("save the spec", lambda: remember(kept))
        want(made.deployment, DIGEST["bundle"], DIGEST["agent"])
        return pass_until(Goal.JOB.reached, made.watcher, made.deployment, Reporter(), made.turns())


def watch(stage, spec, place=HERE):
    """`tpuctl watch`, until there is nothing to do; one that has ended stays so."""
    with process(stage, spec, place) as made:
        return made.run(Goal.JOB.reached)


def down(stage, spec, place=HERE, *, data=False):
    """`tpuctl down`, with --delete-data if *data*; return what it says is left."""
    with process(stage, spec, place, forgiving=True) as made:
        return delete_all(made.sweep(), stage.bucket if data else "")
