"""Write the agent's own lines in a job's log, and tell them from the job's."""

import re

BEGIN, END = "--- ", " ---"
"""Around the text of each line of the agent's."""
ENDINGS = ("done", "uncommitted", "notice", "stopped", "fenced", "cut off", "gave up")
"""First words of the line with which an agent ends."""
EARLIER_ENDINGS = ("unclaimed", "asked")
"""What agents of earlier releases wrote, which the logs in buckets still have."""
# Agents of earlier releases called the TPU an incarnation, and buckets keep their logs.
_ATTEMPT = re.compile(r"--- (?:TPU #|incarnation )\d+, worker \d+, attempt \d+: ")
_ENDING = re.compile(rf"--- (?:{'|'.join((*ENDINGS, *EARLIER_ENDINGS))}): ")


def agent_line(text: str) -> str:
    """Return *text* as one line of the agent's, whatever line feeds it has."""
    return f"{BEGIN}{' '.join(text.split())}{END}"


def attempt_text(incarnation: int, worker: int, attempt: int, origin: str, message: str) -> str:
    """Return what the agent writes before each start of the job; *origin* says from which step."""
    return f"TPU #{incarnation}, worker {worker}, attempt {attempt}: {origin} ({message})"


def resume_text(path: str, folder: str) -> str:
    """Return from which checkpoint the job goes on: *path*, in short if it is in the *folder* of its saves."""
    inside = f"{path}/".startswith(f"{folder.rstrip('/')}/")
    short = f"$TPUCTL_CHECKPOINT_DIR{path[len(folder.rstrip('/')) :]}" if inside else path
    return f"checkpoint: {short} (also in $TPUCTL_RESUME)"


def is_agent_line(line: str) -> bool:
    """Return whether a line begins and ends as the agent's do."""
    return line.startswith(BEGIN) and line.endswith(END)


def begins_attempt(line: str) -> bool:
    """Return whether the job starts after this line."""
    return _ATTEMPT.match(line) is not None


def ends_agent(line: str) -> bool:
    """Return whether this is the line with which an agent ends."""
    return _ENDING.match(line) is not None and is_agent_line(line)
