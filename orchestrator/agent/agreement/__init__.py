"""Agree with other machines through the bucket: on attempts, on the saves to commit, on the winner of a race."""
