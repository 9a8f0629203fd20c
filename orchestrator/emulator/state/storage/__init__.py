"""
Emulate Cloud Storage: buckets, objects, uploads.

Pure apart from the blob backend. Callers with several threads hold Storage.lock.
"""
