"""Programs that gevent has patched: other greenlets run during a wait."""

import pytest

PATCHED = """
from gevent import monkey
monkey.patch_all()
import gevent, os, sys
from limitset import *
"""


def test_greenlets_wait_beside_each_other_in_order_without_threads(program):
    it = program(
        PATCHED
        + """
limits = LimitSet([ResourceLimit("c", 1)])
order, ticks = [], []

def work(number):
    with limits.acquire():
        order.append(number)
        gevent.sleep(0)

held = limits.acquire()
greenlets = []
for number in range(100):
    greenlets.append(gevent.spawn(work, number))
    while limits.get_stats()["waiters"] <= number:
        gevent.sleep(0)
threads = len(os.listdir("/proc/self/task"))
held.release()
gevent.joinall(greenlets, raise_error=True)
assert order == list(range(100)), order
assert threads <= 3, threads     # this one, the helper, and gevent's resolver at most
assert limits.get_stats()["limits"]["c"]["in_use"] == 0
print("well")
"""
    )
    assert it.end() == "well"


def test_a_killed_or_timed_out_greenlet_leaves_the_queue(program):
    it = program(
        PATCHED
        + """
limits = LimitSet([ResourceLimit("c", 1)])
held = limits.acquire()
waiting = gevent.spawn(limits.acquire)
while limits.get_stats()["waiters"] == 0:
    gevent.sleep(0)
waiting.kill()
assert limits.get_stats()["waiters"] == 0
try:
    with gevent.Timeout(0.02):
        limits.acquire()
except gevent.Timeout:
    pass
assert limits.get_stats()["waiters"] == 0
try:
    limits.acquire(timeout=0.02)
except LimitTimeout:
    print("late")
held.release()
limits.acquire(timeout=60).release()
"""
    )
    assert it.end() == "late"


def test_a_forked_greenlet_program_waits_on_its_own(program, name):
    it = program(
        PATCHED
        + """
limits = LimitSet([ResourceLimit("c", 2)], name=sys.argv[1])
held = limits.acquire({"c": 2})
waiting = gevent.spawn(lambda: limits.acquire(timeout=60).release())
while limits.get_stats()["waiters"] == 0:
    gevent.sleep(0)
read, write = os.pipe()
child = os.fork()
if child == 0:
    # The greenlet that waited in the parent waits in the child, too, with its own entry.
    while limits.get_stats()["waiters"] < 2:
        gevent.sleep(0)
    os.write(write, b"both wait")
    waiting.join()
    limits.acquire(timeout=60).release()
    os._exit(0)
assert os.read(read, 9) == b"both wait"
held.release()
waiting.join()
assert os.waitpid(child, 0)[1] == 0
print("well")
""",
        name,
    )
    assert it.end() == "well"


@pytest.mark.parametrize("patched", [True, False])
def test_waiting_yields_only_in_patched_programs(program, patched):
    it = program(
        ("from gevent import monkey; monkey.patch_all()" if patched else "")
        + """
import gevent, sys
from limitset import *
limits = LimitSet([ResourceLimit("c", 1)])
held = limits.acquire()
ran = []
gevent.spawn(ran.append, 1)
try:
    limits.acquire(timeout=0.05)
except LimitTimeout:
    print(ran)
"""
    )
    assert it.end() == ("[1]" if patched else "[]")
