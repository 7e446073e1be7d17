"""The server on a Unix socket and behind TLS, with the line that `cenote serve` prints for each."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from running import RunningServer, run_server

from cenote.cli.serve import greeting
from cenote.config import ServerOptions

BODY = {"model": "tiny", "input": "the cat"}


@pytest.fixture
def certificate(tmp_path: Path) -> Iterator[tuple[str, str, trustme.CA]]:
    """A certificate and its key as files, and who signed it."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    return str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"), authority


def curl(url: str, options: ServerOptions, server: RunningServer) -> dict[str, object]:
    """Run the printed command as a shell would and return what it printed."""
    printed = greeting(url, options, server.engines)
    (line,) = (line for line in printed.splitlines() if line.startswith("  curl"))
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True, timeout=60)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_unix_socket(server: RunningServer, tmp_path: Path) -> None:
    path = tmp_path / "a folder"
    path.mkdir()
    options = ServerOptions(uds=str(path / "cenote.sock"))
    transport = httpx.HTTPTransport(uds=options.uds)
    with run_server(server.engines, options) as own, httpx.Client(base_url=own.url, transport=transport) as http:
        answer = http.post("/v1/embeddings", json=BODY)
        assert answer.json() == server.http.post("/v1/embeddings", json=BODY).json()
        assert curl(own.url, options, own)["model"] == "tiny"
    assert not (path / "cenote.sock").exists()


@pytest.mark.parametrize("with_key", [True, False], ids=["two files", "one file"])
def test_tls(server: RunningServer, certificate: tuple[str, str, trustme.CA], with_key: bool) -> None:
    cert, key, authority = certificate
    if with_key:
        options = ServerOptions(port=0, ssl_certfile=cert, ssl_keyfile=key)
    else:
        Path(cert).write_text(Path(key).read_text() + Path(cert).read_text())
        options = ServerOptions(port=0, ssl_certfile=cert)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with run_server(server.engines, options) as own:
        url = own.url.replace("127.0.0.1", "localhost")
        assert url.startswith("https://")
        with httpx.Client(base_url=url, verify=trusting) as http:
            assert http.post("/v1/embeddings", json=BODY).status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{url}/health")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{url}/health".replace("https", "http"))
        assert curl(own.url, options, own)["model"] == "tiny"
