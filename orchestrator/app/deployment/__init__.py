"""One deployment that is open: its session, its end at the time to live, its cost after its end."""
