"""Shared by the other scripts: one interface for mcp 1.x and 2.x, a recorder of HTTP exchanges, and the report."""

from __future__ import annotations

import codecs
import contextlib
import importlib.metadata
import json
import logging
import os
import sys
import time
import warnings
from typing import Any

import anyio

import mcp.client.streamable_http as streamable
from mcp.client.session import ClientSession

MAJOR = int(importlib.metadata.version("mcp").split(".")[0])
if MAJOR == 1:
    import httpx as http
    import mcp.types as types
else:
    import httpx2 as http  # type: ignore[no-redef]
    import mcp_types as types  # type: ignore[no-redef]

logging.basicConfig(level=logging.CRITICAL)
# 2.x deprecates calls of the legacy era, which are tested here.
warnings.simplefilter("ignore")


class Failure(Exception):
    """A failed check."""


def expect(condition: Any, message: str) -> None:
    if not condition:
        raise Failure(message)


def equal(actual: Any, expected: Any, what: str = "value") -> None:
    if actual != expected:
        raise Failure(f"{what}: got {json.dumps(actual, default=str)}, expected {json.dumps(expected, default=str)}")


def sequence(values: list[Any], count: int, what: str) -> None:
    equal([int(v) for v in values], list(range(1, count + 1)), what)


class Report:
    """Prints one line per check and counts them."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def ok(self, name: str) -> None:
        self.passed += 1
        print(f"ok {name}", flush=True)

    def fail(self, name: str, reason: Any) -> None:
        self.failed += 1
        text = " ".join(describe(reason).split())[:600]
        print(f"FAIL {name}: {text}", flush=True)

    async def check(self, name: str, body: Any, limit: float = 20) -> None:
        """Awaits `body()`; an exception (or taking longer than `limit` seconds) is a failure."""
        try:
            with anyio.fail_after(limit):
                await body()
        except TimeoutError as error:
            self.fail(name, str(error) or f"no end within {limit} s")
        except Exception as error:
            self.fail(name, error)
        else:
            self.ok(name)

    def finish(self) -> None:
        """Prints the last line and exits at once, because a client that still retries would keep the process alive."""
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        sys.stdout.flush()
        os._exit(0 if self.failed == 0 and self.passed > 0 else 1)


def describe(error: Any) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}" if not isinstance(error, Failure) else str(error)
    return str(error)


def wire_form(model: Any) -> Any:
    """A result as on the wire, the same for both releases."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def text(result: Any) -> str:
    content = wire_form(result).get("content") or [{}]
    expect(content[0].get("type") == "text", f"first block is not text: {str(content)[:200]}")
    return content[0]["text"]


async def until(test: Any, seconds: float, message: Any) -> None:
    end = time.monotonic() + seconds
    while True:
        value = test()
        if hasattr(value, "__await__"):
            value = await value
        if value:
            return
        if time.monotonic() > end:
            raise Failure(message() if callable(message) else message)
        await anyio.sleep(0.02)


class Exchange:
    def __init__(self, request: Any) -> None:
        self.method: str = request.method
        self.url = str(request.url)
        self.last_event_id: str | None = request.headers.get("last-event-id")
        self.session: str | None = request.headers.get("mcp-session-id")
        self.headers = request.headers
        self.rpc: dict[str, Any] = {}
        self.sent: dict[str, Any] = {}
        self.status = 0
        self.answered: Any = {}
        self.sse = ""
        self.json = ""
        self.broken = False
        if request.method == "POST":
            self.sent = message = json.loads(request.content)
            params = message.get("params") or {}
            self.rpc = {"id": message.get("id"), "method": message.get("method"), "tool": params.get("name")}


class _Body(http.AsyncByteStream):
    """Forwards a response body and records its text. Can turn a broken connection into a regular end."""

    def __init__(self, inner: Any, exchange: Exchange, field: str, record: bool, soften: bool) -> None:
        self.inner = inner
        self.exchange = exchange
        self.field = field
        self.record = record
        self.soften = soften

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            async for chunk in self.inner:
                if self.record:
                    text = getattr(self.exchange, self.field) + decoder.decode(chunk)
                    setattr(self.exchange, self.field, text)
                yield chunk
        except (http.ReadError, http.RemoteProtocolError):
            self.exchange.broken = True
            if not self.soften:
                raise

    async def aclose(self) -> None:
        await self.inner.aclose()


