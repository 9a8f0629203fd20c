"""
Find out at run time what there is to train on.
"""

from pathlib import Path

import tensorflow as tf


def strategy(tpu, replicas):
    """
    Return a TPUStrategy where there is a TPU, else a MirroredStrategy over *replicas* parts of the CPU.

    *tpu* is auto, none, local or the name of a TPU node. With auto the machine's own chips are used. The
    variable TPU_NAME is not looked at: TensorFlow would ask Google's API for a node of that name.
    """
    name = "local" if tpu == "auto" and chips() else tpu
    if name not in ("auto", "none"):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    # Determinism costs little here, and makes a resumed run comparable to an unbroken one.
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(0)
    tf.config.threading.set_inter_op_parallelism_threads(replicas)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    return tf.distribute.MirroredStrategy(devices)


def chips():
    """
    Return the device files of the machine's TPU chips.
    """
    return [*Path("/dev").glob("accel[0-9]*"), *Path("/dev").glob("vfio/[0-9]*")]
