"""The stubs fit the extension, and `help` describes it."""

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import limitset

#: Classes whose methods and properties must have docstrings.
DESCRIBED = ("LimitSet", "LimitPool", "Acquisition", "WorkQueue", "WorkItem", "Finished")
ALLOWED = Path(__file__).parent / "stubtest-allow.txt"
SAMPLE = """
import asyncio
from limitset import CallLimit, LimitDenied, LimitPool, LimitSet, QueueOptions, RateLimit

limits = LimitSet([CallLimit(window="minute", capacity=5), RateLimit("tokens", 60, 9)], name="a", config={"b": "c"})


@limits.limit(tokens=5)
def call(a: int) -> str:
    return str(a)


@limits.limit
async def call_later(a: int) -> str:
    return str(a)


async def main() -> None:
    async with limits.async_acquire({"tokens": 1}, timeout=5.0) as held:
        held.update(usage={"tokens": 1})
        reveal_type(held)
    reveal_type(await limits.async_acquire())
    await limits.async_charge({"tokens": 1}, timeout=5)
    limits.charge({"tokens": 1}, timeout=5)
    limits.try_charge({"tokens": 1})
    reveal_type(await call_later(1))
    with limits.try_acquire() as tried:
        if not tried:
            raise tried.denial or LimitDenied()
    reveal_type(LimitPool.of(limits)[0]["tokens"].key)
    reveal_type(call(5))
    queue = LimitSet([], queue=QueueOptions(items=5, item_bytes=9)).queue
    await queue.async_push(1, b"")
    asyncio.create_task(queue.async_take())
    for item in queue:
        with item as the_same:
            reveal_type(the_same)
    async for item in queue:
        async with item as the_same:
            reveal_type(the_same)
    reveal_type(await queue.async_collect())
    queue.push(1, "text")


call("five")
limits.acquire({"tokens": "1"})
"""


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_the_stubs_fit_the_extension(tmp_path):
    checked = run("mypy.stubtest", "limitset", "--allowlist", str(ALLOWED), cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_programs_are_checked_by_the_stubs(tmp_path):
    (tmp_path / "sample.py").write_text(SAMPLE)
    checked = run("mypy", "--strict", "--cache-dir=/dev/null", "sample.py", cwd=tmp_path)
    said = [line.split(": ", 1)[1] for line in checked.stdout.splitlines() if line.startswith("sample.py")]
    types = [line.split('"')[1].split(".")[-1] for line in said if line.startswith("note: Revealed")]
    ours = ["Acquisition", "Acquisition", "str", "str", "str", "WorkItem", "WorkItem", "Finished | None"]
    assert types == ours, checked.stdout
    errors = [line.split("[")[-1] for line in said if line.startswith("error")]
    assert errors == ["arg-type]", "arg-type]", "dict-item]"], checked.stdout


def test_help_reads_well():
    text = pydoc.render_doc(limitset, renderer=pydoc.plaintext)
    assert text.startswith("Python Library Documentation: package limitset")
    for part in ["One budget over all processes.", "acquire(self, /, requested=None, timeout=None)", "class LimitSet(", "class WorkQueue(",
                 "take(self, /, timeout=None)"]:
        assert part in text


@pytest.mark.parametrize("name", [it for it in limitset.__all__ if it != "Limit"])
def test_whatever_is_public_says_what_it_is(name):
    it = getattr(limitset, name)
    assert inspect.getdoc(it), name
    assert it.__module__ == "limitset"
    if isinstance(it, type) and name in DESCRIBED:
        silent = [key for key, value in vars(it).items() if not key.startswith("_") and not inspect.getdoc(value)]
        assert silent == []
