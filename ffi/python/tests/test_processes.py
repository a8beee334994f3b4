"""Several processes on one set: all start methods, and kills."""

import multiprocessing
import os
import pickle
import signal
import sys

import pytest

import limitset
from limitset import CallLimit, LimitPool, LimitSet, NotShared, ResourceLimit

METHODS = ["fork", "spawn", "forkserver"]


def grants(limits, tries, results):
    """A worker: tries, and returns the number of grants."""
    results.put(sum(bool(limits.try_acquire()) for _ in range(tries)))


def grant_one(limits):
    return bool(limits.try_acquire())


def make_and_tell(results):
    results.put(LimitSet([CallLimit(window="day", capacity=1)], mode="process").name)


def shared_files():
    return [it for it in os.listdir("/dev/shm") if it.startswith(f"limitset.auto-{os.getpid()}-")]


@pytest.mark.parametrize("method", METHODS)
def test_a_set_without_a_name_is_one_budget_for_workers_of(method):
    context = multiprocessing.get_context(method)
    limits = LimitSet([CallLimit(window="day", capacity=25)], mode="process")
    assert limits.name.startswith(f"auto-{os.getpid()}-")
    results = context.Queue()
    workers = [context.Process(target=grants, args=(limits, 20, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    granted = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert sum(granted) == 25
    assert limits.get_stats()["limits"]["call_count"]["granted"] == 25
    limits.remove()


@pytest.mark.parametrize("method", METHODS)
def test_tasks_of_a_process_pool_share_one_budget_under(method, name):
    with multiprocessing.get_context(method).Pool(3) as workers:
        limits = LimitSet([CallLimit(window="day", capacity=7)], name=name, slots=8)
        # Each task brings the set along; a worker attaches to it once.
        assert sum(workers.map(grant_one, [limits] * 60, chunksize=1)) == 7
        pool = LimitPool([limits])
        assert sum(workers.map(grant_one, [pool] * 5)) == 0


def test_a_set_that_travels_within_a_process_is_attached_to_once(name):
    limits = LimitSet([CallLimit(window="day", capacity=7)], name=name, on_unavailable="allow", patience=1.5)
    first, second = pickle.loads(pickle.dumps(limits)), pickle.loads(pickle.dumps(limits))
    assert first is second and first.name == name
    assert pickle.dumps(first) == pickle.dumps(limits), "its options travel along"
    limits.remove()
    anew = LimitSet([CallLimit(window="day", capacity=9)], name=name)
    assert pickle.loads(pickle.dumps(anew))["call_count"].capacity == 9, "another set of the same name"


def test_a_set_without_a_name_is_removed_by_its_creator_alone(program):
    it = program(
        """
        import os, sys
        from limitset import *
        limits = LimitSet([CallLimit(window="day", capacity=1)], mode="process")
        print(limits.name)
        if os.fork() == 0:
            sys.exit()          # runs all exit handlers
        os.wait()
        print(os.path.exists(f"/dev/shm/limitset.{limits.name}"))
        """
    )
    name = it.line()
    assert name.startswith(f"auto-{it.pid}-")
    assert it.line() == "True", "a forked child does not remove it"
    it.end()
    with pytest.raises(FileNotFoundError):
        LimitSet.attach(name)


@pytest.mark.parametrize("method", METHODS)
def test_workers_remove_the_sets_that_they_made_when_they_end(method):
    context = multiprocessing.get_context(method)
    results = context.Queue()
    worker = context.Process(target=make_and_tell, args=(results,))
    worker.start()
    name = results.get()
    worker.join()
    assert name.startswith(f"auto-{worker.pid}-")
    with pytest.raises(FileNotFoundError):
        LimitSet.attach(name)


def test_eight_plainly_forked_workers_share_what_was_opened_before_the_fork(name):
    limits = LimitSet([CallLimit(window="day", capacity=100), ResourceLimit("c", 3)], name=name)
    held = limits.acquire({"call_count": 0})
    read, write = os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            try:
                granted = 0
                while True:
                    with limits.try_acquire() as mine:
                        if mine:
                            granted += 1
                        elif mine.denial.bottleneck.key == "call_count":
                            break
                # The child cannot release the parent's permits.
                with pytest.raises(NotShared):
                    held.release()
                os.write(write, bytes([granted]))
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    assert sum(os.read(read, 8)) == 100
    stats = limits.get_stats()["limits"]
    assert (stats["call_count"]["granted"], stats["c"]["in_use"]) == (100, 1)
    held.release()
    limits.acquire({"call_count": 0, "c": 3}, timeout=60).release()
    os.close(read)
    os.close(write)


def test_a_block_entered_before_a_fork_is_the_parents_to_leave(name):
    limits = LimitSet([ResourceLimit("c", 1)], name=name)
    with limits.acquire():
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert not limits.try_acquire(), "still held"
    if child == 0:
        # The child left the block, too, without an error.
        os._exit(0)
    limits.try_acquire().or_raise().release()


def test_a_set_in_memory_does_not_reach_a_forked_child():
    limits = LimitSet([ResourceLimit("c", 1)])
    child = os.fork()
    if child == 0:
        try:
            limits.acquire()
        except NotShared:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


HOLDER = """
import sys
from limitset import *
limits = LimitSet.attach(sys.argv[1])
held = limits.acquire()
print("holds")
sys.stdin.readline()
"""


def test_survivors_regain_what_a_killed_holder_held(name, program):
    limits = LimitSet([ResourceLimit("c", 2)], name=name)
    holder = program(HOLDER, name)
    assert holder.line() == "holds"
    mine = limits.acquire()
    assert not limits.try_acquire()
    holder.signal(signal.SIGKILL)
    limits.acquire(timeout=60).release()
    mine.release()
    stats = limits.get_stats()
    assert (stats["reaped_permits"], stats["limits"]["c"]["in_use"]) == (1, 0)


def test_a_killed_waiter_is_in_nobodys_way(name, program):
    limits = LimitSet([ResourceLimit("c", 1)], name=name)
    mine = limits.acquire()
    waiter = program(HOLDER, name)
    while limits.get_stats()["waiters"] == 0:
        assert waiter.process.poll() is None
    waiter.signal(signal.SIGKILL)
    waiter.process.wait()
    mine.release()
    limits.acquire(timeout=60).release()


def test_a_stopped_waiter_delays_nobody_and_gets_its_turn(name, program):
    limits = LimitSet([ResourceLimit("c", 2)], name=name)
    held = limits.acquire({"c": 2})
    waiter = program(HOLDER, name)
    while limits.get_stats()["waiters"] == 0:
        assert waiter.process.poll() is None
    waiter.signal(signal.SIGSTOP)
    held.release()
    limits.acquire(timeout=60).release()
    waiter.signal(signal.SIGCONT)
    assert waiter.line() == "holds"
    waiter.go_on()
    waiter.end()


def test_a_process_that_waits_is_woken_by_another(name, program):
    limits = LimitSet([ResourceLimit("c", 1)], name=name)
    mine = limits.acquire()
    waiters = [program(HOLDER, name) for _ in range(2)]
    while limits.get_stats()["waiters"] < 2:
        assert all(it.process.poll() is None for it in waiters)
    mine.release()
    # In any order: each gives way to the next.
    first = limits.get_stats()["limits"]["c"]
    assert first["in_use"] == 1
    for it in waiters:
        it.go_on()
    for it in waiters:
        assert it.end() == "holds"


@pytest.mark.skipif("LIMITSET_PEER" not in os.environ, reason="run by `cargo xtask test python`, which builds the peer")
def test_python_and_rust_share_one_segment_at_the_same_time(name, program):
    import subprocess

    limits = LimitSet([CallLimit(window="day", capacity=3000), ResourceLimit("c", 3)], name=name)
    crowd = """
    import sys
    from limitset import *
    limits = LimitSet.attach(sys.argv[1])
    granted, denied = 0, False
    while not denied:
        with limits.try_acquire() as held:
            granted += bool(held)
            denied = not held and held.denial.bottleneck.key == "call_count"
    print(granted)
    """
    start = lambda: subprocess.Popen(  # noqa: E731
        [os.environ["LIMITSET_PEER"], name], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    gate = limits.acquire({"call_count": 0, "c": 3})
    peers = [start() for _ in range(3)]
    pythons = [program(crowd, name) for _ in range(3)]
    victim = program(HOLDER, name)
    while len(limits.get_stats()["participants"]) < 8:
        assert all(it.poll() is None for it in peers)
    victim.signal(signal.SIGKILL)
    gate.release()
    counts = [int(it.communicate(timeout=60)[0]) for it in peers] + [int(it.end()) for it in pythons]
    assert [it.returncode for it in peers] == [0] * 3
    stats = limits.get_stats()["limits"]
    # The killed process has charged at most one call, if its turn came before its death was noticed.
    assert sum(counts) in (2999, 3000) and stats["call_count"]["granted"] >= sum(counts)
    assert stats["call_count"]["available"] == 0
    limits.acquire({"call_count": 0, "c": 3}, timeout=60).release()


def test_nothing_is_left_of_sets_that_were_removed():
    made = [LimitSet([], mode="process") for _ in range(3)]
    assert len(shared_files()) >= 3
    for it in made:
        it.remove()
    assert not [it for it in made if f"limitset.{it.name}" in shared_files()]
    assert limitset.__doc__ and sys.version_info >= (3, 10)
