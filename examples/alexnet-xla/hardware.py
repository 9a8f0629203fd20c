"""
Choose before torch_xla is imported: the TPU of this machine, or replicas on its CPU.
"""

import os
import threading
from pathlib import Path


def choose(replicas):
    """
    Set the variables that torch_xla reads, and return whether it will run on the CPU.

    On a TPU its own cores are used and *replicas* is not looked at. torch_xla is told to finish each transfer
    before the next one, and gets enough threads that the replicas, which wait for each other, all run.
    """
    if [*Path("/dev").glob("accel[0-9]*"), *Path("/dev").glob("vfio/[0-9]*")]:
        os.environ["PJRT_DEVICE"] = "TPU"
        return False
    os.environ.update(
        PJRT_DEVICE="CPU",
        CPU_NUM_DEVICES=str(replicas),
        PJRT_CPU_ASYNC_CLIENT="0",
        PJRT_NPROC=str(4 * replicas),
        XLA_THREAD_POOL_SIZE=str(4 * replicas),
    )
    return True


def compile_one_at_a_time():
    """
    Let replicas on the CPU start their steps one after the other.

    They are threads of one process. XLA finds the partners of an all-reduce by the number of the compiled
    program; two threads that compile the same one at once get two numbers, and both wait for ever. So each
    waits for its own device outside of the lock, and starts its step inside.
    """
    # ruff: noqa: SLF001 (torch_xla has no public names for these)
    from torch_xla import _XLAC

    lock, start = threading.Lock(), _XLAC._xla_step_marker

    def wait_for_own_device():
        _XLAC._xla_wait_device_ops(_XLAC._xla_real_devices([_XLAC._xla_get_default_device()])[:1])

    def step_marker(device="", devices=(), wait=False, reset_scope=True):
        wait_for_own_device()
        with lock:
            start(device, list(devices), wait=False, reset_scope=reset_scope)
        if wait:
            wait_for_own_device()

    _XLAC._xla_step_marker = step_marker
