"""
The local cloud: what the official clients talk to when there is no Google Cloud.

model/ is pure, wire/ speaks HTTP, hosts/ are real machines.
"""
