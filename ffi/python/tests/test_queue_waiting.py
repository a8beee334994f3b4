"""Waiting at a work queue: among threads, processes and greenlets; interrupted, killed, forked."""

import glob
import multiprocessing
import os
import signal
import threading

import pytest

from limitset import LimitSet, LimitSetRemoved, NotShared, QueueOptions

METHODS = ["fork", "spawn", "forkserver"]


def work_queue(items=8, **place):
    return LimitSet([], queue=QueueOptions(items=items, item_bytes=16), **place).queue


def wait_until_asleep(process):
    """The helper thread lives as long as there are waiters."""
    while True:
        assert process.poll() is None, process.communicate()
        for file in glob.glob(f"/proc/{process.pid}/task/*/comm"):
            try:
                with open(file) as comm:
                    if comm.read().strip() == "limitset-helper":
                        return
            except OSError:
                pass


# Threads and signals.


def test_other_threads_run_while_one_waits_at_a_queue():
    queue = work_queue(items=1)
    results = []

    def work():
        for item in queue:
            with item:
                item.done_with(item.payload.upper())

    def collect():
        for finished in iter(queue.collect, None):
            with finished:
                results.append(finished.result)

    workers = [threading.Thread(target=it, daemon=True) for it in (work, work, collect)]
    for worker in workers:
        worker.start()
    for number in range(200):
        queue.push(number, b"item %d" % number, timeout=60)
    queue.drain(timeout=60)
    queue.close()
    for worker in workers:
        worker.join()
    assert sorted(results) == sorted(b"ITEM %d" % number for number in range(200))
    assert queue.get_stats()["taken"] == 200


WAITER = """
import sys
from limitset import *
queue = LimitSet.attach(sys.argv[1]).queue
try:
    print("waits")
    {act}
except KeyboardInterrupt:
    stats = queue.get_stats()
    print("ended", stats["pushed"], stats["leased"])
"""


@pytest.mark.parametrize("act", ["queue.take()", "queue.push(2, b'')", "queue.collect()", "queue.drain()"])
def test_ctrl_c_ends_a_wait_at_a_queue_and_nothing_is_taken(name, program, act):
    queue = work_queue(items=1, name=name)
    queue.push(1, b"")
    item = queue.take()
    waiter = program(WAITER.format(act=act), name)
    assert waiter.line() == "waits"
    wait_until_asleep(waiter.process)
    waiter.signal(signal.SIGINT)
    assert waiter.line() == "ended 1 1"
    waiter.end()
    item.done()


def test_a_removal_ends_a_wait_at_a_queue(name):
    queue = work_queue(name=name)
    ends = []

    def wait():
        try:
            queue.take()
        except LimitSetRemoved:
            ends.append("removed")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    queue.limit_set.remove()
    thread.join()
    assert ends == ["removed"]


# Processes.


def work(queue, results):
    """A worker: finishes all items, and returns their ids."""
    for item in queue:
        with item:
            results.put(item.id)


@pytest.mark.parametrize("method", METHODS)
def test_workers_share_the_items_of_a_queue_that_travels_to_them_under(method, name):
    context = multiprocessing.get_context(method)
    queue, results = work_queue(name=name), context.Queue()
    workers = [context.Process(target=work, args=(queue, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for number in range(60):
        queue.push(number, b"")
    queue.close()
    done = sorted(results.get() for _ in range(60))
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 3
    assert done == list(range(60))
    assert queue.get_stats()["taken"] == 60


HOLDER = """
import sys
from limitset import *
queue = LimitSet.attach(sys.argv[1]).queue
with queue.{act}() as item:
    print("has", item.id)
    sys.stdin.readline()
"""


def test_an_item_of_a_killed_worker_comes_back(name, program):
    queue = work_queue(name=name)
    queue.push(7, b"work")
    holder = program(HOLDER.format(act="take"), name)
    assert holder.line() == "has 7"
    holder.signal(signal.SIGKILL)
    with queue.take(timeout=60) as item:
        assert (item.id, item.payload, item.attempts) == (7, b"work", 2)
        item.done_with(b"done")
    assert queue.get_stats()["returned"] == 1
    collector = program(HOLDER.format(act="collect"), name)
    assert collector.line() == "has 7"
    collector.signal(signal.SIGKILL)
    with queue.collect(timeout=60) as finished:
        assert finished.result == b"done"


def test_an_item_taken_before_a_fork_is_the_parents(name):
    queue = work_queue(name=name)
    queue.push(1, b"")
    queue.push(2, b"")
    with queue.take() as item:
        queue.take().done_with(b"")
        finished = queue.collect()
        child = os.fork()
        if child == 0:
            try:
                for end in (item.done, item.retry, item.give_back, finished.forget, finished.put_back):
                    with pytest.raises(NotShared):
                        end()
                # The child can use the queue.
                queue.push(3, b"child")
                mine = queue.take()
                assert mine.id == 3
                mine.done()
            except BaseException:
                os._exit(1)
        else:
            assert os.waitpid(child, 0)[1] == 0
            assert queue.get_stats()["leased"] == 1
    if child == 0:
        # The child left the block, too, without an error; destroying the inherited item ends nothing.
        del item, finished
        os._exit(0)
    finished.forget()
    stats = queue.get_stats()
    assert (stats["done"], stats["leased"], stats["results"], stats["ready"]) == (3, 0, 0, 0)


def test_a_queue_in_memory_does_not_reach_a_forked_child():
    queue = work_queue()
    child = os.fork()
    if child == 0:
        try:
            queue.take()
        except NotShared:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# Greenlets.

PATCHED = """
from gevent import monkey
monkey.patch_all()
import gevent, os, sys
from limitset import *
queue = LimitSet([], queue=QueueOptions(items=2, item_bytes=8)).queue
"""


def test_greenlets_wait_at_a_queue_beside_each_other_without_threads(program):
    it = program(
        PATCHED
        + """
done = []

def work():
    for item in queue:
        with item:
            gevent.sleep(0)
            done.append(item.id)

workers = [gevent.spawn(work) for _ in range(20)]
gevent.sleep(0)
assert len(os.listdir("/proc/self/task")) <= 3     # this one, the helper, and gevent's resolver at most
for number in range(100):
    queue.push(number, b"")
queue.drain()
queue.close()
gevent.joinall(workers, raise_error=True)
assert sorted(done) == list(range(100))
print("well")
"""
    )
    assert it.end() == "well"


def test_a_killed_greenlet_takes_nothing_and_gives_back_what_it_has(program):
    it = program(
        PATCHED
        + """
def work():
    with queue.take():
        gevent.sleep(3600)

waiting = gevent.spawn(queue.take)
gevent.sleep(0)
waiting.kill()
queue.push(1, b"")
working = gevent.spawn(work)
while queue.get_stats()["leased"] == 0:
    gevent.sleep(0)
working.kill()
item = queue.try_take()
assert (item.id, item.attempts) == (1, 1)
try:
    queue.take(timeout=0.02)
except QueueTimeout:
    print("late")
"""
    )
    assert it.end() == "late"
