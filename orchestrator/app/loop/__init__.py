"""Keep a deployment alive: the loop of one or of all, here or on the VM, and what it publishes."""
