"""The examples of the pages run unchanged, except for the names of their sets."""

import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import limitset

DOCS = Path(__file__).parents[3] / "docs"
WATCHDOG = 60


@pytest.fixture
def page(tmp_path, name):
    """Writes the files of a page to a folder; returns the folder, and the blocks that are not files."""
    used = set()

    def own_name(match):
        its = f"{name}-{match.group(2)}"
        used.add(its)
        return f'{match.group(1)}"{its}"'

    def read(page):
        text = (DOCS / page).read_text()
        loose = []
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            block = re.sub(r'(name=f?|remove\()"([^"]+)"', own_name, block)
            file = re.match(r"# (\S+\.py)\n", block)
            if file:
                (tmp_path / file.group(1)).write_text(block)
            else:
                loose.append(block)
        return tmp_path, loose

    yield read
    for its in used:
        try:
            limitset.remove(its)
        except (limitset.LimitError, ValueError):
            pass


def run(folder, *arguments, **options):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=WATCHDOG, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name_of_page", ["python.md", "python-llm.md", "python-queue.md"])
def test_short_examples_run(page, name_of_page):
    folder, loose = page(name_of_page)
    assert loose
    for block in loose:
        run(folder, "-c", block.replace('name=f"', 'name=f"'))


def serve(folder, *arguments):
    """Starts a server of an example; returns it and its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    descriptor = listening.fileno()
    server = subprocess.Popen(
        [sys.executable, *(it.replace("FD", str(descriptor)) for it in arguments)],
        cwd=folder,
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    return server, listening, f"http://127.0.0.1:{listening.getsockname()[1]}/"


SERVERS = {
    "app.py": ["-m", "gunicorn", "--no-control-socket", "--graceful-timeout", "5", "--bind", "fd://FD",
               "--log-level", "warning", "app:application"],
    "asgi_app.py": ["-m", "uvicorn", "--workers", "4", "--lifespan", "off", "--fd", "FD", "--log-level", "warning",
                    "asgi_app:application"],
}


@pytest.mark.parametrize("file", SERVERS)
def test_the_servers_of_the_page_answer_a_hundred_requests_and_no_more(page, file):
    folder, _ = page("python.md")
    source = (folder / file).read_text().replace('window="minute"', 'window="day"').replace("timeout=2", "timeout=0")
    (folder / file).write_text(source)
    its_name = re.search(r'name="([^"]+)"', source).group(1)
    server, listening, address = serve(folder, *SERVERS[file])
    try:
        statuses = []
        for _ in range(103):
            try:
                with urllib.request.urlopen(address, timeout=WATCHDOG) as answer:
                    statuses.append(answer.status)
                    assert answer.read() == b"hello\n"
            except urllib.error.HTTPError as error:
                statuses.append(error.code)
                assert error.headers["RateLimit"].startswith('"call_count";r=0')
                assert int(error.headers["Retry-After"]) > 0
                error.close()
        assert statuses == [200] * 100 + [429] * 3
    finally:
        server.terminate()
        server.communicate(timeout=WATCHDOG)
        listening.close()
    if file == "app.py":
        with pytest.raises(FileNotFoundError):
            limitset.LimitSet.attach(its_name)  # its configuration removes it


CLIENT = """
import asyncio, sys
import llm, llm_async
said = []

def send(prompt, most):
    said.append(prompt)
    if prompt == "busy" and said.count("busy") < 3:
        raise llm.TooManyRequests("0.05")
    if prompt == "broken":
        raise ConnectionError
    return prompt.upper(), 100

async def send_later(prompt, most):
    await asyncio.sleep(0)
    return send(prompt, most)

tokens = lambda: llm.limits.get_stats()["limits"]["tokens"]["consumed"]
assert llm.complete(send, "hello") == "HELLO" and tokens() == 100
try:
    llm.complete(send, "broken")
except ConnectionError:
    assert tokens() == 100
assert asyncio.run(llm_async.complete(send_later, "hello")) == "HELLO" and tokens() == 200
assert asyncio.run(llm_async.complete(send_later, "busy")) == "BUSY"
assert said.count("busy") == 3 and llm.limits.get_stats()["cooldown"]["generation"] == 2
# Requests that the other side answered with 429 stay charged.
assert tokens() == 300 + 2 * llm.estimate("busy", 500)
print("well")
"""


def test_the_client_estimates_settles_and_pauses(page):
    folder, _ = page("python-llm.md")
    source = (folder / "llm.py").read_text().replace("first=1,", "first=0.05,")
    (folder / "llm.py").write_text(source)
    assert run(folder, "-c", CLIENT) == "well\n"


POLITE = """
import polite
from limitset import *
limits = LimitSet([ResourceLimit("sockets", 1)], queue=QueueOptions(items=9, item_bytes=9), cooldown=Cooldown(first=0.01))
said = []

def ask(payload):
    said.append(payload)
    if payload == b"busy" and said.count(b"busy") < 3:
        raise polite.TooManyRequests("0.02")
    return payload.upper()

for number, payload in enumerate([b"busy", b"calm"]):
    limits.queue.push(number, payload)
limits.queue.close()
polite.work(limits, ask)
results = sorted(finished.forget() or finished.result for finished in iter(limits.queue.collect, None))
assert results == [b"BUSY", b"CALM"] and said.count(b"busy") == 3, (results, said)
stats = limits.get_stats()
assert stats["queue"]["rate_limited"] == stats["cooldown"]["generation"] == 2
assert stats["limits"]["sockets"]["in_use"] == 0
print("well")
"""


def test_the_programs_of_the_page_on_the_work_queue_say_what_they_should(page):
    folder, _ = page("python-queue.md")
    before = set(os.listdir("/dev/shm"))
    assert run(folder, "batch.py") == "50 1\n"
    assert run(folder, "batch_async.py") == "100\n"
    assert run(folder, "-c", POLITE) == "well\n"
    left = [it for it in set(os.listdir("/dev/shm")) - before if it.startswith("limitset.auto-")]
    # Sets of other programs do not count.
    assert [it for it in left if not os.path.exists(f"/proc/{it.split('-')[1]}")] == []


def test_the_programs_of_the_page_on_processes_say_what_they_should(page):
    folder, _ = page("python-multiprocessing.md")
    before = set(os.listdir("/dev/shm"))
    assert run(folder, "crawl.py").split() == ["9900", "100"]
    assert run(folder, "pooled.py") == "40 ['a', 'b']\n"
    assert run(folder, "prefork.py") == "[0, 0, 0, 0, 0, 0, 0, 0]\n"
    left = [it for it in set(os.listdir("/dev/shm")) - before if it.startswith("limitset.auto-")]
    # Sets of other programs do not count.
    alive = [it for it in left if os.path.exists(f"/proc/{it.split('-')[1]}")]
    assert left == alive
