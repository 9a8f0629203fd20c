"""Model Compute Engine's VMs and their disks."""
