"""Parse step and loss from a training job's output. Hostile output costs a bounded time and never raises."""
