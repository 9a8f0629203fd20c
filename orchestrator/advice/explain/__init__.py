"""Why a deployment is in its state: what was seen, which rule decided, what comes next. Pure."""
