"""Step and loss from what a training job prints. Hostile output costs a bounded time and never raises."""
