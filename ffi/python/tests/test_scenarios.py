"""The scenarios that every language runs; see `tests/scenarios/README.md`."""

import json
import threading
from pathlib import Path

import pytest

import limitset
from limitset import CallLimit, Cooldown, LimitPool, LimitSet, QueueOptions, RateLimit, ResourceLimit

FOLDER = Path(__file__).parents[3] / "tests/scenarios"
SCENARIOS = [it for file in sorted(FOLDER.glob("*.json")) for it in json.loads(file.read_text())["scenarios"]]

#: What an exception is called there. One kind of exception may stand for several words.
WORDS = [
    (limitset.LimitTimeout, {"timed_out"}),
    (limitset.AboveCapacity, {"never"}),
    (limitset.BadRequest, {"bad_request", "unknown_key"}),
    (limitset.BadLimit, {"bad_limit", "bad_setting", "not_numbers"}),
    (limitset.Unreported, {"unreported"}),
    (limitset.LimitSetRemoved, {"removed"}),
]
REASONS = {"limited": "denied"}


def nanos(seconds):
    return None if seconds is None else round(seconds * 1e9)


def refused(error):
    """Returns an exception as an answer of the scenarios."""
    if isinstance(error, (limitset.UsageError, limitset.QueueError)):
        return {"status": error.reason}
    answer = {}
    if isinstance(error, limitset.LimitDenied):
        answer["status"] = REASONS.get(error.reason, error.reason)
        answer["retry_after_ns"] = nanos(error.retry_after)
        answer["ahead"] = error.ahead
        answer["waiters"] = error.waiters
        if error.reason in ("limited", "timed_out"):
            answer["bottleneck"] = error.bottleneck and error.bottleneck.key
            answer["limits"] = by_key(error.statuses)
        if error.reason == "timed_out":
            del answer["retry_after_ns"]  # Python knows the time where the core does not
        return answer
    for kind, words in WORDS:
        if isinstance(error, kind):
            answer["status"] = words
            break
    else:
        raise error
    if isinstance(error, limitset.AboveCapacity):
        answer.update(key=error.key, requested=error.requested, most=error.most)
    return answer


def by_key(statuses):
    return {
        it.key: {**it._asdict(), "retry_after_ns": nanos(it.retry_after)} for it in statuses
    }


def paused(pause):
    return {
        "status": "ok",
        "remaining_ns": nanos(pause.remaining),
        "generation": pause.generation,
        "absorbed": pause.absorbed,
    }


def limit(it):
    if it["kind"] == "resource":
        return ResourceLimit(it["key"], it["capacity"])
    more = {key: it[key] for key in ("algorithm", "burst", "resolution") if key in it}
    if it["kind"] == "call":
        key = {"key": it["key"]} if "key" in it else {}
        return CallLimit(window=it["window_ns"] / 1e9, capacity=it["capacity"], **key, **more)
    report = it.get("report") != "optional"
    return RateLimit(it["key"], window=it["window_ns"] / 1e9, capacity=it["capacity"], report=report, **more)


def open_set(it):
    options = {key: it[key] for key in ("config", "order", "waiters") if key in it}
    if "cooldown" in it:
        given = it["cooldown"]
        seconds = {key.removesuffix("_ns"): value / 1e9 for key, value in given.items() if key.endswith("_ns")}
        others = {key: value for key, value in given.items() if not key.endswith("_ns")}
        options["cooldown"] = Cooldown(**seconds, **others)
    if "queue" in it:
        options["queue"] = QueueOptions(**it["queue"])
    return LimitSet([limit(one) for one in it["limits"]], clock="manual", **options)


