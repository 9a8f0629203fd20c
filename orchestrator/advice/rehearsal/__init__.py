"""What a rehearsal does to a run, and how it is judged."""
