"""Web applications for the servers of the tests. The name of their set is in the environment.

/            takes a call and a place inside, or answers 429
/hold?fifo   the same, says its process number, and keeps the place until something is written to the fifo; the
             whole worker stands still meanwhile
/wait        waits for a place as long as it takes, and gives it back
/keep        takes a place, says its process number, and keeps it until the client sends a byte; other requests of the
             worker go on meanwhile
/ping        takes nothing
"""

import os

from limitset import CallLimit, LimitSet, ResourceLimit

CALLS, PLACES = 40, 4

limits = LimitSet(
    [CallLimit(window="day", capacity=CALLS), ResourceLimit("inside", PLACES)],
    name=os.environ["LIMITSET_TEST_NAME"],
)


def us() -> bytes:
    return f"{os.getpid()}\n".encode()


def stand_still(fifo: str) -> None:
    with open(fifo, "rb", buffering=0) as gate:
        gate.read(1)


def wsgi(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/ping":
        start_response("200 OK", [])
        return [us()]
    if path == "/wait":
        with limits.acquire({"call_count": 0}):
            start_response("200 OK", [])
            return [us()]
    held = limits.try_acquire({"call_count": 0} if path == "/keep" else None)
    if not held:
        start_response("429 Too Many Requests", list(held.denial.headers.items()))
        return [us()]
    start_response("200 OK", [])
    if path == "/":
        with held:
            return [us()]

    def keep():
        with held:
            yield us()
            if path == "/hold":
                stand_still(environ["QUERY_STRING"])
            else:
                environ["wsgi.input"].read(1)
            yield b"done\n"

    return keep()


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    path = scope["path"]

    async def start(status, headers=()):
        headers = [(key.lower().encode(), value.encode()) for key, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(data, more=False):
        await send({"type": "http.response.body", "body": data, "more_body": more})

    if path == "/ping":
        await start(200)
        return await body(us())
    if path == "/wait":
        async with limits.async_acquire({"call_count": 0}):
            await start(200)
            return await body(us())
    held = limits.try_acquire({"call_count": 0} if path == "/keep" else None)
    if not held:
        await start(429, held.denial.headers.items())
        return await body(us())
    async with held:
        await start(200)
        if path == "/":
            return await body(us())
        await body(us(), more=True)
        if path == "/hold":
            stand_still(scope["query_string"].decode())
        else:
            await receive()
        await body(b"done\n")
