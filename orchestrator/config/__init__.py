"""From the deployment file, the environment and flags to a Spec; every complaint with its place."""
