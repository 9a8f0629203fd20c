"""Print the plan, the findings of the check and a rehearsal's verdict as Markdown, from their JSON in a folder."""

import json
import re
import sys
from pathlib import Path

LONGEST, MOST = 200, 40
KINDS = {"vm": "VM", "tpu": "TPU", "bundle": "code"}


def text(value):
    """Return a value as plain text: what a pull request wrote becomes no link, mention, tag or table cell."""
    line = re.sub(r"\s+", " ", str(value))[:LONGEST]
    return re.sub(r"[^\w .,:;/()+=-]", lambda found: f"&#{ord(found[0])};", line)


def read(folder, name):
    """Return a document, None where its step has written none."""
    try:
        return json.loads((Path(folder) / f"tpuctl-{name}.json").read_text())
    except (OSError, ValueError):
        return None


def page(plan, rehearsal):
    """Yield the lines of the page."""
    yield "<!-- tpuctl -->"
    if plan is None:
        yield "### tpuctl: there is no plan"
        yield "The log of the step Plan says why."
        return
    if plan["kind"] == "error":
        yield f"### tpuctl: error {text(plan['code'])}"
        yield f"{text(plan['message'])}. Next: {text(plan['hint'])}"
        return
    price = plan["price"]
    yield f"### tpuctl: plan of {text(plan['name'])}"
    if price["billed_usd_hour"] is not None:
        saved = (
            f", ${price['on_demand_usd_hour']:.2f} on demand"
            if price["on_demand_usd_hour"] is not None
            else ""
        )
        yield f"**${price['billed_usd_hour']:.2f} an hour**{saved}."
        yield f"An estimate; prices of {text(price['dates']['tpu_prices'])}."
    if price["budget_usd"] is not None:
        yield f"Budget: ${price['budget_usd']:.2f}."
    yield "\n| change | what | where |\n| --- | --- | --- |"
    for change in plan["changes"][:MOST]:
        what = f"{KINDS.get(change['kind'], text(change['kind']))} {text(change['name'])}"
        yield f"| {text(change['verb'])} | {what} | {text(change['zone'])} |"
    findings = (plan["check"] or {}).get("findings", [])
    yield f"\nCheck: {len(findings)} finding{'' if len(findings) == 1 else 's'}."
    for one in findings[:MOST]:
        yield f"- {text(one['level'])} {text(one['rule'])}: {text(one['message'])}"
    if rehearsal is not None:
        yield f"\nRehearsal: **{text(rehearsal.get('verdict') or rehearsal.get('message'))}**"


if __name__ == "__main__":
    print("\n".join(page(read(sys.argv[1], "plan"), read(sys.argv[1], "rehearsal"))))
