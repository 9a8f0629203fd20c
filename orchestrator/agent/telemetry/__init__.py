"""Report what the job does: heartbeat, log, progress."""
