"""A rehearsal on real machines of the local cloud: nothing that could reach Google's services is started."""

import pytest

pytestmark = pytest.mark.e2e
LOOK = """
import os, ssl, urllib.request
trust = ssl.create_default_context(cafile=os.environ["CURL_CA_BUNDLE"])
heartbeat = "{TPUCTL_BUCKET}/.tpuctl/heartbeat/{TPUCTL_INCARNATION}/0".format(**os.environ)
for name, url in (("storage", "https://www.googleapis.com/storage/v1/b?project=local-project"),
                  ("object", f"https://storage.googleapis.com/{heartbeat}"),
                  ("control", "https://storage.googleapis.com/_local/status"),
                  ("google", "https://tpu.googleapis.com/"), ("foreign", "https://models.invalid/")):
    try:
        print("SEEN", name, urllib.request.urlopen(url, context=trust, timeout=20).status, flush=True)
    except OSError as error:
        print("SEEN", name, error, flush=True)
out = os.path.join(os.environ["TPUCTL_CHECKPOINT_DIR"], "1")
os.makedirs(out)
open(os.path.join(out, "COMPLETE"), "w").close()
"""


def test_unsafe_job_is_refused_and_runs_once_the_variable_is_gone(lab):
    """The controller says which variable it is; the same machine runs the job after `up` without it."""
    (lab.work / "look.py").write_text(LOOK)
    # One that `up` starts itself ends with it when all is deleted, and then nobody can be asked.
    lab.tpuctl("local", "start")
    lab.write(command="python3 look.py", setup="echo SETUP RAN", env={"no_proxy": "*"})
    lab.tpuctl("up", expect=None)
    heartbeat = lab.wait_for(
        "a refusal", lambda: next((b for b in lab.heartbeats() if b["phase"] == "failed"), None)
    )
    assert "no_proxy is '*', which leads past the proxy to Google" in heartbeat["message"]
    assert heartbeat["attempts"] == 0
    assert "RAN" not in lab.logs(1)

    lab.write(command="python3 look.py", setup="echo SETUP RAN")
    lab.tpuctl("up", expect=None)
    lab.wait_for("a finished job", lambda: [b for b in lab.heartbeats() if b["phase"] == "done"])
    incarnation = lab.heartbeats()[0]["incarnation"]
    log = lab.wait_for("its log", lambda: text if "SEEN foreign" in (text := lab.logs(incarnation)) else "")
    observed = dict(line.split(" ", 2)[1:] for line in log.splitlines() if line.startswith("SEEN"))
    assert observed["storage"] == observed["object"] == "200"
    assert observed["control"] == "HTTP Error 404: Not Found"
    assert "403 tpu.googleapis.com:443 is Google's" in observed["google"]
    assert "403 models.invalid:443" in observed["foreign"]
    refused = lab.control("status")["refused"]
    assert refused == {"tpu.googleapis.com:443": 1, "models.invalid:443": 1}
