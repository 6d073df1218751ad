"""An address, and a proxy or none -> an open connection: name, TCP, proxy and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import ssl
import threading
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

import aiohappyeyeballs

from moonshim.errors import TooManyOpenFiles, UpstreamError, UpstreamUnreachable, UpstreamUnresolved
from moonshim.http_client.address import Address
from moonshim.http_client.connection import Connection, ConnectionFailed
from moonshim.http_client.proxy_env import ssl_context

__all__ = ["Names", "connect", "reason_of"]

AddressInfos: TypeAlias = list[tuple[Any, ...]]

LOOKUP_SECONDS: Final = 6
"""After this the name servers have failed. Their second one is usually asked after 5 seconds."""
NAMES_SECONDS: Final = 30
"""How long the addresses of a name are cached."""
_NEXT_ADDRESS_SECONDS: Final = 0.25
"""After this delay the next address of a host is tried as well, as RFC 8305 recommends: IPv6 may lead nowhere."""
_OK: Final = range(200, 300)
_NO_CREDENTIALS: Final = 407
_NOT_TRUSTED: Final = "set the provider's `ca_bundle`, or SSL_CERT_FILE, to a file with the right certificates"


class Names:
    """Looks up the addresses of names, each at most once in a while, however many requests wait for it.

    A lookup that takes longer than `seconds` fails for everybody who waits, and at once for those who come later, until
    its name server answers: the system cannot be made to give up.
    """

    def __init__(self, seconds: float = LOOKUP_SECONDS) -> None:
        self._seconds = seconds
        self._lookups: dict[tuple[str, int], tuple[float, asyncio.Task[AddressInfos]]] = {}

    async def find(self, host: str, port: int) -> AddressInfos:
        """Raises `OSError`."""
        loop = asyncio.get_running_loop()
        if (known := _literal(host, port)) is not None:
            return known
        since, lookup = self._lookups.get((host, port), (0.0, None))
        if lookup is None or (lookup.done() and loop.time() - since > NAMES_SECONDS):
            lookup = loop.create_task(_look_up(loop, host, port))
            lookup.add_done_callback(lambda done: self._forget_failure((host, port), done))
            since = loop.time()
            self._lookups[host, port] = since, lookup
        try:
            async with asyncio.timeout_at(since + self._seconds):
                return await asyncio.shield(lookup)
        except TimeoutError:
            why = f"no answer from a name server within {self._seconds:g} s"
            raise socket.gaierror(socket.EAI_AGAIN, why) from None

    def _forget_failure(self, name: tuple[str, int], lookup: asyncio.Task[AddressInfos]) -> None:
        if lookup.cancelled() or lookup.exception() is not None:
            self._lookups.pop(name, None)

    def close(self) -> None:
        for _, lookup in self._lookups.values():
            lookup.cancel()


def _literal(host: str, port: int) -> AddressInfos | None:
    """An IP address needs no lookup."""
    try:
        version = ip_address(host).version
    except ValueError:
        return None
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    place = (host, port) if version == 4 else (host, port, 0, 0)
    return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place)]


async def _look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> AddressInfos:
    """In a thread of its own: waiting for a name server must not keep other work, or the process, from ending."""
    found: asyncio.Future[AddressInfos] = loop.create_future()

    def settle(infos: AddressInfos, error: Exception | None) -> None:
        if not found.done():
            found.set_result(infos) if error is None else found.set_exception(error)

    def ask() -> None:
        infos, failure = AddressInfos(), None
        try:
            infos = list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG))
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, infos, failure)

    threading.Thread(target=ask, daemon=True).start()
    return await found


async def connect(
    address: Address,
    proxy: Address | None,
    ca_bundle: str | None,
    names: Names,
    ended: Callable[[Connection], None],
) -> Connection:
    """Raises `UpstreamUnreachable` and `TooManyOpenFiles`. Cancelling it is how to limit its time."""
    first = proxy or address
    place = f"the proxy {first.host_and_port}" if proxy is not None else address.host_and_port
    context = ssl_context(ca_bundle) if address.is_tls or first.is_tls else None
    bare = await _open_socket(first, place, address, names)
    connection = await _start(bare, first, place, context if first.is_tls else None, ended)
    if proxy is None or not address.is_tls:
        return connection
    assert context is not None
    await _open_tunnel(connection, address, proxy)
    return await _encrypt(connection, address, context, ended)


async def _open_socket(first: Address, place: str, address: Address, names: Names) -> socket.socket:
    failure: UpstreamError
    try:
        infos = await names.find(first.host, first.port)
    except OSError as error:
        failure = _too_many_files(address, error, resolving=True) or UpstreamUnresolved(
            f"cannot resolve {first.host_and_port}: {reason_of(error)}"
        )
    except UnicodeError:  # an empty label, or one of more than 63 characters
        failure = UpstreamUnresolved(f"cannot resolve {first.host_and_port}: not a valid host name")
    else:
        try:
            return await aiohappyeyeballs.start_connection(
                infos,
                loop=asyncio.get_running_loop(),
                happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
            )
        except OSError as error:
            failure = _too_many_files(address, error) or UpstreamUnreachable(
                f"no connection to {place}: {reason_of(error)}"
            )
    raise failure


async def _start(
    bare: socket.socket,
    first: Address,
    place: str,
    context: ssl.SSLContext | None,
    ended: Callable[[Connection], None],
) -> Connection:
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(
            lambda: Connection(ended),
            sock=bare,
            ssl=context,
            server_hostname=None if context is None else first.host,
        )
    except OSError as error:
        failure = _tls_failure(error, first)
    except BaseException:
        bare.close()
        raise
    else:
        return connection
    bare.close()
    raise failure


async def _open_tunnel(connection: Connection, address: Address, proxy: Address) -> None:
    """Ask the proxy for a connection to the host."""
    goal = address.host_and_port
    lines = [f"CONNECT {goal} HTTP/1.1", f"Host: {goal}"]
    if proxy.credentials is not None:
        lines.append(f"Proxy-Authorization: {proxy.credentials}")
    failure = ""
    try:
        response = await connection.ask("\r\n".join([*lines, "", ""]).encode(), b"", math.inf)
    except ConnectionFailed:
        failure = f"the proxy {proxy.host_and_port} closed the connection without a response"
    else:
        if response.status not in _OK:
            hint = "; add the user name and password to the proxy URL" if response.status == _NO_CREDENTIALS else ""
            failure = f"the proxy {proxy.host_and_port} refused a connection to {goal} with status {response.status}"
            failure += hint
    if failure:
        connection.abort()
        raise UpstreamUnreachable(failure)


async def _encrypt(
    tunnel: Connection, address: Address, context: ssl.SSLContext, ended: Callable[[Connection], None]
) -> Connection:
    """TLS inside a tunnel."""
    inner = Connection(ended)
    transport = tunnel.transport
    try:
        encrypted = await asyncio.get_running_loop().start_tls(transport, inner, context, server_hostname=address.host)
    except OSError as error:
        failure = _tls_failure(error, address)
    except BaseException:
        transport.abort()
        raise
    else:
        inner.connection_made(encrypted)
        return inner
    transport.abort()
    raise failure


def _tls_failure(error: OSError, address: Address) -> UpstreamError:
    place = address.host_and_port
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message or "not valid"
        return UpstreamUnreachable(f"the certificate of {place} is not trusted: {reason}; {_NOT_TRUSTED}")
    if isinstance(error, ssl.SSLError):
        return UpstreamUnreachable(f"TLS handshake with {place} failed; the server may expect plain HTTP on this port")
    return _too_many_files(address, error) or UpstreamUnreachable(f"no connection to {place}: {reason_of(error)}")


def _too_many_files(address: Address, error: OSError, *, resolving: bool = False) -> TooManyOpenFiles | None:
    number = error.errno
    if resolving:
        # A resolver that cannot open a file reports that the name is unknown, or to try again.
        try:
            os.close(os.dup(0))
        except OSError as own:
            number = own.errno
    if number not in (errno.EMFILE, errno.ENFILE):
        return None
    return TooManyOpenFiles(f"no connection to {address.host_and_port}: this process has too many open files")


def reason_of(error: BaseException) -> str:
    """`connection refused`, in the system's words."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    return str(getattr(error, "strerror", None) or type(error).__name__)
