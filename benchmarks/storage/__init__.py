"""How fast checkpoints go to the bucket and come back, beside other clients, the disk and the loopback."""
