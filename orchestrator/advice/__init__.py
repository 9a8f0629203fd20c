"""What people are told before something goes wrong, and after: check, doctor, explain, rehearsals. Pure."""
