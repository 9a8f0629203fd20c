"""Run the tasks of a fleet's jobs, on one machine or on several."""
