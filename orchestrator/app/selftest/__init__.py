"""Implement the steps of `tpuctl selftest`, on a real project or the local cloud."""
