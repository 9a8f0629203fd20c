"""Export the deployment as plain scripts or as another system's files, with a list of what is unsupported."""
