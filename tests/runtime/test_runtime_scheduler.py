"""The scheduler loses, doubles and starves nothing, and its budget holds."""

from __future__ import annotations

from collections import Counter
from itertools import count

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.params import PoolingParams
from cenote.runtime.request import Request, Sequence
from cenote.runtime.scheduler import MAX_SKIPPED_STEPS, admit, commit, plan

BUDGET = 32
PARAMS = {"embed": PoolingParams(task="embed")}

lengths = st.lists(st.integers(1, 50), min_size=1, max_size=20)


def make_request(sizes: list[int]) -> Request:
    return Request(
        sequences=[Sequence(token_ids=np.zeros(size, dtype=np.int64), params=PARAMS, num_keys=size) for size in sizes]
    )


def take_step(requests: list[Request], step: int) -> list[tuple[Request, int]]:
    """Plan and commit one step; return its (request, position) pairs and drop what is scheduled whole."""
    takes = plan(requests, BUDGET, step)
    parts = [(take.request, i) for take in takes for i in take.request.order[take.request.next :][: take.num_seqs]]
    assert [take.num_tokens for take in takes] == [
        sum(len(take.request.sequences[i]) for request, i in parts if request is take.request) for take in takes
    ]
    commit(takes, step)
    requests[:] = [request for request in requests if request.num_waiting]
    return parts


@settings(max_examples=200, deadline=None)
@given(st.lists(lengths, min_size=1, max_size=12))
def test_every_sequence_runs_once_and_the_budget_holds(sizes: list[list[int]]) -> None:
    requests: list[Request] = []
    for each in sizes:
        request = make_request(each)
        admit(request, requests, 0)
        requests.append(request)
    everything = Counter((id(request), i) for request in requests for i in range(len(request.sequences)))
    seen: Counter[tuple[int, int]] = Counter()
    for step in count(1):
        if not requests:
            break
        parts = take_step(requests, step)
        assert parts, "a step with work waiting is never empty"
        tokens = sum(len(request.sequences[i]) for request, i in parts)
        assert tokens <= BUDGET or len(parts) == 1
        seen.update((id(request), i) for request, i in parts)
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


def test_planning_changes_nothing() -> None:
    requests = [make_request([4, 5]), make_request([6])]
    first = plan(requests, BUDGET, 1)
    assert plan(requests, BUDGET, 1) == first
    assert [request.next for request in requests] == [0, 0]
