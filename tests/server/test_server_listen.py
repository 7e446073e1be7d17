"""Taking the port before anything is loaded."""

from __future__ import annotations

import socket

import pytest

from cenote.errors import OptionError
from cenote.server.listen import bind, url_of


def test_free_port_is_taken() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"


def test_every_network_is_reached_through_this_machine() -> None:
    with bind("0.0.0.0", 0) as listener:
        assert url_of(listener).startswith("http://127.0.0.1:")


def test_used_port_is_an_error_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used, pytest.raises(OptionError, match="--port"):
        bind("127.0.0.1", used.getsockname()[1])


def test_unknown_host_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"no\.such\.host\.invalid"):
        bind("no.such.host.invalid", 0)
