"""The checks of `tpuctl doctor`: facts in, findings out. Nothing here looks at the computer or calls anybody."""
