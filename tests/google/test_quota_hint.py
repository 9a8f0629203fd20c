"""What to do about a quota refusal: on Google's quota page, and where no such page is."""

from dataclasses import replace

import pytest

from orchestrator.google.hints import more_quota
from orchestrator.google.refusal import GoogleRefusal

REFUSAL = GoogleRefusal("RESOURCE_EXHAUSTED", message="Quota limit 'TPUs' has been exceeded.")
PATH = "/v2/projects/mine/locations/us-central1-a/nodes"


@pytest.mark.parametrize(
    ("host", "page"),
    [
        ("https://tpu.googleapis.com", True),
        ("https://restricted.googleapis.com", True),
        ("http://127.0.0.1:23354", False),
        ("http://localhost:23354", False),
    ],
)
def test_only_google_has_a_quota_page(host, page):
    """The local cloud is told by an option to grant any."""
    hint = more_quota(replace(REFUSAL, url=f"{host}{PATH}"))
    assert ("https://console.cloud.google.com/iam-admin/quotas?project=mine" in hint) is page
    assert ("`tpuctl local start --no-fresh-project`" in hint) is not page
