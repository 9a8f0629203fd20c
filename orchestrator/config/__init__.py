"""Build a Spec from the deployment file, the environment and flags; every complaint names its place."""
