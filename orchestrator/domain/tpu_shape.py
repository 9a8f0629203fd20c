"""Compare TPU shapes: settings that a node cannot change while it exists, so that it must be replaced."""

from dataclasses import replace

from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record, Shape, Span, next_incarnation
from orchestrator.domain.spec import Spec


def shape_of(spec: Spec) -> Shape:
    """Return the shape that a deployment file asks for."""
    tpu = spec.tpu
    return Shape(tpu.type, str(tpu.runtime), tpu.spot, tpu.external_ip)


def reshaped(record: Record, shape: Shape) -> Record:
    """
    Return the record with the shape that `up` wants; a node of another shape becomes unwanted.

    Records of earlier versions hold no shape, so their TPUs are assumed to have the file's. Existing TPUs
    keep their price.
    """
    before = record.node.shape
    if before is None or before == shape:
        return replace(record, node=replace(record.node, shape=shape))
    # Recorded now, because the file names another type from here on, and the bill would use that.
    spans = tuple(_priced_by(before, span) for span in record.spans)
    return replace(
        record, node=replace(record.node, shape=shape, unwanted=next_incarnation(record) - 1), spans=spans
    )


def _priced_by(shape: Shape, span: Span) -> Span:
    """Return the span of a TPU with the type and price class of *shape*, unless it has its own."""
    if span.kind is not Kind.NODE:
        return span
    return replace(span, type=span.type or shape.type, spot=shape.spot if span.spot is None else span.spot)


def unwanted(record: Record) -> bool:
    """Return whether the newest incarnation has another shape than the wanted one."""
    return 0 < record.node.incarnation <= record.node.unwanted
