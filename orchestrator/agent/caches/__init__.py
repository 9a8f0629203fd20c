"""Keep what a machine has installed, compiled or downloaded for the next machines."""
