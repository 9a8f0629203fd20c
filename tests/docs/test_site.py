"""The pages as a site: built without a warning, searchable, and static."""

import importlib.util
import json
import re
import subprocess

import pytest

from tests.cli.cli_kit import ROOT

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: pip install -e '.[dev]'"
)


def test_the_site_has_no_warning_and_asks_no_other_host(tmp_path):
    """Each link and anchor leads somewhere, each page is in the menu, and a page loads nothing from other hosts."""
    done = subprocess.run(
        [ROOT / ".ci/site", tmp_path / "site"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 60
    loaded = re.compile(
        r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//|<link[^>]+rel="?(?:stylesheet|preconnect)[^>]+href="?https?:'
    )
    assert [page.name for page in pages if loaded.search(page.read_text())] == []
    index = json.loads((tmp_path / "site/search/search_index.json").read_text())
    found = {one["location"]: one["text"] for one in index["docs"]}
    assert "TPU Research Cloud" in found["docs/trc/"]
    assert "stockout" in found["docs/errors/#tpu-300"]
    assert any("체크포인트" in text for text in found.values())
