"""Model Cloud TPU v2: nodes, queued resources, reservations."""
