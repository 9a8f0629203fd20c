"""Implement the stages of `tpuctl selftest`, on a real project or the local cloud."""
