"""What another user of the computer gets from a port."""

import os
import subprocess
import sys

ROOT = os.geteuid() == 0
AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
family = {"4": socket.AF_INET, "6": socket.AF_INET6}[sys.argv[1]]
client = socket.socket(family)
client.settimeout(20)
client.connect((sys.argv[2], int(sys.argv[3])))
got = b""
try:
    client.sendall(bytes.fromhex(sys.argv[4]))
    if sys.argv[5] == "leave":
        client.close()
        sys.exit()
    while data := client.recv(65536):
        got += data
except OSError:
    pass
print(got.hex())
"""


def as_nobody(address, port, request, *, then="read"):
    """Return what another user of this computer reads from a port."""
    family = "6" if ":" in address else "4"
    words = [sys.executable, "-c", AS_NOBODY, family, address, str(port), request.hex(), then]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, cwd="/")
    return bytes.fromhex(done.stdout.strip())
