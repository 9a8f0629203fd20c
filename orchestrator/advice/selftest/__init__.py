"""What a self-test may write down of a real cloud, and how two such recordings differ. Pure."""
