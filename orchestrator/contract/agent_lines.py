"""Write the agent's own lines in a job's log, and tell them from the job's."""

_FORM = "--- {} ---"
_ATTEMPT = "incarnation "


def agent_line(text: str) -> str:
    """Return *text* as a line of the agent's."""
    return _FORM.format(text)


def attempt_line(incarnation: int, worker: int, attempt: int, origin: str, reason: str) -> str:
    """Return the line before each start of the job; *origin* says from which step."""
    return agent_line(f"{_ATTEMPT}{incarnation}, worker {worker}, attempt {attempt}: {origin} ({reason})")


def is_agent_line(line: str) -> bool:
    """Say whether a line begins and ends as the agent's do."""
    before, after = _FORM.split("{}")
    return line.startswith(before) and line.endswith(after)


def begins_attempt(line: str) -> bool:
    """Say whether the job starts after this line."""
    return line.startswith(agent_line(_ATTEMPT).partition(_ATTEMPT)[0] + _ATTEMPT)
