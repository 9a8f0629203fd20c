"""
The Cloud Storage of the local cloud: buckets, objects, uploads.

Pure apart from the blob backend. Whoever calls from several threads holds Storage.lock.
"""
