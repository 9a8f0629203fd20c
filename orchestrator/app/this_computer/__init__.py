"""Read what this computer knows: its deployments, logins, state folders, and which process watches."""
