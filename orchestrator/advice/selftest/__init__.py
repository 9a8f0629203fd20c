"""Define what a self-test may record of a real cloud, and how two recordings differ. Pure."""
