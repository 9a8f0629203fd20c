"""
Ask the platform about this machine, fetch the agent, and send the first report. Standard library, Python 3.8.

`startup.sh.j2` embeds this file and runs it as `python_helper facts|agent|first_heartbeat ...`.
"""

import hashlib
import json
import os
import shlex
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

DEADLINE = time.monotonic() + float(os.environ["TPUCTL_FETCH_SECONDS"])
HOST = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
METADATA = "http://%s/computeMetadata/v1/instance/" % HOST
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
BASE = (os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com").rstrip("/")


def metadata(path):
    """Return a metadata value, or None when the server says that there is none."""
    request = urllib.request.Request(METADATA + path, headers={"Metadata-Flavor": "Google"})
    try:
        with DIRECT.open(request, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def patiently(ask, done=lambda: False):
    """Repeat until there is an answer or *done*; leave with the last reason when the time is up."""
    pause = 0.5
    while True:
        if done():
            return None
        try:
            return ask()
        except Exception as error:  # Whatever it is, the network of a booting machine may heal it.
            reason = "%s: %s" % (type(error).__name__, error)
        if time.monotonic() + pause > DEADLINE:
            sys.exit(reason)
        until = time.monotonic() + pause
        while time.monotonic() < until and not done():
            time.sleep(0.25)  # A machine boots in real time; done() is asked meanwhile.
        pause = min(5.0, pause * 2)


def bucket_call(url, data=None):
    """Open *url* of the bucket as the machine's account; *data* is written."""
    token = json.loads(metadata("service-accounts/default/token") or "{}").get("access_token")
    if not token:
        raise OSError("the metadata server gives no token: has the machine a service account?")
    request = urllib.request.Request(url, data, headers={"Authorization": "Bearer " + token})
    request.add_header("Content-Type", "application/octet-stream")
    return urllib.request.urlopen(request, timeout=30)


def facts():
    """Print what the platform knows about this worker, as shell assignments."""
    number = patiently(lambda: metadata("attributes/agent-worker-number"))
    endpoints = patiently(lambda: metadata("attributes/worker-network-endpoints"))
    hosts = [part.strip().split(":")[-1] for part in (endpoints or "").split(",") if part.strip()]
    worker = str(int(number or 0))
    values = {"WORKER_ID": worker, "TPUCTL_WORKER_ID": worker, "TPUCTL_WORKERS": str(len(hosts) or 1)}
    for key, value in dict(values, TPUCTL_WORKER_HOSTS=",".join(hosts)).items():
        print("%s=%s" % (key, shlex.quote(value)))


def agent(bucket, prefix, digest, path):
    """Bring the agent from the bucket, unless it is here or arrives by another way."""
    name = urllib.parse.quote("%sbundles/agent-%s.pyz" % (prefix, digest), safe="")
    url = "%s/storage/v1/b/%s/o/%s?alt=media" % (BASE, urllib.parse.quote(bucket, safe=""), name)

    def here():
        try:
            with open(path, "rb") as file:
                return hashlib.sha256(file.read()).hexdigest() == digest
        except OSError:
            return False

    def fetch():
        try:
            with bucket_call(url) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            raise OSError("HTTP %d from %s" % (error.code, url)) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise OSError("wrong sha256 of %s" % url)
        with open(path + ".tmp", "wb") as file:
            file.write(data)
        os.replace(path + ".tmp", path)

    patiently(fetch, here)


def first_heartbeat(bucket, prefix, deployment, incarnation):
    """Tell the bucket that this machine lives, unless it has reported before: that report says more."""
    begun = time.time()
    number = patiently(lambda: metadata("attributes/agent-worker-number"))
    endpoints = patiently(lambda: metadata("attributes/worker-network-endpoints"))
    body = {
        "schema": 1,
        "deployment": deployment,
        "incarnation": int(incarnation),
        "worker": int(number or 0),
    }
    body.update(
        workers=len([part for part in (endpoints or "").split(",") if part.strip()]) or 1, phase="boot"
    )
    body.update(script=True, message="the startup script has begun", at=begun, timings={"boot": begun})
    name = "%s.tpuctl/heartbeat/%d/%d" % (prefix, body["incarnation"], body["worker"])
    query = urllib.parse.urlencode({"uploadType": "media", "ifGenerationMatch": "0", "name": name})
    url = "%s/upload/storage/v1/b/%s/o?%s" % (BASE, urllib.parse.quote(bucket, safe=""), query)

    def write():
        try:
            with bucket_call(url, json.dumps(body).encode()):
                return True
        except urllib.error.HTTPError as error:
            if error.code == 412:
                return True
            raise

    patiently(write)


{"facts": facts, "agent": agent, "first_heartbeat": first_heartbeat}[sys.argv[1]](*sys.argv[2:])
