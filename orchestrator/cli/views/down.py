"""Show the result of `down`."""

from orchestrator.app.down import Down
from orchestrator.cli.console import print_json, say, talk
from orchestrator.cli.views.cost import cost_text


def show(down: Down, *, unbilled: bool, as_json: bool) -> None:
    """Print that nothing is left; leftovers are in the error and in the JSON document."""
    if as_json:
        print_json("down", down.as_dict())
    elif not down.leftovers:
        where = f"; data is kept in gs://{down.remaining_bucket}" if down.remaining_bucket else ""
        what = "no machine" if down.remaining_bucket else "nothing"
        say(f"{what} of {down.name} is left{where}", style="green")
        if down.cost is not None:
            say(cost_text(down.cost, unbilled=unbilled))
        if down.idle_cloud_stopped:
            stays = "; what is in its buckets stays" if down.remaining_bucket else ""
            talk(f"the local cloud had nothing left to do and was stopped{stays}")
