"""Show a plan, as text of at most 80 columns or as JSON."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.advice.preview import Preview
from orchestrator.app.plan import Planned
from orchestrator.app.source.wanted import RUNS_AGAIN
from orchestrator.cli.console import page, print_json, say, talk
from orchestrator.cli.views import check
from orchestrator.domain.level import Level
from orchestrator.domain.machines.scopes import node_scopes
from orchestrator.domain.names import home_region
from orchestrator.domain.plan import Change, Plan, Verb
from orchestrator.domain.status import DeploymentState
from orchestrator.domain.text.amounts import span_text, ttl_text
from orchestrator.domain.text.format_name import format_name
from orchestrator.domain.text.suggest import join
from orchestrator.planning.deployment_outcome import more_training
from orchestrator.planning.safety_nets import safety_nets
from orchestrator.pricing.cost import to_budget, upper_to_ttl

WIDTH = 80
NOTHING, CLOUD = "nothing", "cloud"
"""The base of a plan: nothing, or the cloud's present state."""
_SOURCES = {
    NOTHING: "offline (assumes that nothing exists yet)",
    CLOUD: "the cloud, just now",
}
_COLOURS = {
    Verb.CREATE: "green",
    Verb.DELETE: "red",
    Verb.UPDATE: "yellow",
    Verb.START: "cyan",
    Verb.STOP: "yellow",
}


def after_done(message: str) -> str:
    """Return what to do with a job that is done for the reason *message*."""
    return f"Next: `tpuctl checkpoints fetch` copies the model. {more_training(message)}"


def show(
    found: Planned, *, as_json: bool, scripts: bool = False, verbose: bool = False, unbilled: bool = False
) -> None:
    """
    Print the plan to stdout; *scripts* adds the rendered scripts, *verbose* labels and scopes.

    *unbilled* is true on the local cloud.
    """
    source = CLOUD if found.from_cloud else NOTHING
    if as_json:
        checks = {"check": check.body(found.checked)} if found.checked else {}
        out = {"file": str(found.out)} if found.out else {}
        body = found.preview.as_dict(scripts=scripts)
        state = {"state": found.state.value} if found.state else {}
        print_json(
            "plan", {**body, **state, "compared_with": source, **out, **checks, **found.sent.as_dict()}
        )
    else:
        with page() as console:
            now = found.state.phrase if found.state else ""
            render(
                found.preview, console, source=source, state=now, scripts=scripts, verbose=verbose,
                unbilled=unbilled, done=found.state is DeploymentState.DONE,
            )  # fmt: skip
            console.print()
            for line in found.sent.lines():
                console.print(line, markup=False, width=min(WIDTH, console.width), overflow="fold")
            if found.checked:
                check.render_short(found.checked, console)
    if found.out:
        say(f"written to {found.out}; to carry out exactly this: tpuctl up {found.out}")
    elif not as_json and (then := _next(found)):
        talk(f"  next:  {then}")


def _next(found: Planned) -> str:
    """Return what to run after the plan; "" if there is nothing to do, or something to change first."""
    stops = found.checked is not None and any(one.level is Level.STOP for one in found.checked.findings)
    done = found.state is DeploymentState.DONE
    if found.preview.plan.empty or stops or done:
        return ""
    if found.preview.spec.fleet:
        return "tpuctl fleet up"
    # What runs already has shown what a rehearsal would.
    first = "`tpuctl rehearse` tries it here under preemptions, then: "
    return f"{'' if found.from_cloud else first}tpuctl up"


def render(
    preview: Preview, console: Console, *, source: str = "", state: str = "", scripts: bool = False,
    verbose: bool = False, unbilled: bool = False, done: bool = False,
) -> None:  # fmt: skip
    """
    Print the plan on *console*, and in which *state* the deployment is now; *done* says that its job is.

    *scripts* adds the rendered scripts, *verbose* labels and scopes; *unbilled* is true on the local cloud.
    """
    width = min(WIDTH, console.width)
    console.print(f"Plan for {preview.spec.name}", style="bold", markup=False)
    if done and not preview.plan.empty:
        console.print(RUNS_AGAIN, style="bold", markup=False, width=width)
    # `up` would buy nothing for a job that has ended, so there is no price.
    over = preview.plan.empty and preview.plan.outcome is not None
    for line in () if over else filter(None, (_price_line(preview, unbilled), _ttl_line(preview))):
        console.print(line, style="bold", markup=False, width=width)
    console.print(_facts(preview, _SOURCES.get(source, ""), state, verbose=verbose), width=width)
    console.print()
    console.print(count(preview.plan), style="bold", markup=False, width=width)
    for change in preview.plan.changes:
        console.print(_change(preview, change, verbose=verbose), width=width)
    for text in preview.plan.waiting:
        console.print(f"  waiting: {text}", markup=False, width=width)
    if done and preview.plan.empty:
        console.print(after_done(preview.plan.message), markup=False, width=width)
    for part in () if over else ("", *_price_key(preview), _prices(preview)):
        console.print(part, markup=False, width=width)
    notes = [f"Note: {note}." for note in preview.notes]
    if over and notes:
        console.print()
    for line in (*(() if over else _sums(preview)), *notes):
        console.print(line, markup=False, width=width)
    for name, text in preview.scripts.items() if scripts else ():
        console.print(f"\n--- {name} ---", style="bold", markup=False)
        console.print(text, markup=False, soft_wrap=True)


