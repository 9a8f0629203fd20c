"""Show the result of `down`."""

from dataclasses import asdict

from orchestrator.app.down import Down
from orchestrator.cli.console import print_json, say, talk
from orchestrator.cli.views.cost import spent_text


def show(down: Down, *, unbilled: bool, as_json: bool) -> None:
    """Print that nothing is left; leftovers are in the error and in the JSON document."""
    if as_json:
        items = [asdict(item) for item in down.leftovers]
        body = {
            "left": items,
            "data_kept": bool(down.remaining_bucket),
            "saved_usd_hour": down.saved_usd_hour,
            "usd": down.spent.usd if down.spent else None,
            "ondemand_usd": down.spent.ondemand_usd if down.spent else None,
            "saved_usd": down.spent.saved_usd if down.spent else None,
            "least_saved_usd": down.spent.least_saved_usd if down.spent else None,
            "unknown": list(down.spent.unknown) if down.spent else [],
        }
        print_json("down", body)
    elif not down.leftovers:
        where = f"; data is kept in gs://{down.remaining_bucket}" if down.remaining_bucket else ""
        say(f"nothing is left of {down.name}{where}", style="green")
        if down.spent is not None:
            say(spent_text(down.spent, unbilled=unbilled))
        if down.idle_cloud_stopped:
            talk("the local cloud had nothing left to do and was stopped")
