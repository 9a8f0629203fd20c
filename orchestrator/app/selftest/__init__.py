"""The steps of `tpuctl selftest`, on a real project or on the local cloud."""
