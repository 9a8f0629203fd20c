"""
Emulate Google Cloud for the official clients (the local cloud).

state/ decides and is pure, http/ speaks Google's APIs, machines/ are real processes; daemon.py joins them,
client.py answers inside the caller's process. Of tpuctl it imports only errors, clock and private_folders.
"""
