"""Build a Spec from the deployment file, the environment and flags; every finding names its place."""
