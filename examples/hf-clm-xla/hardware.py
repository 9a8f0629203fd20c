"""
Choose before torch_xla is imported: the TPU of this machine, or its CPU.
"""

import os
from pathlib import Path


def choose():
    """
    Set the variables that torch_xla reads; return the number of processes for xmp.spawn.

    None means one for each chip of the TPU. The CPU is one device, without a process of its own.
    """
    if [*Path("/dev").glob("accel[0-9]*"), *Path("/dev").glob("vfio/[0-9]*")]:
        os.environ["PJRT_DEVICE"] = "TPU"
        return None
    os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES="1", PJRT_CPU_ASYNC_CLIENT="0")
    return 1
