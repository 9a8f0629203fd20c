"""Define the objects in the bucket that controller and machines exchange, and when a checkpoint is complete."""
