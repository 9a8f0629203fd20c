"""Read and write the objects of the bucket that machines share: heartbeats, checkpoints, logs, claims."""
