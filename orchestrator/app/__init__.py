"""One function for each use case, and what they share: they take a session and never print."""
