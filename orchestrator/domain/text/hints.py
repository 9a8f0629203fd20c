"""Hints that several outputs give."""

LOAD_CHECKPOINT = (
    "let the script load the newest checkpoint and its step from $TPUCTL_CHECKPOINT_DIR (`tpuctl rehearse` shows "
    "whether it does), then: tpuctl push"
)
