"""The shape of the TPU: what a node cannot change while it exists, so that another one takes its place."""

from dataclasses import replace

from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record, Span, newest_incarnation
from orchestrator.domain.spec import Spec

SPOT = "spot"


def shape_of(spec: Spec) -> str:
    """Return the shape that a deployment file asks for, in words."""
    tpu = spec.tpu
    price = SPOT if tpu.spot else "on demand"
    return f"{tpu.type}, {tpu.runtime}, {price}, external address {'yes' if tpu.external_ip else 'no'}"


def reshaped(record: Record, shape: str) -> Record:
    """
    Return the record with the shape that `up` wants; a node that was asked for with another one is unwanted.

    Records of earlier versions hold no shape: theirs is believed to be the one of the file. What ran up to
    now keeps its price.
    """
    if record.node.shape in {"", shape}:
        return replace(record, node=replace(record.node, shape=shape))
    spans = tuple(_priced_by(record.node.shape, span) for span in record.spans)
    return replace(
        record, node=replace(record.node, shape=shape, unwanted=newest_incarnation(record)), spans=spans
    )


def _priced_by(shape: str, span: Span) -> Span:
    """Return the span of a TPU with the type and the price class of *shape*, unless it has its own."""
    if span.kind is not Kind.NODE:
        return span
    words = shape.split(", ")
    return replace(span, type=span.type or words[0], spot=SPOT in words if span.spot is None else span.spot)


def unwanted(record: Record) -> bool:
    """Say whether the newest incarnation has another shape than the wanted one."""
    return 0 < record.node.incarnation <= record.node.unwanted
