"""Calls to a server that is killed and restarted repeatedly. The official Python client has to resume by itself.

usage: python crash.py <url> <folder> [seed] [--behind]

Creates a file `connected-<pid>` in <folder> once its session is open. Calls continue until a file `over` exists there,
which contains the number of kills. Then a last round of calls must succeed in the same session.

With --behind the gateway is killed, and the server behind it has the tools of `behind.py`. A call that starts without a
file `finished-<pid>` in <folder> creates it at its end. The killing test may wait for it.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import random
import re
import sys
import time
from typing import Any

import anyio

from common import Failure, Handlers, Report, Wire, connect, describe, equal, expect, http, run, sequence, text, until

BEHIND = "--behind" in sys.argv
ARGS = [argument for argument in sys.argv[1:] if argument != "--behind"]
if len(ARGS) not in (2, 3):
    sys.exit("usage: python crash.py <url> <folder> [seed] [--behind]")
URL = ARGS[0]
FOLDER = pathlib.Path(ARGS[1])
SEED = int(ARGS[2]) if len(ARGS) == 3 else 1
OVER = FOLDER / "over"
FINISHED = FOLDER / f"finished-{os.getpid()}"
CONCURRENCY = 6
CALL_TIMEOUT = 30.0
LAST_CALLS = 12
EVENTS = 3
WATCHED = "demo://resource/dynamic/text/7"
ROOT = "file:///outside/root"
# The server does not use this code.
UNKNOWN_OUTCOME = -32099

report = Report()
dice = random.Random(SEED)


def error_response(request: Any, reason: str, code: int = UNKNOWN_OUTCOME) -> bytes:
    """An error response for a call without an answer."""
    error = {"code": code, "message": reason}
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(request.content).get("id"), "error": error}).encode()


class ErrorResponder(Wire):
    """Answers a POST whose server was killed, as a reverse proxy would.

    A failed POST ends the whole client, and in 1.x a call whose stream ends before its first event waits for its
    timeout (FINDINGS.md, P6). A second failed resumption in a row ends the call (P2), so this one waits for the server,
    which may take long to restart on a busy machine.
    """

    def __init__(self) -> None:
        super().__init__(record=False, soften=True)
        self.fresh_streams = 0
        self.streams: dict[str, str] = {}
        self.failed: set[str | None] = set()

    async def handle_async_request(self, request: Any) -> Any:
        cursor = request.headers.get("last-event-id")
        if request.method == "GET" and cursor in self.failed:
            await self.server_is_back(request.url)
        try:
            response = await super().handle_async_request(request)
            kind = response.headers.get("content-type", "")
            if request.method == "POST" and kind.startswith("application/json"):
                body = await response.aread()
                return http.Response(response.status_code, headers=response.headers, content=body)
        except http.TransportError as error:
            if request.method != "POST":
                self.failed.add(cursor)
                raise
            body = error_response(request, describe(error))
            return http.Response(200, headers={"content-type": "application/json"}, content=body)
        if kind.startswith("text/event-stream"):
            response.stream = FirstEvent(response.stream, request, self)
        return response


    async def server_is_back(self, url: Any) -> None:
        with anyio.move_on_after(10):
            while True:
                try:
                    await (await anyio.connect_tcp(url.host, url.port)).aclose()
                    return
                except OSError:
                    await anyio.sleep(0.1)

    def begins(self, request: Any, stream: str) -> None:
        """Records the first event of a stream."""
        if request.method == "POST":
            # After the first result of a tool the client lists the tools, without params.
            params = json.loads(request.content).get("params") or {}
            self.streams[params.get("arguments", {}).get("tag")] = stream
        elif "last-event-id" not in request.headers:
            self.fresh_streams += 1

    def trace(self, tag: str) -> str:
        """The exchanges of a call, to find out why it failed."""
        stream = self.streams.get(tag)
        gets = [e for e in self.exchanges if stream and (e.last_event_id or "").startswith(f"{stream}-")]
        answers = ", ".join(f"{e.last_event_id}: {e.status or 'no answer'}" for e in gets)
        return f"stream {stream}, GETs {answers or 'none'}"


class FirstEvent(http.AsyncByteStream):
    """Forwards a body and waits for the first event with an id. Answers a call without one."""

    def __init__(self, inner: Any, request: Any, wire: ErrorResponder) -> None:
        self.inner = inner
        self.request = request
        self.wire = wire

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        head: bytes | None = b""
        async for chunk in self.inner:
            if head is not None:
                head += chunk
                if found := re.search(rb"^id: ?(\d+)-\d+\n(.*\n)*?\n", head, re.MULTILINE):
                    head = None
                    self.wire.begins(self.request, found[1].decode())
            yield chunk
        if head is not None and self.request.method == "POST":
            if self.inner.exchange.broken:
                answer = error_response(self.request, "the connection broke before the first event")
            else:
                answer = error_response(self.request, "the stream ended in good order, but without an event with an id", -32000)
            yield b"\n\ndata: " + answer + b"\n\n"

    async def aclose(self) -> None:
        await self.inner.aclose()


def said(error: BaseException) -> tuple[int | None, Any]:
    """The code and the data of a JSON-RPC error."""
    inner = getattr(error, "error", None)
    return getattr(inner, "code", None), getattr(inner, "data", None)


async def main() -> None:
    wire = ErrorResponder()
    handlers = Handlers()
    async with connect(URL, wire, handlers, CALL_TIMEOUT) as session:
        await until(lambda: wire.fresh_streams == 1, 10, "no GET stream")
        if BEHIND:
            await session.set_level("error")
            await session.mcp.subscribe_resource(session.uri(WATCHED))
        (FOLDER / f"connected-{os.getpid()}").touch()
        await drive(session, wire, handlers)


async def drive(session: Any, wire: ErrorResponder, handlers: Handlers) -> None:
    tally = {"finished": 0, "restarted": 0, "unknown": 0}
    wrong: list[str] = []
    numbers = itertools.count()

    async def one(kind: str, arguments: dict[str, Any], expected: str) -> str:
        """Makes one call. `finished` and `restarted` are checked to the last event. `unknown` is a call whose POST failed
        before an event with an id arrived: no client can know its outcome."""
        seen: list[float] = []
        events = arguments.get("events", arguments.get("steps", 0))
        tag = f"k{next(numbers)}"

        async def progress(value: float, _total: float | None, _message: str | None) -> None:
            seen.append(value)

        try:
            with anyio.fail_after(CALL_TIMEOUT + 2):
                result = await session.call(kind, {**arguments, "tag": tag}, progress)
        except Exception as error:
            await anyio.sleep(0.05)  # callbacks are tasks of their own in 2.x
            code, data = said(error)
            if code == -32603 and isinstance(data, dict) and data.get("reason") == "restarted":
                expect(len(seen) <= events, f"more progress than there is: {seen}")
                sequence(seen, len(seen), "progress before the kill")
                return "restarted"
            if code == UNKNOWN_OUTCOME:
                equal(seen, [], "progress of a call without events")
                return "unknown"
            heard = f"{len(seen)} of {events} progress"
            raise Failure(f"{kind} {arguments}: {describe(error)} (code {code}); {wire.trace(tag)}; {heard}") from error
        await anyio.sleep(0.05)
        equal(text(result), expected, "result")
        sequence(seen, events, "progress")
        return "finished"

    async def attempt() -> str:
        events = dice.randint(5, 60)
        ms = dice.randint(20, 500)
        awaited = BEHIND and not FINISHED.exists()
        try:
            if BEHIND:
                expected = f"Long running operation completed. Duration: {ms / 500:g} seconds, Steps: {events}."
                outcome = await one("trigger-long-running-operation", {"duration": ms / 500, "steps": events}, expected)
            elif dice.random() < 0.7:
                arguments = {"events": events, "bytes": 64, "delay_us": dice.randint(1000, 15_000)}
                outcome = await one("burst", arguments, f"burst {events} done")
            else:
                # Finishes while its client is disconnected.
                outcome = await one("close_connection", {"ms": ms}, "reconnected")
        except Failure as error:
            wrong.append(describe(error))
            return "wrong"
        tally[outcome] += 1
        if awaited and outcome == "finished":
            FINISHED.touch()
        return outcome

    async def worker() -> None:
        while not OVER.exists() and len(wrong) < 20:
            if await attempt() == "unknown":
                await anyio.sleep(0.1)

    batches: list[str] = []
    trouble: list[str] = []

    async def batch(must_return: bool) -> None:
        name = f"crash{SEED}-{len(batches)}"
        batches.append(name)
        try:
            equal(text(await session.call("notify_self", {"events": EVENTS, "tag": name})), f"notified {EVENTS}", "result")
        except Exception as error:
            if must_return or said(error)[0] != UNKNOWN_OUTCOME:
                trouble.append(f"{name}: {describe(error)}")

    async def notifier() -> None:
        # In batches. A kill may remove unsent messages at the end, never one in the middle.
        while not OVER.exists():
            await batch(False)
            await anyio.sleep(0.15)

    started = time.monotonic()
    async with anyio.create_task_group() as group:
        if not BEHIND:
            group.start_soon(notifier)
        for _ in range(CONCURRENCY):
            group.start_soon(worker)
    elapsed = int((time.monotonic() - started) * 1000)
    kills = int(OVER.read_text())

    if tally["finished"]:
        report.ok(f"{tally['finished']} calls finished: result right, progress 1..N once and in order")
    if tally["restarted"]:
        report.ok(f"{tally['restarted']} calls ended with the error \"restarted\": progress 1..n once and in order before it")
    for line in wrong:
        report.fail("call", line)

    async def last_calls() -> None:
        outcomes: list[str] = []

        async def last() -> None:
            outcomes.append(await attempt())

        async with anyio.create_task_group() as group:
            for _ in range(LAST_CALLS):
                group.start_soon(last)
        equal(outcomes, ["finished"] * LAST_CALLS, f"outcomes ({wrong[-1:]})")

    name = f"the session has survived {kills} kills: {LAST_CALLS} more calls succeed in it"
    await report.check(name, last_calls, CALL_TIMEOUT + 5)

    first = len(batches)
    if not BEHIND:
        await batch(True)
        await batch(True)

    async def notify_calls() -> None:
        equal(trouble, [], "trouble")

    def arrived() -> list[str]:
        prefix = f"crash{SEED}-"
        found = [m["data"] for m in handlers.messages() if isinstance(m["data"], str) and m["data"].startswith(prefix)]
        return [" ".join(data.split(" ")[:2]) for data in found]

    def every(names: list[str]) -> list[str]:
        return [f"{name} {i + 1}" for name in names for i in range(EVENTS)]

    async def unsolicited() -> None:
        last = every(batches[first:])
        await until(lambda: set(last) <= set(arrived()), 10, lambda: f"missing of {last}: got {arrived()[-6:]}")
        await anyio.sleep(0.3)
        got = arrived()
        equal([m for i, m in enumerate(got) if m in got[:i]], [], "received twice")
        equal(got, [m for m in every(batches) if m in got], "order")
        for name in batches:
            seen = [m for m in got if m.startswith(f"{name} ")]
            equal(seen, every([name])[: len(seen)], "the beginning of a batch")
        expect(len(got) >= len(every(batches)) / 5, f"only {len(got)} of {len(every(batches))} arrived")

    # The new server process of the session knows the state from before the kills.
    async def subscription() -> None:
        def updates() -> set[str]:
            return {params["uri"] for method, params in handlers.notes if method == "notifications/resources/updated"}

        await session.call("toggle-subscriber-updates", {})
        await until(updates, 5, "no notifications/resources/updated")
        equal(sorted(updates()), [WATCHED], "updated")

    async def level() -> None:
        def logged(uri: str) -> list[Any]:
            return [m["data"] for m in handlers.messages() if uri in str(m["data"])]

        # A server of 2026-07-28 hears of no `resources/subscribe`, and has a tool instead.
        tools = [tool.name for tool in (await session.mcp.list_tools()).tools]

        async def log(uri: str) -> None:
            if "write-log" in tools:
                await session.call("write-log", {"level": "info", "text": uri})
            else:
                await session.mcp.subscribe_resource(session.uri(uri))

        await log(f"{WATCHED}1")
        await anyio.sleep(0.3)
        equal(logged(WATCHED), [], "messages at level info")
        await session.set_level("info")

        async def arrives() -> bool:
            await log(f"{WATCHED}2")
            await anyio.sleep(0.1)
            return bool(logged(f"{WATCHED}2"))

        # A log message names no call. While another client uses the same process, it reaches nobody.
        await until(arrives, 10, "no message")

    async def roots() -> None:
        expect(ROOT in text(await session.call("get-roots-list", {})), "not the root of this client")

    async def no_faults() -> None:
        equal(handlers.faults[:5], [], "exceptions handed to the message handler")

    async def one_session() -> None:
        equal(sum(1 for e in wire.exchanges if e.rpc.get("method") == "initialize"), 1, "initialize")
        equal(len({e.session for e in wire.exchanges if e.session}), 1, "sessions")
        equal(wire.fresh_streams, 1, "GET streams that began anew")
        equal(sum(1 for e in wire.exchanges if e.status == 404), 0, "answers with 404")

    async def means_something() -> None:
        numbers = f"{kills} kills, {tally}, {wire.resumes()} resumptions"
        enough = kills > 0 and tally["finished"] >= kills and tally["restarted"] > 0 and wire.resumes() >= kills
        expect(enough, f"too little happened: {numbers}")
        expect(tally["unknown"] <= kills * CONCURRENCY * 4, f"too many calls came to nothing: {numbers}")

    if BEHIND:
        await report.check("the subscription is still there", subscription)
        await report.check("the log level is still there", level)
        await report.check("the roots are known", roots)
    else:
        await report.check("notify_self calls return", notify_calls)
        await report.check(
            "unsolicited messages: none twice, none out of order, all those after the last kill", unsolicited
        )
    await report.check("nothing unreadable", no_faults)
    await report.check("one initialize, one session, one GET stream", one_session)
    await report.check("the run means something", means_something)
    print(
        f"info {kills} kills in {elapsed} ms: {tally['finished']} finished, {tally['restarted']} restarted,"
        f" {tally['unknown']} unknown, {len(arrived())} of {len(every(batches))} unsolicited;"
        f" {wire.resumes()} resumptions, seed {SEED}",
        flush=True,
    )


run(main, report, 240)
