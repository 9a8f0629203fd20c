"""The shape of the TPU: what a node cannot change while it exists, so that another one takes its place."""

from dataclasses import replace

from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record, Shape, Span, newest_incarnation
from orchestrator.domain.spec import Spec


def shape_of(spec: Spec) -> Shape:
    """Return the shape that a deployment file asks for."""
    tpu = spec.tpu
    return Shape(tpu.type, str(tpu.runtime), tpu.spot, tpu.external_ip)


def reshaped(record: Record, shape: Shape) -> Record:
    """
    Return the record with the shape that `up` wants; a node that was asked for with another one is unwanted.

    Records of earlier versions hold no shape: theirs is believed to be the one of the file. What ran up to
    now keeps its price.
    """
    before = record.node.shape
    if before is None or before == shape:
        return replace(record, node=replace(record.node, shape=shape))
    # Written down now: from here on the file says another type, and the bill would be counted by it.
    spans = tuple(_priced_by(before, span) for span in record.spans)
    return replace(
        record, node=replace(record.node, shape=shape, unwanted=newest_incarnation(record)), spans=spans
    )


def _priced_by(shape: Shape, span: Span) -> Span:
    """Return the span of a TPU with the type and the price class of *shape*, unless it has its own."""
    if span.kind is not Kind.NODE:
        return span
    return replace(span, type=span.type or shape.type, spot=shape.spot if span.spot is None else span.spot)


def unwanted(record: Record) -> bool:
    """Say whether the newest incarnation has another shape than the wanted one."""
    return 0 < record.node.incarnation <= record.node.unwanted
