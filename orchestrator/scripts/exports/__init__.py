"""The deployment as files of something else: plain scripts, or another system's own; what is lost with each."""
