"""Name the layout of a job's saves for people."""


def format_name(name: str) -> str:
    """Return the name of a checkpoint format (docs/formats.md), of single files what they are."""
    return "plain files" if name == "files" else name