class Wire(http.AsyncBaseTransport):
    """Records every HTTP exchange of the client.

    With `soften`, an SSE body whose connection breaks ends as if the server had closed it. Both releases
    of the client need that to resume exactly once: see FINDINGS.md.
    """

    def __init__(self, *, record: bool, soften: bool) -> None:
        self.inner = http.AsyncHTTPTransport(limits=http.Limits(max_connections=None, max_keepalive_connections=20))
        self.exchanges: list[Exchange] = []
        self.record = record
        self.soften = soften

    async def handle_async_request(self, request: Any) -> Any:
        exchange = Exchange(request)
        self.exchanges.append(exchange)
        response = await self.inner.handle_async_request(request)
        exchange.status = response.status_code
        exchange.answered = response.headers
        is_sse = response.headers.get("content-type", "").startswith("text/event-stream")
        is_json = response.headers.get("content-type", "").startswith("application/json")
        if not is_sse and not (is_json and self.record):
            return response
        return http.Response(
            response.status_code,
            headers=response.headers,
            stream=_Body(response.stream, exchange, "sse" if is_sse else "json", self.record, self.soften and is_sse),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self.inner.aclose()

    def resumes(self) -> int:
        return sum(1 for e in self.exchanges if e.method == "GET" and e.last_event_id)

    def fresh_gets(self) -> int:
        return sum(1 for e in self.exchanges if e.method == "GET" and not e.last_event_id)


class Handlers:
    """The answers of the client and the notifications that it received."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.faults: list[str] = []
        self.sampled = 0
        self.elicited = 0
        self.rooted = 0

    async def sampling(self, _context: Any, params: Any) -> Any:
        self.sampled += 1
        messages = wire_form(params)["messages"]
        content = messages[0]["content"] if messages else {}
        if isinstance(content, list):
            content = content[0]
        return types.CreateMessageResult.model_validate(
            {
                "role": "assistant",
                "model": "outside-model",
                "stopReason": "endTurn",
                "content": {"type": "text", "text": f"heard {content.get('text', '')}"},
            }
        )

    async def elicitation(self, _context: Any, _params: Any) -> Any:
        self.elicited += 1
        return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})

    async def roots(self, _context: Any) -> Any:
        self.rooted += 1
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///outside/root", "name": "outside root"}]})

    async def message(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.faults.append(describe(message))
            return
        message = getattr(message, "root", message)
        if not hasattr(message, "method"):
            return
        form = wire_form(message)
        if form["method"].startswith("notifications/"):
            self.notes.append((form["method"], form.get("params") or {}))

    def messages(self) -> list[dict[str, Any]]:
        return [params for method, params in self.notes if method == "notifications/message"]


class Session:
    """One client session."""

    def __init__(self, session: Any, initialized: dict[str, Any], wire: Wire, handlers: Handlers) -> None:
        self.mcp = session
        self.initialized = initialized
        self.wire = wire
        self.handlers = handlers

    async def call(self, name: str, arguments: dict[str, Any], progress: Any = None) -> Any:
        return await self.mcp.call_tool(name, arguments, progress_callback=progress)

    async def set_level(self, level: str) -> None:
        await self.mcp.set_logging_level(level)

    def uri(self, value: str) -> Any:
        if MAJOR == 1:
            from pydantic import AnyUrl

            return AnyUrl(value)
        return value

    async def cancel(self, request_id: Any) -> None:
        """Sends `notifications/cancelled`, which 1.x does not do itself."""
        note = types.CancelledNotification.model_validate(
            {"method": "notifications/cancelled", "params": {"requestId": request_id, "reason": "enough"}}
        )
        await self.mcp.send_notification(types.ClientNotification(note) if MAJOR == 1 else note)


@contextlib.asynccontextmanager
async def connect(url: str, wire: Wire, handlers: Handlers, timeout: float):  # type: ignore[no-untyped-def]
    if MAJOR == 1:
        from datetime import timedelta

        read_timeout: Any = timedelta(seconds=timeout)
    else:
        read_timeout = timeout
    async with http.AsyncClient(transport=wire, timeout=http.Timeout(30, read=120)) as client:
        async with streamable.streamable_http_client(url, http_client=client) as streams:
            async with ClientSession(
                streams[0],
                streams[1],
                read_timeout_seconds=read_timeout,
                sampling_callback=handlers.sampling,
                elicitation_callback=handlers.elicitation,
                list_roots_callback=handlers.roots,
                message_handler=handlers.message,
            ) as session:
                initialized = wire_form(await session.initialize())
                yield Session(session, initialized, wire, handlers)


def run(main: Any, report: Report, limit: float) -> None:
    """Runs `main()` with a timeout and reports any exception."""

    async def bounded() -> None:
        try:
            with anyio.fail_after(limit):
                await main()
        except TimeoutError:
            report.fail("watchdog", f"the run did not end within {limit} s")
        except BaseException as error:
            report.fail("run", error)
        report.finish()

    anyio.run(bounded)
