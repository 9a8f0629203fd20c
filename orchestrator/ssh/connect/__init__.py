"""One connection: its route, the host key that is expected, and its limits in time and bytes."""