def count(plan: Plan) -> str:
    """Return a line with the number of changes, or why there are none."""
    if plan.empty:
        return "No changes: " + (
            plan.message or "; ".join(plan.waiting) or "everything is as the file wants it"
        )
    parts = [(sum(c.verb is verb for c in plan.changes), verb) for verb in Verb]
    text = ", ".join(f"{number} to {verb.word}" for number, verb in parts if number)
    return f"{len(plan.changes)} change{'s' if len(plan.changes) > 1 else ''}: {text}"


def _facts(preview: Preview, source: str, state: str, *, verbose: bool) -> Table:
    table = Table.grid(padding=(0, 2))
    scopes = ", ".join(scope.rsplit("/", 1)[-1] for scope in node_scopes(preview.spec))
    facts = {
        **({"state": state} if state else {}),
        "project": preview.project or "not known yet: set project, GOOGLE_CLOUD_PROJECT or --set project=ID",
        **_locations(preview),
        "account": f"{preview.account_text}; the machines act with its rights",
        **({"scopes": scopes} if verbose else {}),
        "saves": _saves(preview),
        **({"source": source} if source else {}),
    }
    for name, text in facts.items():
        table.add_row(f"  {name}", Text(text, overflow="fold"))
    return table


_SINGLE_FILES = {"files": "plain files", "outputs": "files, without steps"}


def _saves(preview: Preview) -> str:
    checkpoint = preview.spec.job.checkpoint
    if checkpoint.format == "auto":
        known = ", ".join(map(format_name, preview.formats))
        text = (
            f"{known}, as those in the bucket are"
            if known
            else "in any usual format, recognised at the first save"
        )
    elif checkpoint.format == "marker":
        text = f"folders, each complete once it has a file {checkpoint.marker} (the job writes it last)"
    elif checkpoint.format in _SINGLE_FILES:
        text = _SINGLE_FILES[checkpoint.format]
    else:
        text = f"in the format {checkpoint.format}"
    if preview.saves is None:
        return text
    return f"{text}; a save {'at first ' if preview.saves.time_between_interruptions else ''}{preview.saves.text}"


def _locations(preview: Preview) -> dict[str, str]:
    """Return where the resources are, and the cost of a TPU away from the bucket."""
    zones = {"zones": ", then ".join(preview.spec.tpu.zones)}
    if not preview.egress:
        return {
            "region": f"{preview.region} (TPU, VM and bucket together: traffic is free and fast)",
            **zones,
        }
    home = home_region(preview.spec)
    return {
        "bucket in": f"{home}: code and checkpoints are there, whatever region the TPU is in",
        **zones,
        "traffic": "; ".join(_way(region, home, usd) for region, usd in preview.egress.items()),
    }


def _way(region: str, home: str, usd: float | None) -> str:
    price = "at a price that is not known" if usd is None else f"about {usd:g} USD per GiB"
    return f"{price} between {region} and {home}, on top of the sums below"


def _change(preview: Preview, change: Change, *, verbose: bool) -> Table:
    colour = _COLOURS[change.verb]
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(width=6)
    # The longest kind is "sidecars", which must not be cut.
    table.add_column(width=8)
    table.add_column(overflow="fold")
    where = f" in {change.zone}" if change.zone else ""
    sign, verb = Text(change.verb.value, colour), Text(change.verb.word, colour)
    table.add_row(sign, verb, change.kind.title, Text(f"{preview.title(change)}{where}", "bold"))
    if change.message:
        table.add_row("", "", "", Text(f"why: {change.message}"))
    for name, text in preview.details(change).items():
        if verbose or name != "roles":
            table.add_row("", "", "", Text(f"{name}: {text}"))
    for key, label in preview.labels_of(change).items() if verbose else ():
        table.add_row("", "", "", Text(f"label: {key}={label}"))
    return table


