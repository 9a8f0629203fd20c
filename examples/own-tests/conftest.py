"""The fixture gcp: a Google Cloud inside the process."""

pytest_plugins = ["orchestrator.testing.plugin"]
