"""How long the commands take as whole processes, beside gcloud on the same local cloud."""
