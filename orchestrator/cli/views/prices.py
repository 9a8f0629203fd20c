"""Show which prices are in use now."""

from orchestrator.app.prices import Refreshed
from orchestrator.cli.console import print_json, say, talk


def show(found: Refreshed, *, as_json: bool) -> None:
    """Print how many prices were read, and where they are."""
    if as_json:
        print_json("prices", found.as_dict())
        return
    count = len(found.prices)
    say(f"{count} TPU prices of {found.date} from the billing catalogue are now in use ({found.file})")
    talk("  next:  `tpuctl plan` shows them")
