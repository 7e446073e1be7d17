"""The size of a step follows the speed of the machine, slowly and within bounds."""

from __future__ import annotations

import pytest

from cenote.runtime.pace import (
    CPU_STEP_SECONDS,
    MAX_STEP_TOKENS,
    MIN_SHARED_STEP_TOKENS,
    MIN_STEP_TOKENS,
    Pace,
)


def test_a_bad_measurement_at_start_does_not_last() -> None:
    pace = Pace(tokens_per_second=3_000)
    for _ in range(60):
        pace.observe(pace.step_tokens, pace.step_tokens / 9_000)
    assert pace.step_tokens == pytest.approx(9_000 * CPU_STEP_SECONDS, rel=0.02)


def test_one_slow_step_changes_little() -> None:
    pace = Pace(tokens_per_second=9_000)
    pace.observe(900, 5.0)
    assert pace.step_tokens > 700


def test_on_a_machine_that_is_busy_by_turns_a_step_takes_its_time_in_the_mean() -> None:
    """The mean of the speeds would be 5,000 tokens a second, and a step 275 ms in the mean."""
    pace = Pace(tokens_per_second=9_000)
    for number in range(400):
        pace.observe(pace.step_tokens, pace.step_tokens / (9_000 if number % 2 else 1_000))
    mean_seconds = pace.step_tokens * (1 / 9_000 + 1 / 1_000) / 2
    assert mean_seconds == pytest.approx(CPU_STEP_SECONDS, rel=0.25)


def test_small_steps_say_nothing() -> None:
    pace = Pace(tokens_per_second=9_000)
    pace.observe(100, 0.05)
    assert pace.tokens_per_second == 9_000


def test_bounds() -> None:
    assert Pace(tokens_per_second=1).step_tokens == MIN_STEP_TOKENS
    assert Pace(tokens_per_second=1e9).step_tokens == MAX_STEP_TOKENS


@pytest.mark.parametrize(
    ("speed", "step_seconds", "is_slow"), [(600, 0.1, True), (700, 0.1, False), (150, 0.4, True), (200, 0.4, False)]
)
def test_a_model_is_slow_where_few_tokens_take_two_steps(speed: float, step_seconds: float, is_slow: bool) -> None:
    assert Pace(tokens_per_second=speed, step_seconds=step_seconds).is_slow == is_slow


def test_threads_that_share_a_step_are_as_fast_as_all_of_them_and_get_more() -> None:
    shared = Pace(tokens_per_second=100, step_seconds=0.1).shared(2)
    assert (shared.tokens_per_second, shared.step_tokens) == (200, MIN_SHARED_STEP_TOKENS)
    assert Pace(tokens_per_second=100, step_seconds=0.4).shared(2).step_tokens == 4 * MIN_SHARED_STEP_TOKENS
    assert Pace(tokens_per_second=100, step_seconds=0.01).shared(2).step_tokens == MIN_STEP_TOKENS
