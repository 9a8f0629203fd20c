"""Bodies and short words for tests of queued resources."""

from tests.emulator.emulator_lab import NODES, PROJECT, ZONE, EmulatorLab, node_body

PARENT = f"projects/{PROJECT}/locations/{ZONE}"
QUEUED = f"/v2/{PARENT}/queuedResources"
NUMBERED = f"projects/123456789012/locations/{ZONE}"
UNTIL_ACTIVE = 3.3  # accepted 0.5, chosen 1.0, nodes begun 0.3, nodes made 1.5


def spec(node_id="n1", **node):
    """Return a node spec for one node."""
    return {"parent": PARENT, "nodeId": node_id, "node": node_body(**node)}


def slices(count, prefix=""):
    """Return a node spec for several slices."""
    params = {"nodeCount": count, **({"nodeIdPrefix": prefix} if prefix else {})}
    return {"parent": PARENT, "multisliceParams": params, "node": node_body()}


def queued_body(*specs, **fields):
    """Return the body of a spot queued resource, unless *fields* name another tier."""
    tier = {} if "guaranteed" in fields or "tier" in fields else {"spot": {}}
    fields.pop("tier", None)
    return {"tpu": {"nodeSpec": list(specs or [spec()])}, **tier, **fields}


def submit(lab: EmulatorLab, *specs, name="q1", request="", **fields):
    """Ask for a queued resource and return the operation."""
    query = f"?queuedResourceId={name}" + (f"&requestId={request}" if request else "")
    return lab.ok("POST", QUEUED + query, queued_body(*specs, **fields))


def an_active(lab: EmulatorLab, *specs, **fields):
    """Submit a queued resource and wait until it is ACTIVE."""
    started = submit(lab, *specs, **fields)
    lab.after(UNTIL_ACTIVE)
    assert state(lab, fields.get("name", "q1")) == "ACTIVE"
    return started


def state(lab: EmulatorLab, name="q1"):
    """Return the state of a queued resource, None when it is not there, and its initiator if it has one."""
    status, found = lab.call("GET", f"{QUEUED}/{name}")
    if status == 404:
        return None
    said = found["state"]
    return (said["state"], said["stateInitiator"]) if "stateInitiator" in said else said["state"]


def node_states(lab: EmulatorLab):
    """Return the nodes of the zone with their states."""
    nodes = lab.ok("GET", NODES)["nodes"]
    return {node["name"].rpartition("/")[2]: node["state"] for node in nodes}
