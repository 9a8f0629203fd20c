"""
The local cloud: what the official clients talk to when there is no Google Cloud.

state/ decides and is pure, http/ speaks as Google's APIs do, machines/ are real processes; daemon.py joins them,
client.py answers in this very process. Of tpuctl it knows errors and the clock.
"""
