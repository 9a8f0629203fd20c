"""Define the checks of `tpuctl doctor`: facts in, findings out, without any I/O."""
