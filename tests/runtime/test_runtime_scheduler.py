"""The scheduler loses, doubles and starves nothing, and its budget holds."""

from __future__ import annotations

from itertools import count

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.params import PoolingParams
from cenote.runtime.request import Request, Sequence
from cenote.runtime.scheduler import MAX_SKIPPED_STEPS, Take, admit, commit, plan

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


def take_step(requests: list[Request], step: int, brief_tokens: int = 0) -> list[Take]:
    """Plan and commit one step, and drop the requests that are scheduled whole."""
    takes = plan(requests, BUDGET, step, brief_tokens=brief_tokens)
    commit(takes, step)
    requests[:] = [request for request in requests if request.num_waiting]
    return takes


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(lengths, st.booleans()), min_size=1, max_size=12), st.sampled_from([0, 2 * BUDGET]))
def test_every_token_runs_once_in_order_and_the_budget_holds(
    asked: list[tuple[list[int], bool]], brief_tokens: int
) -> None:
    requests: list[Request] = []
    for sizes, chunkable in asked:
        request = make_request(sizes, chunkable=chunkable)
        admit(request, requests, 0)
        requests.append(request)
    everything = {(id(request), i): len(each) for request in requests for i, each in enumerate(request.sequences)}
    seen: dict[tuple[int, int], int] = {}
    for step in count(1):
        if not requests:
            break
        brief = {id(request) for request in requests if request.num_tokens_left <= BUDGET}
        takes = take_step(requests, step, brief_tokens)
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
    old = make_request([data.draw(st.integers(1, 50)) for _ in range(5)])
    requests = [old]
    for step in count(1):
        if not old.num_waiting:
            break
        for _ in range(data.draw(st.integers(0, 4))):
            newcomer = make_request([data.draw(st.integers(1, BUDGET))])
            admit(newcomer, requests, step - 1)
            requests.append(newcomer)
        take_step(requests, step)
        assert step <= 5 * (MAX_SKIPPED_STEPS + 2), "a request of five texts still waits"


def test_a_short_query_does_not_wait_behind_bulk_jobs() -> None:
    requests: list[Request] = []
    for _ in range(8):
        bulk = make_request([16] * 200)
        admit(bulk, requests, 0)
        requests.append(bulk)
    for step in range(20):
        take_step(requests, step + 1)
    query = make_request([8])
    admit(query, requests, 20)
    requests.append(query)
    waited = 0
    while query.num_waiting:
        waited += 1
        take_step(requests, 20 + waited)
    assert waited <= 2


def test_queries_are_served_in_the_order_of_their_arrival() -> None:
    """Sixty clients, each of which asks again at once: those with the longer queries do not wait for all others."""
    rng = np.random.default_rng(0)
    requests: list[Request] = []
    asked: dict[Request, int] = {}
    waits = []
    for step in range(1, 400):
        while len(requests) < 60:
            query = make_request([int(rng.integers(2, 9))])
            admit(query, requests, step - 1)
            requests.append(query)
            asked[query] = step
        waits += [1 + step - asked[take.request] for take in take_step(requests, step)]
    # 60 queries of 5 tokens in the mean are 9.4 steps of 32.
    assert max(waits) <= 14


def test_a_long_decoder_text_does_not_hold_up_short_ones() -> None:
    """A text of a hundred steps runs in chunks; each query that comes meanwhile is in the next step but one."""
    long = make_request([100 * BUDGET], chunkable=True)
    requests = [long]
    step = 0
    for _ in range(20):
        take_step(requests, step := step + 1)
        query = make_request([8])
        admit(query, requests, step)
        requests.append(query)
        waited = 0
        while query.num_waiting:
            take_step(requests, step := step + 1)
            waited += 1
        assert waited <= 2
    while long.num_waiting:
        take_step(requests, step := step + 1)
    assert step <= 150, "the long text got what the queries left"


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
