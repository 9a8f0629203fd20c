"""What a cluster with JobSet and Kueue says to a manifest: CRDs, their CEL rules, and the rules of the webhooks."""

import json
import re
from functools import cache
from pathlib import Path

import celpy
import jsonschema

SCHEMAS = Path(__file__).parent / "schemas"
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
REASONS = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)


def problems(value):
    """Return what the cluster would refuse in one object, in words; none for one that it takes."""
    kind = value.get("kind", "")
    if kind == "ServiceAccount":
        return [] if value.get("apiVersion") == "v1" and _name(value) else ["not a service account"]
    if not (SCHEMAS / f"{kind}.json").is_file():
        return [f"no kind {kind}"]
    crd, validator = _crd(kind)
    found = [] if value["apiVersion"] == f"{crd['group']}/{crd['version']}" else [f"no {value['apiVersion']}"]
    found += [f"{'.'.join(map(str, one.path))}: {one.message}" for one in validator.iter_errors(value)]
    found += list(_cel(crd["schema"], value, kind))
    return found or [*_names(value), *WEBHOOKS[kind](value.get("spec", {}), value)]


@cache
def _crd(kind):
    crd = json.loads((SCHEMAS / f"{kind}.json").read_text())
    return crd, jsonschema.Draft7Validator(_strict(crd["schema"], top=True))


def _strict(schema, *, top=False):
    """Return a schema that refuses unknown fields, as `kubectl apply` does by default."""
    if schema.get("x-kubernetes-int-or-string"):
        return {
            "anyOf": [
                {"type": "integer"},
                {"type": "string", **{k: schema[k] for k in ("pattern",) if k in schema}},
            ]
        }
    found = {
        key: value for key, value in schema.items() if not key.startswith("x-kubernetes") and key != "format"
    }
    if "properties" in schema:
        found["properties"] = {key: _strict(value) for key, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _strict(schema["additionalProperties"])
    if "items" in schema:
        found["items"] = _strict(schema["items"])
    if top:
        # The CRD leaves metadata to the API server.
        found["properties"]["metadata"] = {
            "type": "object", "required": ["name"], "additionalProperties": False,
            "properties": {
                "name": {"type": "string"}, "namespace": {"type": "string"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }  # fmt: skip
    return found


def _cel(schema, value, where):
    """Yield the rules of the CRD that do not hold; those about a change have nothing to compare with."""
    for one in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in one["rule"] and not _program(one["rule"]).evaluate(
            {"self": celpy.json_to_cel(value)}
        ):
            yield f"{where}: {one.get('message', one['rule'])}"
    if isinstance(value, dict):
        for key, inner in value.items():
            below = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if isinstance(below, dict):
                yield from _cel(below, inner, f"{where}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _cel(schema.get("items", {}), inner, where)


@cache
def _program(rule):
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


def _name(value):
    return DNS_LABEL.fullmatch(value.get("metadata", {}).get("name", ""))


def _names(value):
    """Yield what the API server refuses in any object."""
    # A flavor's name may begin with a digit, ours do not.
    if not _name(value):
        yield "metadata.name: not a DNS label"
    labels = {**value["metadata"].get("labels", {}), **value.get("spec", {}).get("nodeLabels", {})}
    yield from (f"label {text!r}" for text in labels.values() if not LABEL_VALUE.fullmatch(text))


def _jobset(spec, value):
    """Yield what JobSet's webhook (pkg/webhooks/jobset_webhook.go), and that of Jobs below it, refuse."""
    names = [one["name"] for one in spec["replicatedJobs"]]
    policy = spec.get("failurePolicy", {})
    for rule in policy.get("rules", ()):
        if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"]):
            yield f"rule's name {rule['name']!r}"
        yield from (f"reason {one}" for one in rule.get("onJobFailureReasons", ()) if one not in REASONS)
        yield from (f"no job {one}" for one in rule.get("targetReplicatedJobs", ()) if one not in names)
    if len({rule["name"] for rule in policy.get("rules", ())}) != len(policy.get("rules", ())):
        yield "two rules with one name"
    for one in spec["replicatedJobs"]:
        job = one["template"]["spec"]
        longest = (
            f"{value['metadata']['name']}-{one['name']}-{one['replicas'] - 1}-{job['completions'] - 1}-abcde"
        )
        if not DNS_LABEL.fullmatch(longest):
            yield f"pod's name {longest}"
        if job.get("completionMode") not in (None, "Indexed", "NonIndexed"):
            yield f"completionMode {job['completionMode']}"
        yield from _pod(job, job["template"]["spec"])


def _pod(job, pod):
    """Yield what the API server refuses in the pod of a Job."""
    if job.get("podFailurePolicy") and pod.get("restartPolicy") != "Never":
        yield "podFailurePolicy needs restartPolicy Never"
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        yield "restartPolicy of a Job"
    volumes = {volume["name"] for volume in pod.get("volumes", ())}
    for container in pod["containers"]:
        mounts = container.get("volumeMounts", ())
        yield from (f"no volume {one['name']}" for one in mounts if one["name"] not in volumes)
        if len({one["mountPath"] for one in mounts}) != len(mounts):
            yield "two mounts at one path"
    yield from (f"volume's name {name}" for name in volumes if not DNS_LABEL.fullmatch(name))
    yield from (
        f"selector {v!r}" for v in pod.get("nodeSelector", {}).values() if not LABEL_VALUE.fullmatch(v)
    )


def _cluster_queue(spec, _):
    """Yield what Kueue's webhook (pkg/webhooks/clusterqueue_webhook.go) refuses."""
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            given = [one["name"] for one in flavor["resources"]]
            if given != group["coveredResources"]:
                yield f"{given} is not {group['coveredResources']}"
            yield from (
                f"nominalQuota {one['nominalQuota']}"
                for one in flavor["resources"]
                if str(one["nominalQuota"])[0] == "-"
            )


WEBHOOKS = {
    "JobSet": _jobset,
    "ClusterQueue": _cluster_queue,
    "LocalQueue": lambda *_: (),
    "ResourceFlavor": lambda *_: (),
}


def together(objects):
    """Return what does not fit between the objects: names that lead nowhere, and a job that no quota admits."""
    by_kind = {one["kind"]: one for one in objects}
    job, queue = by_kind["JobSet"], by_kind["LocalQueue"]
    place, flavor = by_kind["ClusterQueue"], by_kind["ResourceFlavor"]
    group = place["spec"]["resourceGroups"][0]["flavors"][0]
    slices = job["spec"]["replicatedJobs"][0]
    pod = slices["template"]["spec"]["template"]["spec"]
    chips = (
        pod["containers"][0]["resources"]["limits"]["google.com/tpu"]
        * slices["template"]["spec"]["parallelism"]
    )
    checks = {
        "queue-name": job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queue["metadata"]["name"],
        "clusterQueue": queue["spec"]["clusterQueue"] == place["metadata"]["name"],
        "flavor": group["name"] == flavor["metadata"]["name"],
        "namespace": job["metadata"]["namespace"] == queue["metadata"]["namespace"],
        "quota": chips * slices["replicas"] <= int(group["resources"][0]["nominalQuota"]),
        "nodes": pod["nodeSelector"] == flavor["spec"]["nodeLabels"],
        "account": pod["serviceAccountName"] == by_kind["ServiceAccount"]["metadata"]["name"],
    }
    return [name for name, right in checks.items() if not right]
