"""One deployment that is open: its session, its end at the time to live, its bill after its end."""
