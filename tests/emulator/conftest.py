"""Machines of both kinds for the tests of this folder."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from orchestrator.emulator.machines.namespace import available
from tests.emulator.machines_lab import KINDS, MachineLab, lab

MakeLab = Callable[..., AbstractContextManager[MachineLab]]


@pytest.fixture(params=["process", pytest.param("namespace", marks=pytest.mark.namespace)])
def kind(request, tmp_path) -> str:
    """Return the kind of machines, or skip where it cannot run."""
    reason = available(tmp_path) if request.param == "namespace" else None
    if reason:
        pytest.skip(reason)
    return request.param


@pytest.fixture
def make(kind, tmp_path) -> MakeLab:
    """Return a maker of labs of this kind."""
    return partial(lab, KINDS[kind], tmp_path)


@pytest.fixture
def booted(make) -> Iterator[MachineLab]:
    """Boot a machine."""
    with make() as it:
        it.boot()
        yield it
