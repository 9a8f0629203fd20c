"""Read and write the objects of the bucket that machines and controller share: lease, heartbeats, checkpoints."""
