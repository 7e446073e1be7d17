"""No buffer is rewritten before it was read: thousands of steps on a device that does everything late.

The answers must be those of the CPU, bit for bit, and no step may wait for a buffer. What makes that so is taken away
one at a time, and then the same check must fail.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from cenote.checkpoint import read_checkpoint
from cenote.models.load import load_model
from cenote.params import PoolingParams, TaskParams
from cenote.pooling.build import build_pooler
from cenote.runtime.device import CpuDevice, CudaDevice, Device, Event, Passed
from cenote.runtime.device_late import LateDevice
from cenote.runtime.late_tensor import LateTensor
from cenote.runtime.request import Piece, Sequence, SequenceState
from cenote.runtime.runner import InFlight, ModelRunner, batch_order
from cenote.runtime.staging import BatchLayout, Staging
from tiny import CheckpointFactory


class DelayedCudaDevice(CudaDevice):
    """A GPU whose copies up wait for some tens of milliseconds of work that does nothing."""

    def copy_to_device(self, host: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
        return super().copy_to_device(host)


class LateDeviceWithoutEvents(LateDevice):
    """Says that every copy is done although it is not."""

    def record(self) -> Event:
        return Passed()


@dataclass(frozen=True)
class Outcome:
    """How many steps gave other answers than the CPU, and how many had to wait for a buffer."""

    num_wrong: int
    num_stalls: int


class Race:
    """Random steps of one model, run on a device under test and, one at a time, on one that is known to be right."""

    def __init__(
        self, folder: Path, device: Device, *, num_buffers: int | None = None, reference: Device | None = None
    ) -> None:
        spec = read_checkpoint(folder, pooling="mean")
        model = load_model(spec, dtype=torch.float32, device=device.torch_device)
        pooler = build_pooler(spec, model, any_dimensions=True)
        self.device = device
        self.runner = ModelRunner(model, pooler, device)
        self.reference = ModelRunner(model, pooler, reference or CpuDevice())
        layout = BatchLayout(position_offset=model.position_offset, uses_token_types=model.uses_token_types)
        self.staging = Staging(device, layout, num_buffers)
        self.runner._staging = self.staging
        self.random = np.random.default_rng(0)

    def run(self, num_steps: int, *, wait_every: int = 1) -> Outcome:
        """Run as the loop does: `steps_in_flight` are launched before the first is waited for.

        Only the results of every `wait_every`-th step are waited for; the others are like steps that failed.
        """
        num_wrong = 0
        flying: deque[tuple[InFlight, list[Piece]]] = deque()
        for step in range(num_steps):
            pieces = self.step()
            in_flight = self.runner.launch(pieces)
            if step % wait_every:
                continue
            flying.append((in_flight, pieces))
            if len(flying) >= self.device.steps_in_flight:
                num_wrong += self.is_wrong(*flying.popleft())
        num_wrong += sum(self.is_wrong(*each) for each in flying)
        return Outcome(num_wrong, self.staging.num_stalls)

    def step(self) -> list[Piece]:
        """Return a step of random size: texts of one length and width, which are quick, or now and then of several."""
        is_mixed = self.random.random() < 0.1
        lengths = np.repeat(self.random.integers(1, 13, 3 if is_mixed else 1), self.random.integers(1, 5))
        widths = self.random.choice([8, 64], len(lengths) if is_mixed else 1)
        widths = np.broadcast_to(widths, len(lengths))
        pieces = [self.piece(length, width) for length, width in zip(lengths.tolist(), widths.tolist(), strict=True)]
        return sorted(pieces, key=batch_order)

    def piece(self, length: int, dimensions: int = 64) -> Piece:
        params: TaskParams = {"embed": PoolingParams(task="embed", dimensions=dimensions)}
        ids_np = self.random.integers(5, 190, length)
        return Piece(sequence=Sequence(token_ids=ids_np, params=params, num_keys=length), stop=length)

    def is_wrong(self, in_flight: InFlight, pieces: list[Piece]) -> bool:
        results, expected = in_flight.result(), self.reference.launch(pieces).result()
        return not all(
            isinstance(got, dict) and isinstance(right, dict) and np.array_equal(got["embed"], right["embed"])
            for got, right in zip(results, expected, strict=True)
        )


def goes_wrong(race: Race, **options: int) -> bool:
    """Return whether the same check as below fails: wrong numbers, or positions that the model does not have."""
    try:
        return race.run(100, **options).num_wrong > 0
    except IndexError:
        return True


@pytest.fixture
def folder(checkpoint: CheckpointFactory) -> Path:
    return checkpoint("distilbert", n_layers=1)


def test_thousands_of_steps_are_right_and_never_wait_for_a_buffer(folder: Path) -> None:
    assert Race(folder, LateDevice()).run(2000) == Outcome(num_wrong=0, num_stalls=0)


def test_a_ring_one_buffer_too_short_makes_steps_wait(folder: Path) -> None:
    outcome = Race(folder, LateDevice(), num_buffers=LateDevice.steps_in_flight - 1).run(50)
    assert outcome.num_wrong == 0
    assert outcome.num_stalls > 0


def test_a_ring_one_buffer_too_short_gives_wrong_numbers_without_the_event(folder: Path) -> None:
    race = Race(folder, LateDeviceWithoutEvents(), num_buffers=LateDevice.steps_in_flight - 1)
    assert goes_wrong(race)


def test_the_event_keeps_the_buffer_of_a_step_that_nobody_waits_for(folder: Path) -> None:
    outcome = Race(folder, LateDevice()).run(100, wait_every=4)
    assert outcome.num_wrong == 0
    assert outcome.num_stalls > 0


def test_without_the_event_such_a_step_leads_to_wrong_numbers(folder: Path) -> None:
    assert goes_wrong(Race(folder, LateDeviceWithoutEvents()), wait_every=4)


def test_a_launch_does_none_of_the_work_by_itself(folder: Path) -> None:
    """Nothing in a launch waits: with time standing still, all of the work is left for `result`."""
    device = LateDevice()
    device.stop_time()
    race = Race(folder, device)
    pieces = race.step()
    in_flight = race.runner.launch(pieces)
    assert device.num_done == 0
    assert not race.is_wrong(in_flight, pieces)
    assert device.num_done > 20


def test_a_late_tensor_has_no_value_for_the_host() -> None:
    late = LateDevice().copy_to_device(torch.arange(4))
    assert isinstance(late, LateTensor)
    for read in (late[0].item, lambda: bool(late.any()), late.nonzero, lambda: late[late > 1]):
        with pytest.raises((RuntimeError, NotImplementedError)):
            read()


def test_chunks_of_a_long_sequence_are_right_on_a_late_device(checkpoint: CheckpointFactory) -> None:
    """Keys, values and hidden states that are kept between steps are used in the order of the work."""
    race = Race(checkpoint("qwen3"), LateDevice())
    for _ in range(20):
        length = int(race.random.integers(6, 30))
        whole = race.piece(length)
        state, cut = SequenceState(length), length // 2
        first = Piece(sequence=whole.sequence, stop=cut, state=state)
        last = Piece(sequence=whole.sequence, start=cut, stop=length, state=state)
        race.runner.launch([first])
        in_flight = race.runner.launch([last])
        results, expected = in_flight.result(), race.reference.launch([whole]).result()
        assert isinstance(results[0], dict)
        assert isinstance(expected[0], dict)
        np.testing.assert_allclose(results[0]["embed"], expected[0]["embed"], atol=1e-4)


@pytest.mark.gpu
def test_steps_on_a_delayed_stream_are_right(folder: Path) -> None:
    race = Race(folder, DelayedCudaDevice("cuda:0"), reference=CudaDevice("cuda:0"))
    assert race.run(200) == Outcome(num_wrong=0, num_stalls=0)


@pytest.mark.gpu
def test_a_delayed_stream_stalls_on_a_ring_one_buffer_too_short(folder: Path) -> None:
    race = Race(folder, DelayedCudaDevice("cuda:0"), reference=CudaDevice("cuda:0"), num_buffers=1)
    outcome = race.run(20)
    assert outcome.num_wrong == 0
    assert outcome.num_stalls > 0