def _price_line(preview: Preview, unbilled: bool) -> str:
    """Return the first question's answer: the price per hour and until ttl."""
    price = preview.hourly
    known = sum(line.billed_usd or 0.0 for line in price.lines)
    most = max(known, sum(line.upper_usd or line.billed_usd or 0.0 for line in price.lines))
    hour = f"{known:.2f}" if most - known < 0.005 else f"{known:.2f} to {most:.2f}"
    least = f"at least {hour}" if price.unpriced else hour
    where = " (nothing is billed on the local cloud)" if unbilled else ""
    return f"  Price: {least} USD an hour{where}"


def _ttl_line(preview: Preview) -> str:
    """Return the most that it can cost: not what a job costs that ends by itself."""
    ttl = preview.spec.watch.ttl
    whole = upper_to_ttl(preview.hourly, ttl)
    return "" if whole is None else f"  {ttl_text(str(ttl), whole)}"


def _prices(preview: Preview) -> Table:
    price = preview.hourly
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(f"USD per hour in {price.zone}")
    for name in ("spot", "on demand", "billed"):
        table.add_column(name, justify="right")
    for line in price.lines:
        table.add_row(
            Text(f"  {line.what}"),
            _usd(line.spot_usd),
            _usd(line.on_demand_usd),
            _range(line.billed_usd, line.upper_usd),
        )
    table.add_row(
        "  sum",
        _usd(price.spot_usd),
        _usd(price.on_demand_usd),
        _range(price.billed_usd, price.upper_usd),
        style="bold",
    )
    return table


def _price_key(preview: Preview) -> list[str]:
    """Return what the columns of the prices are, where a price is a range."""
    price = preview.hourly
    if price.unpriced or (price.upper_usd or 0.0) <= (price.billed_usd or 0.0):
        return []
    ends = "`billed` is from the lowest price to the highest, `spot` and `on demand` are the lowest"
    return [f"Billed here: {_classes(preview)}. Public price lists differ: {ends}."]


def _sums(preview: Preview) -> list[str]:
    price, watch = preview.hourly, preview.spec.watch
    lines = []
    if price.unpriced:
        lines.append(f"Unknown prices: {', '.join(price.unpriced)}. The sum is not known either.")
    seconds = None if watch.budget_usd is None else to_budget(price, watch.budget_usd)
    if seconds is not None:
        before = f"; watch.ttl ({watch.ttl}) ends it before" if seconds > watch.ttl else ""
        lines.append(f"The budget of {watch.budget_usd:g} USD covers about {span_text(seconds)}{before}")
    if price.storage_usd_gib_month is not None:
        storage = f"storage, {price.storage_usd_gib_month:g} USD per GiB and month of what the job keeps"
        lines.append(f"Not included: {storage}{_for_next_machine(preview)}")
    return [*lines, f"{price.date_text}. An estimate, not a bill.", *_without_tpuctl(preview)]


def _classes(preview: Preview) -> str:
    """Return the price classes that the file asks for, which the billed sum is made of."""
    spec = preview.spec
    machines = [("TPU", spec.tpu.spot), *([] if spec.vm == "none" else [("VM", spec.vm.spot)])]
    return ", ".join(f"{name} {'spot' if spot else 'on demand'}" for name, spot in machines)


def _for_next_machine(preview: Preview) -> str:
    """Return what else is stored so that the next machine need not install or download it again."""
    job = preview.spec.job
    if job.run_on == "vm" or not (job.warm_start or job.caches):
        return ""
    what = ["the installed packages", "the compiled programs"] if job.warm_start else []
    what += (
        [f"{len(job.caches)} folder{'s' if len(job.caches) > 1 else ''} of job.caches"] if job.caches else []
    )
    return f", and of what the next machine reuses: {join(what, 'and')} (at most 50 GB each)"


def _without_tpuctl(preview: Preview) -> list[str]:
    """Return lines about what stops the billing when tpuctl no longer runs, first what nothing stops."""
    nets = [net for net in safety_nets(preview.spec) if net.name != "vm" or preview.spec.vm != "none"]
    shown = [
        f"  {net.title + ':':<4} {'yes' if net.active else 'NO'}, {net.message}"
        # What a command of the user does is no end by itself.
        if net.name != "all"
        else f"  else nothing does it by itself; {net.message}"
        for net in sorted(nets, key=lambda net: net.active)
    ]
    return ["Does the cost end when no watcher runs?", *shown]


def _range(usd: float | None, most: float | None) -> str:
    return _usd(usd) if most is None or usd is None or most <= usd else f"{usd:.4f} to {most:.4f}"


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}"
