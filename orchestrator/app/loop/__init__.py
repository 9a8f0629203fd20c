"""Keep a deployment alive: the loop of one or of all, here or on the VM, who holds it, and what it publishes."""
