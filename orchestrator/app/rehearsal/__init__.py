"""Implement `tpuctl rehearse`: compare a run with failures to an undisturbed one."""
