"""
OAuth scopes of the machines: what their service account may be used for from inside.

A scope limits, it does not grant: the account still needs its role on the bucket. An empty list
would mean every API of the project, so it is never empty.
"""

STORAGE = "https://www.googleapis.com/auth/devstorage.read_write"
LOGGING = "https://www.googleapis.com/auth/logging.write"

MACHINE_SCOPES = (STORAGE, LOGGING)
"""
What TPU workers and the VM get.
"""
