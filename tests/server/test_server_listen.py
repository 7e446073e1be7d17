"""Taking the address before anything is loaded."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from cenote.config import ServerOptions
from cenote.errors import OptionError
from cenote.server.listen import bind, is_public, release, url_of

FREE = ServerOptions(port=0)


def test_free_port_is_taken() -> None:
    with bind(FREE) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener, FREE) == f"http://127.0.0.1:{port}"
        assert not is_public(listener)


def test_every_network_is_reached_through_this_machine() -> None:
    options = ServerOptions(host="0.0.0.0", port=0)
    with bind(options) as listener:
        assert url_of(listener, options).startswith("http://127.0.0.1:")
        assert is_public(listener)


def test_used_port_is_an_error_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used, pytest.raises(OptionError, match="--port"):
        bind(ServerOptions(port=used.getsockname()[1]))


def test_unknown_host_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"no\.such\.host\.invalid"):
        bind(ServerOptions(host="no.such.host.invalid", port=0))


class TestUnixSocket:
    def test_is_made_and_removed(self, tmp_path: Path) -> None:
        options = ServerOptions(uds=str(tmp_path / "socket"))
        listener = bind(options)
        assert (url_of(listener, options), is_public(listener)) == ("http://localhost", False)
        assert (tmp_path / "socket").is_socket()
        release(listener, options)
        assert not (tmp_path / "socket").exists()

    def test_one_that_a_killed_server_left_is_replaced(self, tmp_path: Path) -> None:
        options = ServerOptions(uds=str(tmp_path / "socket"))
        bind(options).close()
        assert (tmp_path / "socket").is_socket()
        release(bind(options), options)

    def test_one_in_use_is_left_alone(self, tmp_path: Path) -> None:
        options = ServerOptions(uds=str(tmp_path / "socket"))
        listener = bind(options)
        listener.listen()
        with pytest.raises(OptionError, match="--uds"):
            bind(options)
        assert (tmp_path / "socket").is_socket()
        release(listener, options)

    def test_a_file_is_never_removed(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("kept")
        with pytest.raises(OptionError, match="file"):
            bind(ServerOptions(uds=str(tmp_path / "file")))
        assert (tmp_path / "file").read_text() == "kept"

    def test_a_path_that_cannot_be_one_is_an_error(self, tmp_path: Path) -> None:
        for path in (tmp_path / "no" / "folder", tmp_path / ("x" * 200)):
            with pytest.raises(OptionError, match=os.path.basename(path)[:20]):
                bind(ServerOptions(uds=str(path)))


class TestCertificate:
    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=r"nothing\.pem"):
            bind(ServerOptions(port=0, ssl_certfile=str(tmp_path / "nothing.pem")))

    def test_a_file_without_a_certificate_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "wrong.pem").write_text("no certificate")
        with pytest.raises(OptionError, match=r"wrong\.pem.*PEM"):
            bind(ServerOptions(port=0, ssl_certfile=str(tmp_path / "wrong.pem")))

    def test_an_encrypted_key_is_refused_without_a_question(self, tmp_path: Path) -> None:
        issued = trustme.CA().issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
        (tmp_path / "key.pem").write_bytes(locked)
        files = {name: str(tmp_path / f"{name}.pem") for name in ("cert", "key")}
        with pytest.raises(OptionError, match="encrypted"):
            bind(ServerOptions(port=0, ssl_certfile=files["cert"], ssl_keyfile=files["key"]))

    def test_a_key_needs_its_certificate(self) -> None:
        with pytest.raises(OptionError, match="ssl_certfile"):
            ServerOptions(ssl_keyfile="key.pem")
