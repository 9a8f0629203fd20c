"""Name the deployments of this computer that use a quota which a create has met."""

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.app.deployment.session import Session
from orchestrator.app.this_computer.known import spec_in
from orchestrator.app.this_computer.state_folders import known_files
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.names import region_of
from orchestrator.domain.record import Span
from orchestrator.domain.spec import Spec
from orchestrator.engine.records.record_format import decode
from orchestrator.errors import QuotaError, TpuctlError
from orchestrator.pricing.cost_so_far import newest_span, priced_as


@contextmanager
def naming_quota_holders(session: Session) -> Iterator[None]:
    """Extend the hint of a quota error from the block by the other deployments here that use the same quota."""
    try:
        yield
    except QuotaError as error:
        if error.code == "TPU-350" and (held := quota_holders(session)):
            error.explain(hint=f"{'; '.join(held)}; {error.hint}")
        raise


def quota_holders(session: Session) -> list[str]:
    """Return a phrase for each other deployment of the project with a TPU under the quota of *session*'s."""
    found = []
    for path in known_files(session.choice.cloud):
        name, project = path.parent.name, path.parent.parent.name
        if project != session.project or name == session.spec.name:
            continue
        try:
            spec, record = spec_in(path), decode((path.parent / "record.json").read_bytes(), name)
        # Unreadable files are skipped here; the clean-up of expired deployments reports them.
        except (OSError, TpuctlError):
            continue
        span = newest_span(record)
        if span is not None and _same_quota(session.spec, spec, span, session.catalog):
            tpu = f"{span.type or spec.tpu.type} in {span.zone}"
            found.append(
                f"the deployment {name} of this computer uses it, with a {tpu}: `tpuctl down {name}` frees it"
            )
    return found


def _same_quota(wanted: Spec, spec: Spec, span: Span, catalog: Catalog) -> bool:
    """Return whether the TPU of *span* counts in the quota of a *wanted* one, as far as region and type tell."""
    regions = {region_of(zone) for zone in wanted.tpu.zones}
    theirs = priced_as(spec, span).tpu
    quotas = [catalog.quota_of(tpu.type, spot=tpu.spot) for tpu in (wanted.tpu, theirs)]
    return region_of(span.zone) in regions and quotas[0] is not None and quotas[0] == quotas[1]
