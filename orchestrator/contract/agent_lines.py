"""Write the agent's own lines in a job's log, and tell them from the job's."""

import re
import textwrap
from typing import Tuple

_FORM = "--- {} ---"
WIDTH = 80
"""Most columns of a line of the agent's, unless one word is longer."""
ENDINGS = ("done", "unclaimed", "notice", "asked", "fenced", "cut off", "gave up")
"""First words of the line with which an agent ends."""
# Agents of earlier releases called the TPU an incarnation, and buckets keep their logs.
_ATTEMPT = re.compile(r"--- (?:TPU #|incarnation )\d+, worker \d+, attempt \d+: ")
_ENDING = re.compile(rf"--- (?:{'|'.join(ENDINGS)}): ")


def agent_line(text: str) -> str:
    """Return *text* as a line of the agent's."""
    return _FORM.format(text)


def agent_lines(text: str) -> Tuple[str, ...]:
    """Return *text* as lines of the agent's, wrapped between words."""
    room = WIDTH - len(agent_line(""))
    parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return tuple(agent_line(part) for part in parts)


def attempt_text(incarnation: int, worker: int, attempt: int, origin: str, reason: str) -> str:
    """Return what the agent writes before each start of the job; *origin* says from which step."""
    return f"TPU #{incarnation}, worker {worker}, attempt {attempt}: {origin} ({reason})"


def is_agent_line(line: str) -> bool:
    """Say whether a line begins and ends as the agent's do."""
    before, after = _FORM.split("{}")
    return line.startswith(before) and line.endswith(after)


def begins_attempt(line: str) -> bool:
    """Say whether the job starts after this line."""
    return _ATTEMPT.match(line) is not None


def ends_agent(line: str) -> bool:
    """Say whether this is the line with which an agent ends."""
    return _ENDING.match(line) is not None and is_agent_line(line)
