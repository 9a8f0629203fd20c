"""Define what a rehearsal does to a run, and how the run is judged."""
