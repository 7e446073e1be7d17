"""The scheduler loses, doubles and starves nothing, and its budget holds."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.params import PoolingParams
from cenote.runtime.request import Request, Sequence
from cenote.runtime.scheduler import BRIEF_SHARE, MAX_SKIPPED_STEPS, Take, commit, plan

BUDGET = 32
PARAMS = {"embed": PoolingParams(task="embed")}

lengths = st.lists(st.integers(1, 50), min_size=1, max_size=20)


def make_request(sizes: list[int], *, chunkable: bool = False) -> Request:
    return Request(
        sequences=[
            Sequence(token_ids=np.zeros(size, dtype=np.int64), params=PARAMS, num_keys=size, chunkable=chunkable)
            for size in sizes
        ]
    )


class Queue:
    """What waits, in the order of its arrival, and the number of the last step."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.step = 0

    def add(self, sizes: list[int], *, chunkable: bool = False) -> Request:
        request = make_request(sizes, chunkable=chunkable)
        request.last_step = self.step
        self.requests.append(request)
        return request

    def take(self, brief_tokens: int = 0) -> list[Take]:
        """Plan and commit one step, and drop the requests that are scheduled whole."""
        self.step += 1
        takes = plan(self.requests, BUDGET, self.step, brief_tokens=brief_tokens)
        commit(takes, self.step)
        self.requests = [request for request in self.requests if request.num_waiting]
        return takes

    def steps_until_scheduled(self, request: Request) -> int:
        first = self.step
        while request.num_waiting:
            self.take()
        return self.step - first


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(lengths, st.booleans()), min_size=1, max_size=12), st.sampled_from([0, 2 * BUDGET]))
def test_every_token_runs_once_in_order_and_the_budget_holds(
    asked: list[tuple[list[int], bool]], brief_tokens: int
) -> None:
    queue = Queue()
    for sizes, chunkable in asked:
        queue.add(sizes, chunkable=chunkable)
    everything = {(id(request), i): len(each) for request in queue.requests for i, each in enumerate(request.sequences)}
    seen: dict[tuple[int, int], int] = {}
    brief = {
        id(request)
        for request in queue.requests
        if request.num_tokens <= (BUDGET if len(request.sequences) == 1 else BUDGET / BRIEF_SHARE)
    }
    while queue.requests:
        takes = queue.take(brief_tokens)
        assert takes, "a step with work waiting is never empty"
        others = [take.num_tokens for take in takes if id(take.request) not in brief]
        assert sum(others) <= BUDGET or len(takes) == 1
        assert sum(take.num_tokens for take in takes) <= max(BUDGET, brief_tokens) or len(takes) == 1
        assert len({(id(take.request), take.position) for take in takes}) == len(takes)
        for take in takes:
            key = (id(take.request), take.position)
            assert take.start == seen.get(key, 0)
            assert take.start == 0 or take.request.sequences[take.position].chunkable
            assert take.num_tokens <= BUDGET or not take.request.sequences[take.position].chunkable
            seen[key] = take.stop
    assert seen == everything


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_request_is_starved_by_newcomers(data: st.DataObject) -> None:
    queue = Queue()
    old = queue.add([data.draw(st.integers(1, 50)) for _ in range(5)])
    for step in count(1):
        if not old.num_waiting:
            break
        for _ in range(data.draw(st.integers(0, 4))):
            queue.add([data.draw(st.integers(1, BUDGET))])
        queue.take()
        assert step <= 5 * (MAX_SKIPPED_STEPS + 2), "a request of five texts still waits"


@pytest.mark.parametrize(("num_jobs", "every"), [(1, MAX_SKIPPED_STEPS + 2), (4, 6), (100, 2)])
def test_bulk_jobs_get_the_more_steps_under_queries_the_more_of_them_wait(num_jobs: int, every: int) -> None:
    """Queries fill every step: one job gets every eighteenth all the same, a hundred get every other."""
    queue = Queue()
    jobs = [queue.add([8] * 200) for _ in range(num_jobs)]
    for _ in range(180):
        queue.add([BUDGET])
        queue.take()
    assert sum(job.num_tokens - job.num_tokens_left for job in jobs) == 180 // every * BUDGET


def test_equal_bulk_jobs_end_one_after_another() -> None:
    queue = Queue()
    jobs = [queue.add([8] * 40) for _ in range(10)]
    ends = [queue.step + queue.steps_until_scheduled(job) for job in jobs]
    assert ends == [10 * (number + 1) for number in range(10)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(5, 60)), min_size=1, max_size=12))
