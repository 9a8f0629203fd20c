"""Hold the lease, so that only one process acts on a deployment."""
