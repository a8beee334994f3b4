"""Several sets behind a balancer."""

import pickle

import pytest

from limitset import CallLimit, LimitDenied, LimitPool, LimitSet, LimitTimeout, LoadBalancing, ResourceLimit


def region(name, capacity=1, **options):
    limits = [CallLimit(window="day", capacity=capacity)]
    return LimitSet(limits, config={"region": name}, **options)


def asked(pool, times):
    return [pool.try_acquire().config["region"] for _ in range(times)]


def test_a_pool_goes_round_and_workers_begin_at_different_sets():
    sets = [region(name, 100) for name in ("a", "b", "c")]
    assert asked(LimitPool(limit_sets=sets), 4) == ["a", "b", "c", "a"]
    assert asked(LimitPool(limit_sets=sets, worker_index=4), 3) == ["b", "c", "a"]
    pool = LimitPool(sets, load_balancing="Random")
    assert pool.load_balancing is LoadBalancing.Random
    assert set(asked(pool, 60)) == {"a", "b", "c"}


def test_the_first_free_set_is_found():
    pool = LimitPool([region("a"), region("b")], load_balancing=LoadBalancing.FirstFree)
    held = pool.try_acquire(), pool.acquire(timeout=60)
    assert [(it.config["region"], it.pool_index) for it in held] == [("a", 0), ("b", 1)]
    late = pool.try_acquire()
    assert not late and late.denial.status_code == 429
    assert late.denial.rate_limit_policy == '"call_count";q=1;w=86400'
    with pytest.raises(LimitDenied):
        late.or_raise()


def test_a_pool_is_waited_for():
    pool = LimitPool([LimitSet([ResourceLimit("c", 1)])])
    with pool.acquire():
        with pytest.raises(LimitTimeout) as caught:
            pool.acquire(timeout=0.01)
    assert caught.value.bottleneck.key == "c"
    pool.acquire(timeout=60).release()


def test_a_pool_is_indexed_by_position_only():
    pool = LimitPool([region("a"), region("b")])
    assert pool[0].config["region"] == "a" and pool[-1].config["region"] == "b"
    assert len(pool) == 2 and [it.config["region"] for it in pool] == ["a", "b"]
    assert pool.limit_sets == (pool[0], pool[1])
    with pytest.raises(TypeError, match="position"):
        pool["call_count"]
    for index in (2, -3):
        with pytest.raises(IndexError):
            pool[index]


def test_anything_becomes_a_pool():
    everything = LimitPool.of(None, worker_index=3)
    assert everything.acquire() and everything.worker_index == 3
    limits = LimitPool.of([ResourceLimit("c", 1)], worker_index=1)
    assert limits[0]["c"].capacity == 1 and limits[0].mode == "process"
    assert LimitPool.of([ResourceLimit("c", 1)], mode="thread")[0].mode == "thread"
    one, two = region("a"), region("b")
    assert LimitPool.of(one)[0] is one
    assert LimitPool.of([one, two]).limit_sets == (one, two)
    pool = LimitPool([one, two], load_balancing="first_free")
    again = LimitPool.of(pool, worker_index=1)
    assert (again.limit_sets, again.load_balancing, again.worker_index) == (pool.limit_sets, "first_free", 1)
    with pytest.raises(TypeError):
        LimitPool.of(5)
    with pytest.raises(TypeError):
        LimitPool.of([one, 5])
    with pytest.raises(ValueError):
        LimitPool([])


def test_a_pool_travels_with_its_sets():
    pool = LimitPool([region("a", 2, mode="process"), region("b", mode="process")], worker_index=1)
    again = pickle.loads(pickle.dumps(pool))
    assert (again.worker_index, again.load_balancing, len(again)) == (1, "round_robin", 2)
    assert asked(again, 2) == ["b", "a"]
    assert not pool.try_acquire(), "b has no permit left"
    stats = again.get_stats()["sets"]
    assert [it["pool"]["granted"] for it in stats] == [1, 1]
    assert [it["limits"]["call_count"]["available"] for it in stats] == [1, 0]
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(LimitPool([region("c")]))


def test_functions_are_limited_by_pools_too():
    pool = LimitPool([region("a")])

    @pool.limit(timeout=0)
    def call():
        return 1

    assert call() == 1
    with pytest.raises(LimitTimeout):
        call()
