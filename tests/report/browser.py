"""A real chromium, driven through the pipe of its DevTools protocol."""

import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from itertools import count

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


def found():
    """Return the path of the browser, nothing where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class WebBrowser:
    """One browser with one page. It ends with the block that it is used in."""

    def __init__(self):
        self._numbers = count(1)
        self._events = []
        self._session = None

    def __enter__(self):
        self._folder = tempfile.mkdtemp(prefix="browser-")
        theirs, self._to = os.pipe()
        self._from, back = os.pipe()
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        words = [found(), *FLAGS, *root, f"--user-data-dir={self._folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{theirs} 4>&{back}; exec "$@"', "browser", *words],
            pass_fds=(theirs, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        os.close(back)
        self._pending = b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        self._process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def call(self, method, **params):
        """Send one command and return its result; what happens meanwhile is kept."""
        number = next(self._numbers)
        order = {"id": number, "method": method, "params": params}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._to, json.dumps(order).encode() + b"\0")
        while True:
            said = self._read()
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]
            self._events.append(said)

    def _read(self):
        while b"\0" not in self._pending:
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has ended"
            self._pending += data
        one, _, self._pending = self._pending.partition(b"\0")
        return json.loads(one)

    def wait_for(self, method):
        """Wait for an event."""
        while not any(event.get("method") == method for event in self._events):
            self._events.append(self._read())

    def open(self, url, *, width=1280, dark=False):
        """Show a page in a window of that width and wait until it is there."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def value(self, expression):
        """Return the value of an expression in the page; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    @property
    def console_errors(self):
        """Return what the page has made the console say: errors, and what its own policy has refused."""
        bad = []
        for event in self._events:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded":
                bad.append(params["entry"]["text"])
            elif event.get("method") in {"Runtime.exceptionThrown", "Runtime.consoleAPICalled"}:
                bad.append(json.dumps(params))
        return bad

    @property
    def requests(self):
        """Return the addresses that were asked for."""
        sent = (e for e in self._events if e.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def picture(self, path):
        """Write what is shown, from top to bottom, as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(b64decode(data))
