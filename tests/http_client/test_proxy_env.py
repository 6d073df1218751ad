"""The way to a host: proxies of the environment and the configuration, and whose certificates are trusted."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

import pytest
import trustme

from moonshim.errors import UpstreamUnreachable
from moonshim.http_client import UpstreamClient, UpstreamRequest
from moonshim.http_client.proxy_env import proxy_for
from tests.http_client.asking import PATIENT, sending
from tests.support.gateway.hosts import Host, Proxy, run, whole

AUTHORITY: Final = trustme.CA()
VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "requests_ca_bundle")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("trust") / "ours.pem"
    AUTHORITY.cert_pem.write_to_path(path)
    return str(path)


def served_as(*names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert(*names).configure_cert(context)
    return context


async def ask(url: str, *, proxy: str | None = None, ca_bundle: str | None = None) -> bytes:
    upstream = UpstreamClient()
    try:
        answer = await upstream.open(
            UpstreamRequest(url, {"authorization": "Bearer sk-secret"}, b"{}", PATIENT, proxy, ca_bundle)
        )
        return await answer.read_all(1000)
    finally:
        await upstream.close()


def asked(url: str = "", *, host: Host, proxy: str | None = None, ca_bundle: str | None = None) -> bytes | str:
    """What a host answers, or what is said when it does not."""

    async def test() -> bytes | str:
        async with host:
            try:
                return await ask(url or host.url, proxy=proxy, ca_bundle=ca_bundle)
            except UpstreamUnreachable as error:
                return str(error)

    return run(test())


class TestCertificates:
    def host(self, *names: str) -> Host:
        return Host(sending(whole(b"{}")), tls=served_as(*(names or ("127.0.0.1",))))

    def test_a_configured_bundle_is_trusted(self, bundle: str) -> None:
        assert asked(host=self.host(), ca_bundle=bundle) == b"{}"

    @pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
    def test_a_bundle_of_the_environment_is_trusted(
        self, bundle: str, variable: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(variable, bundle)
        assert asked(host=self.host()) == b"{}"

    def test_the_configured_one_counts_before_that_of_the_environment(
        self, bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path / "other.pem"
        trustme.CA().cert_pem.write_to_path(other)
        monkeypatch.setenv("SSL_CERT_FILE", bundle)
        assert "not trusted" in str(asked(host=self.host(), ca_bundle=str(other)))

    def test_a_stranger_is_not_trusted_and_told_with_what_to_do(self) -> None:
        told = str(asked(host=self.host()))
        assert "the certificate of 127.0.0.1:" in told
        assert "is not trusted: " in told
        assert "ca_bundle" in told

    def test_the_certificate_of_another_name_is_not_trusted(self, bundle: str) -> None:
        told = str(asked(host=self.host("elsewhere.test"), ca_bundle=bundle))
        assert "is not trusted: " in told
        assert "mismatch" in told

    def test_a_port_without_tls_is_told(self, bundle: str) -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async def test() -> None:
            async with await asyncio.start_server(refuse, "127.0.0.1", 0) as plain:
                url = f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
                with pytest.raises(UpstreamUnreachable, match="may expect plain HTTP"):
                    await ask(url, ca_bundle=bundle)

        run(test())


class TestProxies:
    """Names that only a proxy can know: `host.test` has no address."""

    def test_plain_requests_go_through_the_proxy_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def test() -> None:
            async with Host(sending(whole(b"{}"))) as host, Proxy(host) as proxy:
                monkeypatch.setenv("HTTP_PROXY", proxy.url)
                assert await ask("http://host.test/v1/models") == b"{}"
                assert [one.path for one in proxy.requests] == ["http://host.test/v1/models"]
                assert [(one.path, one.headers["host"]) for one in host.requests] == [("/v1/models", "host.test")]

        run(test())

    def test_encrypted_requests_go_through_a_tunnel(self, bundle: str, monkeypatch: pytest.MonkeyPatch) -> None:
        async def test() -> None:
            async with Host(sending(whole(b"{}")), tls=served_as("host.test")) as host, Proxy(host) as proxy:
                monkeypatch.setenv("https_proxy", f"http://user:word@127.0.0.1:{proxy.port}")
                assert await ask("https://host.test/v1?x=1", ca_bundle=bundle) == b"{}"
                (tunnel,) = proxy.requests
                assert (tunnel.method, tunnel.path) == ("CONNECT", "host.test:443")
                assert tunnel.headers["proxy-authorization"] == "Basic dXNlcjp3b3Jk"
                assert "authorization" not in tunnel.headers
                assert "proxy-authorization" not in host.requests[0].headers

        run(test())

    def test_a_configured_proxy_counts_before_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def test() -> None:
            async with Host(sending(whole(b"{}"))) as host, Proxy(host) as proxy, Proxy(host) as other:
                monkeypatch.setenv("HTTP_PROXY", other.url)
                monkeypatch.setenv("NO_PROXY", "*")
                assert await ask("http://host.test/v1", proxy=proxy.url) == b"{}"
                assert await ask(host.url, proxy=proxy.url) == b"{}"
                assert (len(proxy.requests), len(other.requests)) == (2, 0)

        run(test())

    @pytest.mark.parametrize(("url", "status"), [("https://host.test/", 407), ("https://host.test/", 403)])
    def test_a_proxy_that_refuses_is_told(self, url: str, status: int) -> None:
        async def test() -> None:
            async with Host(sending()) as host, Proxy(host, refuse=status) as proxy:
                with pytest.raises(UpstreamUnreachable) as caught:
                    await ask(url, proxy=f"http://hidden-user:hidden-word@127.0.0.1:{proxy.port}")
                told = str(caught.value)
                assert f"the proxy 127.0.0.1:{proxy.port} refused" in told
                assert f"host.test:443 with status {status}" in told
                assert "hidden" not in told
                assert ("user name and password" in told) is (status == 407)

        run(test())

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_a_proxy_that_is_not_there_is_told(self, scheme: str) -> None:
        with pytest.raises(UpstreamUnreachable, match=r"no connection to the proxy 127\.0\.0\.1:1: connection refused"):
            run(ask(f"{scheme}://host.test/", proxy="http://127.0.0.1:1"))

    def test_a_proxy_of_another_kind_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", "socks5://hidden-user:hidden-word@127.0.0.1:1080")
        with pytest.raises(UpstreamUnreachable, match=r"unsupported proxy 127\.0\.0\.1:1080: .*SOCKS") as caught:
            run(ask("https://host.test/"))
        assert "hidden" not in str(caught.value)

    @pytest.mark.parametrize(
        ("url", "no_proxy", "goes_through"),
        [
            ("https://api.moonshot.ai/v1", "", True),
            ("https://api.moonshot.ai/v1", "example.test, 10.0.0.0/8", True),
            ("https://api.moonshot.ai/v1", "moonshot.ai", False),
            ("https://api.moonshot.ai/v1", ".moonshot.ai", False),
            ("https://api.moonshot.ai:8443/v1", "api.moonshot.ai:8443", False),
            ("https://api.moonshot.ai/v1", "*", False),
            ("https://user:word@api.moonshot.ai/v1", "api.moonshot.ai", False),
            ("https://notmoonshot.ai/v1", "moonshot.ai", True),
            ("http://10.1.2.3:8000/v1", "10.0.0.0/8", False),
            ("http://11.1.2.3:8000/v1", "10.0.0.0/8,nonsense/99", True),
            ("http://[fd00::1]:8000/v1", "fd00::/8", False),
            ("http://127.0.0.1:8000/v1", "", False),
            ("http://localhost:8000/v1", "", False),
            ("http://[::1]:8000/v1", "", False),
        ],
    )
    def test_no_proxy_and_loopback_are_asked_directly(
        self, url: str, no_proxy: str, goes_through: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
        monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
        monkeypatch.setenv("NO_PROXY", no_proxy)
        assert proxy_for(url, None) == ("http://proxy.test:3128" if goes_through else None)

    def test_the_proxy_for_the_scheme_counts_before_the_one_for_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", "all.test:1")
        assert proxy_for("https://host.test", None) == "http://all.test:1"
        monkeypatch.setenv("HTTPS_PROXY", "http://one.test:2")
        assert proxy_for("https://host.test", None) == "http://one.test:2"
        assert proxy_for("http://host.test", None) == "http://all.test:1"
        assert proxy_for("https://host.test", "") is None