class World:
    """The named objects of a scenario, and a method for each kind of step."""

    def __init__(self):
        self.sets, self.pool, self.held, self.waiting = [], None, {}, {}

    def open(self, scenario):
        try:
            if "pool" in scenario:
                it = scenario["pool"]
                self.sets = [open_set(one) for one in it["sets"]]
                self.pool = LimitPool(
                    self.sets, load_balancing=it.get("balance"), worker_index=it.get("worker", 0)
                )
            else:
                self.sets = [open_set(scenario["set"])]
        except limitset.LimitError as error:
            return refused(error)
        return {"status": "ok"}

    def step(self, step):
        try:
            return getattr(self, "do_" + step["do"])(step)
        except limitset.LimitError as error:
            return refused(error)

    def set(self, step):
        return self.sets[step.get("set", 0)]

    def target(self, step):
        return self.pool if self.pool is not None and "set" not in step else self.set(step)

    def keep(self, step, name, held):
        limits = self.sets[held.pool_index or 0] if held.pool_index is not None else self.set(step)
        charged = {key: held.charged(key) for key in limits if held.charged(key) is not None}
        answer = {"status": "ok", "charged": charged, "enforced": held.enforced, "pool_index": held.pool_index}
        answer["config"] = dict(held.config)
        if name in step:
            self.held[step[name]] = held
        else:
            held.cancel()
        return answer

    def do_try_acquire(self, step):
        return self.keep(step, "as", self.target(step).try_acquire(step.get("request")).or_raise())

    def do_acquire(self, step):
        timeout = step["timeout_ns"] / 1e9 if "timeout_ns" in step else None
        return self.keep(step, "as", self.target(step).acquire(step.get("request"), timeout))

    def do_start(self, step):
        limits, result = self.set(step), []
        timeout = step["timeout_ns"] / 1e9 if "timeout_ns" in step else None

        def wait():
            try:
                result.append(limits.acquire(step.get("request"), timeout))
            except limitset.LimitError as error:
                result.append(error)

        before = limits.get_stats()["waiters"]
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        while limits.get_stats()["waiters"] <= before:
            assert not result, f"did not have to wait: {step}"
        self.waiting[step["as"]] = thread, result
        return {"status": "ok"}

    def do_finish(self, step):
        thread, result = self.waiting.pop(step["of"])
        thread.join()
        if isinstance(result[0], limitset.LimitError):
            raise result[0]
        return self.keep(step, "of", result[0])

    def do_check(self, step):
        return {"status": "ok", "limits": by_key(self.set(step).check(step.get("request")))}

    def do_charge(self, step):
        self.set(step).try_charge(step.get("request"))
        return {"status": "ok", "enforced": True}

    def do_acquire_more(self, step):
        self.held[step["of"]].acquire_more(step["request"])
        return self.keep(step, "of", self.held[step["of"]])

    def report(self, step, change):
        held, key = self.held[step["of"]], step["key"]
        try:
            return {"status": "ok", "returned": change(held, key), "charged": held.charged(key)}
        except limitset.LimitError as error:
            return {**refused(error), "charged": held.charged(key)}

    def do_update(self, step):
        return self.report(step, lambda held, key: held.update({key: step["used"]}))

    def do_adjust(self, step):
        return self.report(step, lambda held, key: held.adjust(key, step["delta"]))

    def do_settle(self, step):
        return self.report(step, lambda held, key: held.settle(key, step["actual"]))

    def do_release(self, step):
        self.held.pop(step["of"]).release()
        return {"status": "ok"}

    def do_cancel(self, step):
        self.held.pop(step["of"]).cancel()
        return {"status": "ok"}

    def do_drop(self, step):
        del self.held[step["of"]]
        return {"status": "ok"}

    def do_rate_limited(self, step):
        wait = step["retry_after_ns"] / 1e9 if step.get("retry_after_ns") is not None else None
        return paused(self.held.pop(step["of"]).rate_limited(wait))

    def do_pause(self, step):
        return paused(self.set(step).pause(step["ns"] / 1e9))

    def do_resume(self, step):
        return {"status": "ok", "was_paused": self.set(step).resume()}

    def do_advance(self, step):
        self.set(step).advance(step["ns"] / 1e9)
        return {"status": "ok"}

    def do_reconfigure(self, step):
        self.set(step).reconfigure([limit(it) for it in step["limits"]])
        return {"status": "ok"}

    def do_reset(self, step):
        self.set(step).reset()
        return {"status": "ok"}

    def do_remove(self, step):
        self.set(step).remove()
        return {"status": "ok"}

    def do_stats(self, step):
        stats = self.set(step).get_stats()
        for it in stats["limits"].values():
            it["window_ns"] = nanos(it.pop("window"))
        for name in ("remaining", "next_admission"):
            stats["cooldown"][name + "_ns"] = nanos(stats["cooldown"].pop(name))
        return {"status": "ok", **stats}

    def do_pool_stats(self, _):
        return {"status": "ok", "sets": [it["pool"] for it in self.pool.get_stats()["sets"]]}

    def do_push(self, step):
        self.set(step).queue.try_push(step["id"], step["payload"].encode())
        return {"status": "ok"}

    def do_close(self, step):
        self.set(step).queue.close()
        return {"status": "ok"}

    def do_take(self, step):
        return self.keep_item(step, self.set(step).queue.try_take())

    def do_collect(self, step):
        return self.keep_item(step, self.set(step).queue.try_collect())

    def do_collect_dead(self, step):
        return self.keep_item(step, self.set(step).queue.collect_dead())

    def keep_item(self, step, item):
        if item is None:
            return {"status": "over"}
        if "as" in step:
            self.held[step["as"]] = item
        answer = {"status": "ok", "id": item.id, "payload": item.payload.decode()}
        answer.update(attempts=item.attempts, rate_limits=item.rate_limits)
        if isinstance(item, limitset.Finished):
            answer.update(result=item.result.decode(), reason=item.reason)
        return answer

    def do_done(self, step):
        item = self.held[step["of"]]
        item.done_with(step["result"].encode()) if "result" in step else item.done()
        return {"status": "ok"}

    def do_retry(self, step):
        self.held[step["of"]].retry(step["ns"] / 1e9)
        return {"status": "ok"}

    def do_dead_letter(self, step):
        self.held[step["of"]].dead_letter(step["why"].encode())
        return {"status": "ok"}

    def do_park(self, step):
        wait = step["retry_after_ns"] / 1e9 if step.get("retry_after_ns") is not None else None
        return paused(self.held[step["of"]].rate_limited(self.held.pop(step["held"]), wait))

    def end(self, step):
        getattr(self.held[step["of"]], step["do"])()
        return {"status": "ok"}

    do_give_back = do_forget = do_revive = end


