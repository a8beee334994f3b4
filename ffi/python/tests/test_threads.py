"""Threads and signals: a waiting thread releases the GIL, and Ctrl-C ends a wait."""

import signal
import threading

import pytest

from limitset import CallLimit, LimitSet, LimitTimeout, ResourceLimit


def in_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


def wait_for_waiters(limits, count):
    while limits.get_stats()["waiters"] < count:
        pass


@pytest.mark.parametrize("place", [{"mode": "thread"}, {"mode": "process"}])
def test_eight_threads_never_hold_more_than_there_is(place):
    limits = LimitSet([CallLimit(window="day", capacity=4000), ResourceLimit("c", 3)], **place)
    lock, inside, most, granted = threading.Lock(), 0, 0, 0

    def work():
        nonlocal inside, most, granted
        for _ in range(250):
            with limits.acquire():
                with lock:
                    inside += 1
                    granted += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 3 and granted == 2000
    stats = limits.get_stats()["limits"]
    assert (stats["call_count"]["granted"], stats["c"]["in_use"]) == (2000, 0)
    if limits.shared:
        limits.remove()


def test_other_threads_run_while_one_waits():
    limits = LimitSet([ResourceLimit("c", 1)])
    held = limits.acquire()
    thread, results = in_thread(lambda: bool(limits.acquire(timeout=60)))
    wait_for_waiters(limits, 1)
    held.release()
    thread.join()
    assert results == [True]


def test_threads_are_served_in_the_order_in_which_they_came():
    limits = LimitSet([ResourceLimit("c", 1)])
    order = []

    def work(number):
        with limits.acquire():
            order.append(number)

    held = limits.acquire()
    threads = []
    for number in range(6):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        wait_for_waiters(limits, number + 1)
    assert not limits.try_acquire(), "no request overtakes a waiter"
    held.release()
    for thread in threads:
        thread.join()
    assert order == list(range(6))


def test_a_timeout_in_a_thread_leaves_the_queue():
    limits = LimitSet([ResourceLimit("c", 1)])
    with limits.acquire():
        def late():
            with pytest.raises(LimitTimeout):
                limits.acquire(timeout=0.02)
            return True

        thread, results = in_thread(late)
        thread.join()
        assert results == [True]
        assert limits.get_stats()["waiters"] == 0


WAITER = """
import signal, sys
from limitset import *
limits = LimitSet.attach(sys.argv[1])
{before}
try:
    print("waits")
    limits.acquire()
except {error} as error:
    print("ended by", type(error).__name__, limits.get_stats()["waiters"])
"""


@pytest.mark.parametrize("is_alone", [True, False])
def test_ctrl_c_ends_a_blocked_acquire_and_leaves_the_queue(name, program, is_alone):
    limits = LimitSet([ResourceLimit("c", 1)], name=name)
    threads = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    with limits.acquire():
        waiter = program(WAITER.format(before="" if is_alone else threads, error="KeyboardInterrupt"), name)
        assert waiter.line() == "waits"
        wait_for_waiters(limits, 1)
        waiter.signal(signal.SIGINT)
        assert waiter.line() == "ended by KeyboardInterrupt 0"
        waiter.end()
    limits.try_acquire().or_raise().release()


def test_handlers_of_other_signals_run_while_one_waits(name, program):
    limits = LimitSet([ResourceLimit("c", 1)], name=name)
    handlers = """
    def stop(*_): raise SystemError
    signal.signal(signal.SIGUSR1, lambda *_: print("usr1"))
    signal.siginterrupt(signal.SIGUSR1, False)
    signal.signal(signal.SIGTERM, stop)
    """.replace("\n    ", "\n")
    with limits.acquire():
        waiter = program(WAITER.format(before=handlers, error="SystemError"), name)
        assert waiter.line() == "waits"
        wait_for_waiters(limits, 1)
        for _ in range(3):
            waiter.signal(signal.SIGUSR1)
            assert waiter.line() == "usr1", "a handler that returns does not end the wait"
        waiter.signal(signal.SIGTERM)
        assert waiter.line() == "ended by SystemError 0"
        waiter.end()


def test_a_program_ends_while_its_threads_wait(name, program):
    limits = LimitSet([ResourceLimit("c", 1)], name=name)
    with limits.acquire():
        it = program(
            """
            import sys, threading
            from limitset import *
            limits = LimitSet.attach(sys.argv[1])
            for _ in range(3):
                threading.Thread(target=limits.acquire, daemon=True).start()
            while limits.get_stats()["waiters"] < 3:
                pass
            print("ends")
            """,
            name,
        )
        assert it.end() == "ends"
    limits.acquire(timeout=60).release()
