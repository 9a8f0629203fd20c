"""
The shape of the TPU: what a node cannot change while it exists, so that another one takes its place.
"""

from dataclasses import replace

from orchestrator.core.history import History, newest_incarnation
from orchestrator.core.spec import Spec


def shape_of(spec: Spec) -> str:
    """
    Return the shape that a deployment file asks for, in words.
    """
    tpu = spec.tpu
    price = "spot" if tpu.spot else "on demand"
    return f"{tpu.type}, {tpu.runtime}, {price}, external address {'yes' if tpu.external_ip else 'no'}"


def reshaped(history: History, shape: str) -> History:
    """
    Return the history with the shape that `up` wants; a node that was asked for with another one is unwanted.

    Records of earlier versions hold no shape: theirs is believed to be the one of the file.
    """
    other = history.shape not in {"", shape}
    return replace(history, shape=shape, unwanted=newest_incarnation(history) if other else history.unwanted)


def unwanted(history: History) -> bool:
    """
    Say whether the newest incarnation has another shape than the wanted one.
    """
    return 0 < history.incarnation <= history.unwanted