def fits(expected, found, place):
    """Fails where an answer lacks an expected part."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name, value in expected.items():
            fits(value, found.get(name), f"{place}.{name}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (it, other) in enumerate(zip(expected, found)):
            fits(it, other, f"{place}[{index}]")
    elif isinstance(found, set):
        assert expected in found, f"{place} is one of {found}, expected {expected}"
    else:
        assert expected == found, f"{place} is {found!r}, expected {expected!r}"


@pytest.mark.parametrize("scenario", [pytest.param(it, id=it["name"]) for it in SCENARIOS])
def test_scenario(scenario):
    world = World()
    fits(scenario.get("opens", {"status": "ok"}), world.open(scenario), "opens")
    for index, step in enumerate(scenario.get("steps", ())):
        fits(step["expect"], world.step(step), f"step {index} {step}")


def test_the_list_is_there():
    if not SCENARIOS:
        pytest.skip(f"there is no scenario in {FOLDER}")
    assert len(SCENARIOS) == len({it["name"] for it in SCENARIOS})


def test_what_differs_anywhere_does_not_fit():
    found = {"a": 1, "b": {"c": [1, {"d": "x", "e": 2}]}}
    for good in [{}, {"b": {"c": [1, {"d": "x"}]}}, {"z": None}]:
        fits(good, found, "it")
    for bad in [{"a": 2}, {"a": None}, {"z": 1}, {"b": 1}, {"b": {"c": [1]}}, {"b": {"c": [1, {"d": "y"}]}}]:
        with pytest.raises(AssertionError):
            fits(bad, found, "it")
