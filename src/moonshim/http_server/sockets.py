"""A host name and a port -> bound sockets, or an error that says why they cannot be bound."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from typing import Final

from moonshim.errors import MoonshimError

__all__ = ["BindError", "bind", "free_port", "is_loopback", "reachable_host", "url_of"]


class BindError(MoonshimError):
    """This address cannot be bound; the message says why, and what to do."""

    code = "cannot_listen"


_REASONS: Final = {
    errno.EADDRINUSE: "{where} is in use, maybe by another moonshim. Choose another with --port, or any with --port 0",
    errno.EACCES: "no permission for {where}: ports below 1024 are reserved. Choose another with --port",
    errno.EADDRNOTAVAIL: "cannot use {where}: not an address of this machine. Set --host to one, such as 127.0.0.1",
}


def bind(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Sockets for every address of the name, all on one port. They do not listen yet.

    `shared`: other processes of the same user may bind to the same port, and the kernel distributes connections.
    """
    bound: list[socket.socket] = []
    failure: OSError | None = None
    for family, address in _addresses(host):
        number = bound[0].getsockname()[1] if bound and port == 0 else port
        try:
            bound.append(_bound(family, (address, number), shared=shared))
        except OSError as error:
            # A name such as localhost may have an address of a family that this machine does not support.
            if error.errno != errno.EADDRNOTAVAIL:
                failure = error
                break
            failure = failure or error
    if bound and (failure is None or failure.errno == errno.EADDRNOTAVAIL):
        return bound
    for one in bound:
        one.close()
    assert failure is not None
    reason = _REASONS.get(failure.errno or 0)
    where = f"port {port} on {host}"
    raise BindError(reason.format(where=where) if reason else f"cannot listen on {where}: {failure.strerror}")


def free_port(host: str, port: int) -> int:
    """The port itself, if it is free; for 0, one that is free.

    Checked with an exclusive bind: a shared one would not notice another program on the port.
    """
    alone = bind(host, port)
    number: int = alone[0].getsockname()[1]
    for one in alone:
        one.close()
    return number


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for _, address in _addresses(host))


def url_of(host: str, port: int) -> str:
    """
    >>> url_of("127.0.0.1", 8484), url_of("::1", 80)
    ('http://127.0.0.1:8484', 'http://[::1]:80')
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def reachable_host(host: str) -> str:
    """The address to connect to from this machine: not every system can connect to one that means all addresses.

    >>> reachable_host("0.0.0.0"), reachable_host("::"), reachable_host("10.0.0.1")
    ('127.0.0.1', '::1', '10.0.0.1')
    """
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise BindError(f"cannot resolve the host {host!r}") from None
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bound(family: socket.AddressFamily, address: tuple[str, int], *, shared: bool) -> socket.socket:
    # With this protocol number, asyncio sets TCP_NODELAY, so that small writes do not wait for each other.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
