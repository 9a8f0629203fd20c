"""The relay of Identity-Aware Proxy, spoken to in frames written by hand; gcloud itself speaks in tests/e2e."""

import asyncio
import base64
import hashlib
import os
import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.emulator.http.certificates import certificates
from orchestrator.emulator.http.iap import PROTOCOL, IapRelay
from orchestrator.emulator.http.websocket import GUID, unmasked
from tests.kit.addresses import free_address, free_port

CONNECT = "/v4/connect?project=p-1&zone=z-a&instance=demo-vm&interface=nic0&port={port}&newWebsocket=True"
BINARY, CLOSE, PING, PONG = 0x2, 0x8, 0x9, 0xA


class Client:
    """One websocket of gcloud's side."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def open(self, path, protocol=PROTOCOL):
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET {path} HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {key}\r\n"
        self.writer.write(f"{head}Sec-WebSocket-Protocol: {protocol}\r\n\r\n".encode())
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        proof = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()  # noqa: S324
        return answer.split(" ")[1], f"Sec-WebSocket-Accept: {proof}\r\n" in answer

    def send(self, data, kind=BINARY, *, final=True):
        mask = os.urandom(4)
        size = struct.pack(">B", 0x80 | len(data)) if len(data) < 126 else struct.pack(">BH", 0xFE, len(data))
        self.writer.write(
            struct.pack(">B", kind | (0x80 if final else 0)) + size + mask + unmasked(data, mask)
        )

    async def receive(self):
        first, size = await self.reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack(">H", await self.reader.readexactly(2))
        return first & 0x0F, await self.reader.readexactly(size)


def relayed(tmp_path, talk, *, denied=False, port=None):
    """Let *talk* speak with a relay before a machine that answers in capitals and notes its clients."""

    async def main():
        address, peers, source = free_address(), [], free_address()

        async def machine(reader, writer):
            peers.append(writer.get_extra_info("peername")[0])
            while data := await reader.read(65536):
                writer.write(data.upper())
            writer.close()

        server = await asyncio.start_server(machine, address, 0)
        there = server.sockets[0].getsockname()[1]
        held = certificates(tmp_path)
        found = {("p-1", "z-a", "demo-vm"): address}
        relay, here = IapRelay(lambda *names: found.get(names), source, denied=denied), free_port("127.0.0.1")
        await relay.start(here, held.context())
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        client = Client(*await asyncio.open_connection("127.0.0.1", here, ssl=trust))
        await talk(client, there if port is None else port)
        client.writer.close()
        await relay.close()
        server.close()
        return peers == [source]

    return asyncio.run(asyncio.wait_for(main(), 60))


def data(text):
    """Return a message with data as both sides send it."""
    return struct.pack(">HI", 4, len(text)) + text


def test_bytes_go_both_ways_and_are_confirmed(tmp_path):
    """The machine sees the relay's address; a message may come in pieces, with a ping between them."""

    async def talk(client, port):
        assert await client.open(CONNECT.format(port=port)) == ("101", True)
        kind, sid = await client.receive()
        assert (kind, sid[:6]) == (BINARY, struct.pack(">HI", 1, len(sid) - 6))
        client.send(data(b"hello")[:4], final=False)
        client.send(b"?", PING)
        client.send(data(b"hello")[4:], 0)
        got = [await client.receive() for _ in range(3)]
        assert sorted(got) == [(BINARY, data(b"HELLO")), (BINARY, struct.pack(">HQ", 7, 5)), (PONG, b"?")]
        client.send(data(b"x" * 2000))
        got = [await client.receive() for _ in range(2)]
        assert (BINARY, struct.pack(">HQ", 7, 2005)) in got

    assert relayed(tmp_path, talk)


@pytest.mark.parametrize(
    ("path", "options", "code"),
    [
        (CONNECT, {"denied": True}, 4033),
        (CONNECT.replace("demo-vm", "other"), {}, 4047),
        (CONNECT, {"port": 1}, 4003),
        ("/v4/reconnect?sid=x&ack=0", {}, 4003),
    ],
)
def test_what_the_iap_emulator_cannot_do_it_says_with_googles_code(tmp_path, path, options, code):
    """The code and the reason are what gcloud shows to its user."""

    async def talk(client, port):
        await client.open(path.format(port=port))
        kind, body = await client.receive()
        assert (kind, struct.unpack_from(">H", body)[0]) == (CLOSE, code)

    assert not relayed(tmp_path, talk, **options)


def test_another_protocol_is_refused(tmp_path):
    """Nothing is carried for a browser."""

    async def talk(client, port):
        assert (await client.open(CONNECT.format(port=port), "chat"))[0] == "400"

    assert not relayed(tmp_path, talk)


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_the_mask_comes_off(plain, mask):
    """Each byte is combined with its byte of the mask."""
    assert unmasked(plain, mask) == bytes(byte ^ mask[i % 4] for i, byte in enumerate(plain))
