"""Define the values of the local cloud: nodes, queued resources, VMs, operations, faults."""
