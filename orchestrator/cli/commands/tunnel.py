"""tpuctl tunnel: a port of this computer that leads to a service on a machine."""

from pathlib import Path

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import put
from orchestrator.cli.options import deployment_options

PAGE = "tunnel.html"


@click.command("tunnel")
@deployment_options
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of this computer. Default: the service's own, or a free one.",
)
@click.option("--vm", "on_vm", is_flag=True, help="With PORT: the VM instead of the TPU.")
@click.option("--worker", type=int, default=0, show_default=True, help="With PORT: number of the TPU worker.")
@click.option("--open", "browse", is_flag=True, help="Open the address in a browser.")
@click.argument("service", metavar="tensorboard|jupyter|PORT")
def command(
    choice: Choice, port: int | None, on_vm: bool,
    worker: int, browse: bool, service: str,
) -> None:  # fmt: skip
    """
    Reach a service that listens on a machine's loopback address, over SSH, at 127.0.0.1 of this computer.

    tensorboard and jupyter are those of `sidecars:` in the deployment file. The tunnel stands until Ctrl-C
    and comes back when the machine was replaced.
    """
    from orchestrator.app.reporter import Reporter
    from orchestrator.app.session import Session
    from orchestrator.app.sidecar import Service, find_service, keep_open
    from orchestrator.cli.console import print_json, say
    from orchestrator.ssh.tunnel import HERE, Tunnel, port_here

    session = Session(choice, Reporter())
    wanted = find_service(session.spec, service, on_vm=on_vm, worker=worker)
    tunnel = Tunnel(port_here(port, wanted.port, shared=choice.cloud == "local"))
    shown: list[str] = []

    def ready(found: Service, token: str) -> None:
        url = address(HERE, tunnel.port, token)
        if url in shown:
            return
        shown.append(url)
        if choice.as_json:
            print_json("tunnel", {"service": found.name, "url": url, "port": tunnel.port, "role": found.role})
        else:
            put(url)
            say(f"{found.name}: reachable at that address until Ctrl-C", style="green")
        if browse:
            _browse(url, session.folder)

    try:
        keep_open(session, wanted, tunnel, ready)
    finally:
        tunnel.close()
        # The page holds the token of the notebook.
        (session.folder / PAGE).unlink(missing_ok=True)


def address(host: str, port: int, token: str) -> str:
    """Return what a browser is to open; the machine says which *token*, so it is a token and nothing more."""
    from urllib.parse import quote

    return f"http://{host}:{port}/" + (f"lab?token={quote(token, safe='')}" if token else "")


def _browse(url: str, folder: Path) -> None:
    """Open a page that leads to *url*: a token must not stand on the command line of the browser."""
    import webbrowser
    from html import escape

    page = folder / PAGE
    page.unlink(missing_ok=True)
    page.touch(mode=0o600)
    page.write_text(f'<meta http-equiv="refresh" content="0; url={escape(url)}">')
    webbrowser.open(page.as_uri())
