"""Publish each look of the loop: for `status` and the dashboard, and as metrics."""

from orchestrator.app.metrics import Metrics
from orchestrator.app.session import Session
from orchestrator.app.status import Observation, body_of, loop_of
from orchestrator.domain.observation import Present
from orchestrator.engine.published_status import Publisher, read_curve
from orchestrator.engine.reconcile import Pass


class Publication:
    """Publish what the passes of one command see, as long as it runs."""

    def __init__(self, session: Session, metrics: Metrics | None = None) -> None:
        self._session = session
        self._metrics = metrics
        self._out = Publisher(session.cloud.store, session.folder, session.holder.id, session.key)
        if session.records.in_bucket:
            self._out.curve = read_curve(session.cloud.store)

    def after(self, result: Pass) -> None:
        """Publish one pass."""
        session, record, world = self._session, self._session.records.current, result.world
        observation = Observation(world, record, session.cost(record, world.observed_at), result.plan)
        body = body_of(session, observation, loop_of(session.holder, 0.0))
        usable = record.bucket.observed and isinstance(world.bucket, Present)
        beats = world.heartbeats.value if isinstance(world.heartbeats, Present) else ()
        news = [
            body["outcome"],
            body["resources"],
            body["next"],
            [(b.phase, b.step, b.committed_step) for b in beats],
        ]
        now = session.clock.now()
        self._out.publish(body, news, now, usable=usable)
        for beat in beats:
            if beat.worker == 0 and beat.step is not None:
                self._out.draw(beat.step, beat.loss, beat.incarnation, beat.updated, usable=usable)
        if self._metrics is not None:
            self._metrics.update(body, world.observed_at, failures=len(result.failures))

    def close(self) -> None:
        """Say that nobody looks any more."""
        if self._session.records.current.bucket.observed:
            self._out.save_curve(self._session.clock.now())
        self._out.withdraw()
