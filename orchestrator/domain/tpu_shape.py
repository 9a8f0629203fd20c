"""The shape of the TPU: what a node cannot change while it exists, so that another one takes its place."""

from dataclasses import replace

from orchestrator.domain.record import History, Span, newest_incarnation
from orchestrator.domain.spec import Spec

SPOT = "spot"


def shape_of(spec: Spec) -> str:
    """Return the shape that a deployment file asks for, in words."""
    tpu = spec.tpu
    price = SPOT if tpu.spot else "on demand"
    return f"{tpu.type}, {tpu.runtime}, {price}, external address {'yes' if tpu.external_ip else 'no'}"


def reshaped(history: History, shape: str) -> History:
    """
    Return the history with the shape that `up` wants; a node that was asked for with another one is unwanted.

    Records of earlier versions hold no shape: theirs is believed to be the one of the file. What ran up to
    now keeps its price.
    """
    if history.shape in {"", shape}:
        return replace(history, shape=shape)
    spans = tuple(_priced_by(history.shape, span) for span in history.spans)
    return replace(history, shape=shape, unwanted=newest_incarnation(history), spans=spans)


def _priced_by(shape: str, span: Span) -> Span:
    """Return the span of a TPU with the type and the price class of *shape*, unless it has its own."""
    if span.kind != "node":
        return span
    words = shape.split(", ")
    return replace(span, type=span.type or words[0], spot=SPOT in words if span.spot is None else span.spot)


def unwanted(history: History) -> bool:
    """Say whether the newest incarnation has another shape than the wanted one."""
    return 0 < history.incarnation <= history.unwanted
