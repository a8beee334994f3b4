"""The rows of the bench `python`. Each input line names a row and the nanoseconds to run it; the answer is the
nanoseconds of one operation, or the reason why the row cannot be run."""

import sys
import time


def ours():
    import os

    from limitset import CallLimit, LimitSet, RateLimit, ResourceLimit

    plenty = 10**12
    limits = LimitSet(
        [
            CallLimit(window="second", capacity=plenty),
            RateLimit("tokens", window="second", capacity=plenty, report=False),
            ResourceLimit("connections", capacity=8),
        ],
        name=f"bench-python-{os.getpid()}",
    )
    request = {"tokens": 1}
    acquire = limits.acquire

    def run(count):
        for _ in range(count):
            with acquire(request):
                pass

    return run, limits.remove


def lock():
    import multiprocessing

    lock = multiprocessing.Lock()

    def run(count):
        for _ in range(count):
            with lock:
                pass

    return run, lambda: None


def pyrate():
    from pyrate_limiter import Duration, Limiter, MultiprocessBucket, Rate

    limiter = Limiter(MultiprocessBucket.init([Rate(10**6, Duration.SECOND)]))

    def run(count):
        for _ in range(count):
            # It denies now and then while its other thread is at work.
            while not limiter.try_acquire("bench", blocking=False):
                pass

    return run, lambda: None


def concurry():
    from concurry import CallLimit, LimitSet, RateLimit, RateLimitAlgorithm, ResourceLimit

    bucket = {"algorithm": RateLimitAlgorithm.TokenBucket, "window_seconds": 1, "capacity": 10**9}
    limits = LimitSet(
        limits=[CallLimit(**bucket), RateLimit(key="tokens", **bucket), ResourceLimit(key="connections", capacity=8)],
        shared=True,
        mode="process",
    )

    def run(count):
        for _ in range(count):
            with limits.acquire(requested={"tokens": 1}) as held:
                held.update(usage={"tokens": 1})

    return run, lambda: None


def measure(run, batch, counts, name):
    """Nanoseconds of one operation: the median of nine parts of a batch."""
    now = time.perf_counter_ns
    if name not in counts:
        count = 1
        while True:
            start = now()
            run(count)
            spent = now() - start
            if spent * 8 > batch:
                break
            count *= 2
        counts[name] = max(1, count * batch // max(1, spent) // 9)
    part, parts = counts[name], []
    for _ in range(9):
        start = now()
        run(part)
        parts.append((now() - start) / part)
    return sorted(parts)[4]


def main():
    made, ends, counts = {}, [], {}
    try:
        for line in sys.stdin:
            name, batch = line.split()
            try:
                if name not in made:
                    made[name], end = globals()[name]()
                    ends.append(end)
                print("ok", measure(made[name], int(batch), counts, name), flush=True)
            except Exception as error:  # any error is the row's result
                print("no", type(error).__name__, str(error).replace("\n", " ")[:200], flush=True)
    finally:
        for end in ends:
            end()


if __name__ == "__main__":
    main()
