"""Show what was exported, and what is unsupported without tpuctl."""

from orchestrator.app.export import Exported
from orchestrator.cli.console import print_json, put, say
from orchestrator.cli.views.init import line


def show(done: Exported, *, as_json: bool) -> None:
    """Print what is unsupported, where the files are, and the next step."""
    if as_json:
        print_json("export", done.as_dict())
        return
    if done.unsupported:
        put("Lost:")
    for row in done.unsupported:
        line(row.what, row.message, max(len(row.what) for row in done.unsupported))
    where = f"{len(done.files)} files are in {done.folder}, for project {done.project}"
    say(f"{where}. Next: read {done.folder}/README.md")
