"""Tell what happened: events, notifications, and the status that readers need no cloud for."""
