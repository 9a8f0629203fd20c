"""What a use case is given: the choices of the caller, the cloud that was chosen, and where progress goes."""
