"""Real servers with several workers, over loopback: one budget for all of them, also while one is killed and replaced."""

import concurrent.futures
import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from limitset import LimitSet

#: As in apps.py.
CALLS, PLACES = 40, 4
HERE = Path(__file__).parent
WATCHDOG = 60
WORKERS = 4


class Server:
    """A server on a port of the kernel's choice, with a set of its own."""

    def __init__(self, kind: str, name: str, workers: int = WORKERS) -> None:
        self.name = name
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        descriptor = str(self.socket.fileno())
        gunicorn = ["-m", "gunicorn", "--bind", f"fd://{descriptor}", "--workers", str(workers)]
        gunicorn += ["--graceful-timeout", "5", "--log-level", "warning", "--no-control-socket"]
        arguments = {
            "gunicorn-sync": [*gunicorn, "--preload", "--timeout", "300", "apps:wsgi"],
            "gunicorn-gevent": [*gunicorn, "-k", "gevent", "--timeout", "300", "apps:wsgi"],
            "uvicorn": [
                *["-m", "uvicorn", "--fd", descriptor, "--workers", str(workers), "--log-level", "warning"],
                *["--timeout-worker-healthcheck", "300", "--timeout-graceful-shutdown", "5", "apps:asgi"],
            ],
        }[kind]
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=HERE,
            env={**os.environ, "LIMITSET_TEST_NAME": name, "PYTHONUNBUFFERED": "1"},
            pass_fds=[self.socket.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(WATCHDOG / 3)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Kills the rest of the session: only processes of this server are in it.
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.socket.close()
            self.process.stderr.close()

    def request(self, path: str, body: bool = False) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WATCHDOG)
        connection.putrequest("POST" if body else "GET", path)
        if body:
            connection.putheader("Content-Length", "1")
        else:
            connection.putheader("Connection", "close")
        connection.endheaders()
        return connection

    def get(self, path: str = "/") -> tuple[int, dict, int]:
        """Returns the status, the headers, and the worker that answered."""
        connection = self.request(path)
        response = connection.getresponse()
        pid = int(response.read().split()[0])
        connection.close()
        return response.status, {key.lower(): value for key, value in response.getheaders()}, pid


class Hold:
    """A request that blocks a worker until it is released."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.fifo = folder / secrets.token_hex(4)
        os.mkfifo(self.fifo)
        self.gate = os.open(self.fifo, os.O_RDWR)
        self.connection = server.request(f"/hold?{self.fifo}")

    def pid(self) -> int:
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        return int(self.response.readline())

    def let_go(self) -> None:
        os.write(self.gate, b"x")
        assert self.response.read() == b"done\n"
        self.forget()

    def forget(self) -> None:
        self.connection.close()
        os.close(self.gate)


@pytest.fixture
def server(request, name):
    it = Server(request.param, name)
    yield it
    it.end()


KINDS = ["gunicorn-sync", "gunicorn-gevent", "uvicorn"]


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_all_workers_share_one_budget_also_while_one_is_killed_and_replaced(server, tmp_path):
    # Each hold blocks the worker that answers it, so four holds, one after the other, reach four workers.
    holds, pids = [], []
    for _ in range(WORKERS):
        holds.append(Hold(server, tmp_path))
        pids.append(holds[-1].pid())
    assert len(set(pids)) == WORKERS
    limits = LimitSet.attach(server.name)
    assert limits.get_stats()["limits"]["inside"]["in_use"] == PLACES
    assert not limits.try_acquire({"call_count": 0}), "all places are taken, by four processes"

    victim, rest = pids[0], holds[1:]
    os.kill(victim, signal.SIGKILL)
    limits.acquire({"call_count": 0}, timeout=WATCHDOG).release()  # its permit came back
    holds[0].forget()

    # The other three are blocked: only a new worker can answer.
    again = Hold(server, tmp_path)
    replacement = again.pid()
    assert replacement not in pids
    for hold in [*rest, again]:
        hold.let_go()
    limits.acquire({"call_count": 0, "inside": PLACES}, timeout=WATCHDOG).release()

    used = WORKERS + 1
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: server.get(), range(3 * CALLS)))
    # With eight clients some may be denied: they retry, one after the other.
    while sum(status == 200 for status, _, _ in answers) < CALLS - used:
        answers.append(server.get())
        assert len(answers) < 10 * CALLS
    assert sum(status == 200 for status, _, _ in answers) == CALLS - used
    assert {pid for _, _, pid in answers} <= {*pids[1:], replacement}
    stats = limits.get_stats()["limits"]["call_count"]
    assert (stats["granted"], stats["available"]) == (CALLS, 0)

    status, headers, _ = server.get()
    assert status == 429
    assert int(headers["retry-after"]) > 0
    assert headers["ratelimit"].startswith('"call_count";r=0;t=')
    assert headers["ratelimit-policy"] == f'"call_count";q={CALLS};w=86400, "inside";q={PLACES};qu="concurrent-requests"'


@pytest.mark.parametrize("kind", ["gunicorn-gevent", "uvicorn"])
def test_requests_that_wait_for_a_place_let_others_of_the_same_worker_go_on(kind, name):
    server = Server(kind, name, workers=1)
    try:
        keepers = [server.request("/keep", body=True) for _ in range(PLACES)]
        responses = [keeper.getresponse() for keeper in keepers]
        pids = {int(response.readline()) for response in responses}
        assert len(pids) == 1
        limits = LimitSet.attach(name)
        waiting = [server.request("/wait") for _ in range(20)]
        while limits.get_stats()["waiters"] < len(waiting):
            # Answered by the one worker, in which up to twenty requests wait.
            assert server.get("/ping")[2] in pids
        assert server.get("/ping")[2] in pids
        for keeper, response in zip(keepers, responses):
            keeper.send(b"x")
            assert response.read() == b"done\n"
            keeper.close()
        for it in waiting:
            assert int(it.getresponse().read()) in pids
            it.close()
        # An answer may come before its permit is returned.
        limits.acquire({"call_count": 0, "inside": PLACES}, timeout=WATCHDOG).release()
    finally:
        server.end()
