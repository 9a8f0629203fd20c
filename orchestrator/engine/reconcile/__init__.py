"""One pass over a deployment: observe, decide (in `planning`), apply."""
