"""Report and dashboard in a real browser: visible, readable on a telephone, light and dark, no console errors."""

import socket
import threading

import pytest
import uvicorn

from orchestrator.app.loop.dashboard import listening
from orchestrator.report.dashboard_app import Dashboard
from orchestrator.report.fleet_page import fleet_page
from orchestrator.report.page import LiveFacts, page
from tests.report.browser import WebBrowser, found
from tests.report.fleet_kit import Afternoon
from tests.report.report_kit import facts

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(found() is None, reason="there is no chromium here: apt install chromium"),
]
LIVE = LiveFacts(
    ("iter 12: loss 3.5", "x" * 400),
    [
        {"name": name, "project": "p", "outcome": None, "tpu": "READY", "job": "run, step 3 of 9 (33%), loss 2.5",
         "checkpoint_message": "step 3, committed 9 s ago",
         "preemptions": 2, "usd": 1.5, "source": None, "message": ""}
        for name in ("mine", "a-second-deployment-with-a-long-name")
    ],
    shown="mine",
)  # fmt: skip
LOOK = """({
  words: document.body.innerText,
  sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  paper: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color,
  bars: [...document.querySelectorAll('main section rect:not(.track)')].map((one) => {
    const box = one.getBoundingClientRect();
    return [box.left >= 0 && box.right <= innerWidth + 1 && box.width > 0, getComputedStyle(one).fill];
  }),
  curve: Math.max(
    ...[...document.querySelectorAll('polyline')].map((one) => one.getBoundingClientRect().width)),
  small: [...document.querySelectorAll('p, td, dd, dt, svg text')]
    .filter((one) => parseFloat(getComputedStyle(one).fontSize) < 12).length,
})"""


def contrast(look):
    """Return the contrast of text and paper, by the rule of WCAG 2."""

    def light(colour):
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(look["paper"]), light(look["ink"])))
    return (high + 0.05) / (low + 0.05)


def serve(app, listener):
    """Serve until the returned function is called."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()

    def stop():
        server.should_exit = True
        thread.join(10)

    return stop


def sent_to_another_port(browser):
    """Return the head of what the browser asks of another port of 127.0.0.1, such as a tunnel."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        heads = []

        def answer():
            connection, _ = other.accept()
            heads.append(connection.recv(65536).decode())
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        back = browser.value("location.href")
        browser.open(f"http://127.0.0.1:{other.getsockname()[1]}/")
        thread.join(20)
        browser.open(back)
    (head,) = heads
    assert head.startswith("GET / ")
    return head


def a_fleet(browser, path):
    """Look at the page of a hundred nodes: all of it inside, readable, and asking for nothing."""
    afternoon = Afternoon(hours=2)
    usage = afternoon.usage()
    path.write_text(fleet_page(usage, afternoon.tables(usage)))
    for width, dark in ((1280, True), (400, False)):
        browser.open(path.as_uri(), width=width, dark=dark)
        look = browser.value(LOOK)
        assert browser.console_errors == []
        assert (look["sideways"] <= 0, look["small"], contrast(look) >= 7) == (True, 0, True)
        assert all(inside for inside, _ in look["bars"])
        assert len({fill for _, fill in look["bars"]}) >= 6, "jobs and uses differ in colour"
        rows = browser.value("document.querySelectorAll('.nodes rect.track').length")
        assert rows == len(afternoon.names)
        assert all(one in look["words"] for one in ("Nodes", "Jobs", "lr-sweep", "eval_loss by lr", "(idle)"))


def test_report_and_dashboard_in_a_real_browser(tmp_path):
    """One browser for all of it, because its start is what costs."""
    hostile = "<img src=x onerror=alert(1)> " + "long" * 60
    (tmp_path / "report.html").write_text(page(facts(event=hostile)))
    papers = set()
    with WebBrowser() as browser:
        for width, dark in ((1280, False), (400, True), (400, False), (1280, True)):
            browser.open((tmp_path / "report.html").as_uri(), width=width, dark=dark)
            look = browser.value(LOOK)
            assert browser.console_errors == []
            assert len(browser.requests) == 1, "the file is all that is asked for"
            assert look["sideways"] <= 0, f"the page is wider than {width} pixels"
            assert contrast(look) >= 7
            assert look["small"] == 0
            assert all(inside for inside, _ in look["bars"])
            assert len({fill for _, fill in look["bars"]}) >= 5, "uses differ in colour"
            assert look["curve"] > width / 6
            for part in (
                "Timeline",
                "Loss",
                "mine-tpu-g2",
                hostile[:28],
                "Wasted by",
                "2 preemptions survived",
            ):
                assert part in look["words"]
            papers.add((dark, look["paper"]))
            browser.picture(tmp_path / f"{width}-{'dark' if dark else 'light'}.png")
        assert len({paper for _, paper in papers}) == 2
        a_fleet(browser, tmp_path / "fleet.html")

        reported = ["first news"]
        with listening(0) as listener:
            app = Dashboard(
                lambda wanted: page(facts(event=reported[-1]), LIVE), listener.getsockname()[1], pytest.fail
            )
            stop = serve(app, listener)
            try:
                browser.open(app.url, width=400)
                assert browser.value("location.href") == f"http://127.0.0.1:{app.port}{app.folder}"
                assert "first news" in browser.value("document.body.innerText")
                assert browser.value("getComputedStyle(document.body).margin") == "0px", (
                    "its style is in force"
                )
                reported.append("second news")
                app._made.clear()
                browser.value("refresh()")
                assert "second news" in browser.value("document.body.innerText")
                assert "updated 0 s ago" in browser.value("document.body.innerText")
                assert "iter 12: loss 3.5" in browser.value("document.body.innerText")
                assert browser.value(LOOK)["sideways"] <= 0, "with the list of deployments and the log"
                assert browser.value("document.cookie") == ""
                assert browser.console_errors == []
                assert app.token not in sent_to_another_port(browser)
            finally:
                stop()
            browser.value("refresh()")
            assert "no news from tpuctl report --live" in browser.value("document.body.innerText")