def test_a_bulk_job_waits_for_no_more_than_twice_the_work_that_came_before_it(jobs: list[tuple[int, int]]) -> None:
    """However many smaller ones come: counted in tokens, with a step more for the end of each of the older ones."""
    arrivals = sorted(jobs)
    queue = Queue()
    latest: dict[Request, float] = {}
    while arrivals or queue.requests:
        while arrivals and (arrivals[0][0] <= queue.step or not queue.requests):
            older = list(queue.requests)
            job = queue.add([8] * arrivals.pop(0)[1])
            num_tokens = job.num_tokens + sum(each.num_tokens_left for each in older)
            latest[job] = queue.step + 2 * (num_tokens / BUDGET + len(older)) + 4
        queue.take()
        assert all(queue.step <= latest[job] for job in queue.requests)


@pytest.mark.parametrize("num_larger", [1, 10])
def test_a_smaller_bulk_job_takes_half_of_the_steps_from_larger_ones(num_larger: int) -> None:
    queue = Queue()
    for _ in range(num_larger):
        queue.add([8] * 1000)
    for _ in range(300):
        queue.take()
    assert queue.steps_until_scheduled(queue.add([8] * 40)) <= 2 * 10 + 2


def test_a_large_bulk_job_takes_half_of_the_steps_from_a_stream_of_smaller_ones() -> None:
    queue = Queue()
    large, small = queue.add([8] * 400), queue.add([8] * 20)
    while large.num_waiting:
        if not small.num_waiting:
            small = queue.add([8] * 20)
        queue.take()
    assert queue.step <= 2 * 100 + 2


@pytest.mark.parametrize("bulk", [[16] * 200, [16, 16], [1] * 5], ids=["long", "of one step", "of a part of a step"])
def test_a_short_query_does_not_wait_behind_bulk_jobs(bulk: list[int]) -> None:
    queue = Queue()
    for _ in range(400):
        queue.add(bulk)
    for _ in range(20):
        queue.take()
    assert queue.steps_until_scheduled(queue.add([8])) <= 2


def test_queries_are_served_in_the_order_of_their_arrival() -> None:
    """Sixty clients, each of which asks again at once: those with the longer queries do not wait for all others."""
    rng = np.random.default_rng(0)
    queue = Queue()
    asked: dict[Request, int] = {}
    waits = []
    for step in range(1, 400):
        while len(queue.requests) < 60:
            asked[queue.add([int(rng.integers(2, 9))])] = step
        waits += [1 + step - asked[take.request] for take in queue.take()]
    # 60 queries of 5 tokens in the mean are 9.4 steps of 32.
    assert max(waits) <= 14


def test_a_long_decoder_text_does_not_hold_up_short_ones() -> None:
    """A text of a hundred steps runs in chunks; each query that comes meanwhile is in the next step but one."""
    queue = Queue()
    long = queue.add([100 * BUDGET], chunkable=True)
    for _ in range(20):
        queue.take()
        assert queue.steps_until_scheduled(queue.add([8])) <= 2
    queue.steps_until_scheduled(long)
    assert queue.step <= 150, "the long text got what the queries left"


def test_planning_changes_nothing() -> None:
    requests = [make_request([4, 5]), make_request([6])]
    first = plan(requests, BUDGET, 1)
    assert plan(requests, BUDGET, 1) == first
    assert [request.next for request in requests] == [0, 0]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=2, max_size=12), st.integers(2, 4))
def test_a_share_is_as_near_to_equal_as_whole_texts_allow(sizes: list[int], num_workers: int) -> None:
    request, share = make_request(sizes), sum(sizes) / num_workers
    takes = plan([request], 1000, 1, enough=share)
    taken = sum(take.num_tokens for take in takes)
    assert taken - takes[-1].num_tokens / 2 <= share or len(takes) == 1
    if len(takes) < len(sizes):
        assert taken + sorted(sizes)[len(takes)] / 2 > share


def test_a_share_may_be_a_single_longer_text() -> None:
    assert [take.num_tokens for take in plan([make_request([50])], BUDGET, 1, enough=10)] == [50]


def test_many_queries_share_a_longer_step_and_a_bulk_job_has_none() -> None:
    """The step holds twice the tokens of queries; what it holds of the job ends where a step of the job does."""
    queries, bulk = [make_request([8]) for _ in range(12)], make_request([8] * 200)

    def taken(requests: list[Request]) -> list[Request]:
        return [take.request for take in plan(requests, BUDGET, 1, brief_tokens=2 * BUDGET)]

    assert taken(queries) == queries[:8]
    assert taken([bulk]) == [bulk] * 4
    assert taken([bulk, *queries[:2]]).count(bulk) == 2
