"""When a log line is written: with others where an event loop logs it, at once where somebody may wait for it."""

from __future__ import annotations

import asyncio
import io
import logging
import subprocess
import sys
import threading
import time

import pytest

from cenote.server.logs import WRITE_SECONDS, LineHandler


class Stream(io.StringIO):
    """Counts how often it was written to."""

    num_writes = 0

    def write(self, text: str) -> int:
        self.num_writes += 1
        return super().write(text)


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def log(stream: Stream) -> logging.Logger:
    logger = logging.Logger("lines", logging.INFO)
    logger.addHandler(LineHandler(stream))
    return logger


def test_lines_of_an_event_loop_are_written_together_and_soon(log: logging.Logger, stream: Stream) -> None:
    async def serve() -> float:
        for number in range(50):
            log.info("line %d", number)
            await asyncio.sleep(0)
        assert stream.num_writes == 0
        start = time.monotonic()
        while not stream.num_writes:
            await asyncio.sleep(0.005)
        return time.monotonic() - start

    assert asyncio.run(serve()) < WRITE_SECONDS + 1
    assert stream.num_writes == 1
    assert stream.getvalue().splitlines() == [f"line {number}" for number in range(50)]


def test_a_warning_is_written_at_once_behind_the_lines_before_it(log: logging.Logger, stream: Stream) -> None:
    async def serve() -> str:
        log.info("first")
        log.warning("second")
        return stream.getvalue()

    assert asyncio.run(serve()) == "first\nsecond\n"


def test_other_threads_write_at_once(log: logging.Logger, stream: Stream) -> None:
    threads = [threading.Thread(target=log.info, args=[f"line {number}"]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(stream.getvalue().splitlines()) == [f"line {number}" for number in range(8)]


def test_another_thread_writes_what_waits_on_an_event_loop_first(log: logging.Logger, stream: Stream) -> None:
    async def serve() -> str:
        log.info("first")
        thread = threading.Thread(target=log.info, args=["second"])
        thread.start()
        thread.join()
        return stream.getvalue()

    assert asyncio.run(serve()) == "first\nsecond\n"


def test_the_next_event_loop_writes_what_one_that_ended_has_left(log: logging.Logger, stream: Stream) -> None:
    async def serve(line: str, seconds: float) -> None:
        log.info(line)
        await asyncio.sleep(seconds)

    asyncio.run(serve("first", 0))
    assert not stream.getvalue()
    asyncio.run(serve("second", WRITE_SECONDS + 0.5))
    assert stream.getvalue() == "first\nsecond\n"


def test_what_waits_when_the_process_ends_is_written() -> None:
    script = """
import asyncio, logging
from cenote.server.logs import configure

async def serve():
    logging.getLogger("cenote.access").info("the last")

configure("text", "info")
asyncio.run(serve())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stderr.endswith("INFO cenote.access: the last\n")


def test_a_line_that_cannot_be_formatted_ends_nothing(
    log: logging.Logger, stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    log.info("%d", "not a number")
    log.info("next")
    assert stream.getvalue() == "next\n"
    assert "Logging error" in capsys.readouterr().err
