"""The fixture server without Streamable HTTP: over HTTP+SSE of 2024-11-05, and over stdin and stdout (mcp 1.x or 2.x).

usage: python old.py sse <url>
       python old.py stdio <program>
       python old.py stdio-modern <program>     revision 2026-07-28, mcp 2.x

`stdio` starts `<program> --stdio`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

import anyio

from common import MAJOR, Handlers, Report, Session, Wire, equal, expect, http, run, sequence, text, types, until, wire_form
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client

if len(sys.argv) != 3 or sys.argv[1] not in ("sse", "stdio", "stdio-modern"):
    sys.exit("usage: python old.py <sse|stdio|stdio-modern> <url|program>")
HOW, WHERE = sys.argv[1:]
if HOW == "stdio-modern" and MAJOR < 2:
    sys.exit("stdio-modern needs mcp 2.x: 1.x knows sessions only")

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
WATCHED = "test://watched-resource"
MESSAGE = 'héllo "wörld"\nsecond line \U0001f980 \u2028 end'

report = Report()
check = report.check
wire = Wire(record=False, soften=False)


class Tap:
    """A stream of the transport that records every message, in order, as `(sent or got, message)`."""

    def __init__(self, inner: Any, log: list[tuple[str, dict[str, Any]]]) -> None:
        self.inner = inner
        self.log = log

    def note(self, what: str, item: Any) -> Any:
        if not isinstance(item, Exception):
            self.log.append((what, item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)))
        return item

    async def send(self, item: Any) -> None:
        await self.inner.send(self.note("sent", item))

    async def receive(self) -> Any:
        return self.note("got", await self.inner.receive())

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return self.note("got", await self.inner.__anext__())

    async def __aenter__(self) -> Any:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self.inner.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Shared(http.AsyncBaseTransport):
    """One recorder for all sessions of the run. Closing a session leaves it open."""

    async def handle_async_request(self, request: Any) -> Any:
        return await wire.handle_async_request(request)


def http_client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
    return http.AsyncClient(transport=Shared(), headers=headers, timeout=timeout, auth=auth)


@contextlib.asynccontextmanager
async def transport(log: list[Any]):  # type: ignore[no-untyped-def]
    if HOW == "sse":
        inner = sse_client(WHERE, httpx_client_factory=http_client)
    else:
        inner = stdio_client(StdioServerParameters(command=WHERE, args=["--stdio"]))
    async with inner as (read, write):
        yield Tap(read, log), Tap(write, log)


def ids(log: list[Any], what: str, test: Any) -> list[Any]:
    return [m["id"] for side, m in log if side == what and "id" in m and test(m)]


async def check_log(log: list[Any]) -> None:
    """Invariants of every run, checked in the recorded messages."""

    async def once() -> None:
        cancelled = {m["params"]["requestId"] for side, m in log if side == "sent" and m.get("method") == "notifications/cancelled"}
        asked = ids(log, "sent", lambda m: "method" in m)
        answered = ids(log, "got", lambda m: "method" not in m)
        equal(len(set(answered)), len(answered), "answers and different ids in them")
        equal([i for i in answered if i not in asked], [], "answers to nothing")
        equal([i for i in asked if i not in answered and i not in cancelled], [], "unanswered")

    async def between() -> None:
        tokens: dict[Any, Any] = {}
        seen = 0
        for side, m in log:
            token = ((m.get("params") or {}).get("_meta") or {}).get("progressToken")
            if side == "sent" and token is not None and "id" in m:
                tokens[token] = m["id"]
            if side == "got" and "method" not in m:
                tokens = {key: value for key, value in tokens.items() if value != m["id"]}
            if side == "got" and m.get("method") == "notifications/progress":
                seen += 1
                expect(m["params"]["progressToken"] in tokens, f"progress for a call that does not run: {m}")
        expect(seen >= 100, f"only {seen} progress notifications")

    await check("every request was answered once, and nothing else was", once)
    await check("progress comes between its request and its response, to the right token", between)


async def burst(call: Any, count: int, **extra: Any) -> None:
    seen: list[tuple[float, float | None]] = []

    async def progress(value: float, total: float | None, _message: str | None) -> None:
        seen.append((value, total))

    result = await call("burst", {"events": count, "bytes": 48, **extra}, progress_callback=progress)
    await anyio.sleep(0.01)
    equal(text(result), f"burst {count} done", "result")
    sequence([value for value, _ in seen], count, "progress")
    expect(all(total == count for _, total in seen), f"a total is not {count}")


async def bursts(call: Any) -> None:
    async with anyio.create_task_group() as group:
        for i in range(20):

            async def one(count: int) -> None:
                await burst(call, count, delay_us=2000)

            group.start_soon(one, 10 + i)


async def cancellation(call: Any, log: list[Any], cancel: Any) -> None:
    """`cancel` sends the notification for a request id where the client does not do so itself."""

    async def counters() -> dict[str, int]:
        return json.loads(text(await call("counters", {})))

    async def several(count: int, pause: Any) -> None:
        """The server may never start a call that is cancelled early. It must cancel every started call, and none may start
        later."""
        start = await counters()
        for i in range(count):
            async with anyio.create_task_group() as group:
                group.start_soon(call, "sleep", {"ms": 30_000})
                await pause(start["started"] + i)
                group.cancel_scope.cancel()
            if cancel:
                await cancel(ids(log, "sent", lambda m: (m.get("params") or {}).get("name") == "sleep")[-1])

        seen: dict[str, int] = {}

        async def since() -> dict[str, int]:
            return {name: value - start[name] for name, value in (await counters()).items()}

        async def stopped() -> bool:
            seen.update(await since())
            return seen["started"] >= count / 10 and seen["cancelled"] == seen["started"]

        await until(stopped, 5, lambda: f"counters show too few cancellations: {seen}")
        await anyio.sleep(0.2)
        equal(await since(), {**seen, "finished": 0}, "counters a moment later")

    async def stops() -> None:
        async def started(before: int) -> None:
            async def more() -> bool:
                return (await counters())["started"] > before

            await until(more, 5, "sleep did not start")

        await several(1, started)

    async def unanswered() -> None:
        start = len(log)
        await several(30, lambda _: anyio.sleep(0.005))
        await anyio.sleep(0.1)
        slept = ids(log, "sent", lambda m: (m.get("params") or {}).get("name") == "sleep")
        answers = [m for side, m in log[start:] if side == "got" and "method" not in m and m["id"] in slept]
        equal(len(answers), 0, f"answers to cancelled calls, such as {json.dumps(answers[:1])}")

    await check("cancellation: sleep stops", stops)
    await check("cancellation: 30 more, none is answered", unanswered)


@contextlib.asynccontextmanager
async def connect(handlers: Handlers, log: list[Any]):  # type: ignore[no-untyped-def]
    read_timeout: Any = 30
    if MAJOR == 1:
        from datetime import timedelta

        read_timeout = timedelta(seconds=30)
    async with transport(log) as (read, write):
        async with ClientSession(
            read,
            write,
            read_timeout_seconds=read_timeout,
            sampling_callback=handlers.sampling,
            elicitation_callback=handlers.elicitation,
            list_roots_callback=handlers.roots,
            message_handler=handlers.message,
        ) as session:
            yield Session(session, wire_form(await session.initialize()), wire, handlers)


async def sessions() -> None:
    handlers = Handlers()
    log: list[Any] = []
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(connect(handlers, log))
        await session_checks(session, handlers, log)
        await check_log(log)
        if HOW == "sse":
            await check("one GET, every POST 202, to one endpoint", exchanges)
            await check("two sessions at once: each hears its own", lambda: two(session, handlers))
        start = time.monotonic()
    took = time.monotonic() - start

    async def gone() -> None:
        url = next(e.url for e in wire.exchanges if e.method == "POST")
        status = 0

        async def late() -> bool:
            nonlocal status
            async with http.AsyncClient(timeout=5) as client:
                status = (await client.post(url, json={"jsonrpc": "2.0", "id": "late", "method": "ping"})).status_code
            return status == 404

        await until(late, 5, lambda: f"POST after close is answered {status}")

    async def ended() -> None:
        # The client closes stdin and waits 2 s before it sends a signal.
        expect(took < 1.5, f"closing took {took:.1f} s")

    async def ended_while_busy() -> None:
        async with anyio.create_task_group() as group:
            async with connect(Handlers(), []) as second:
                group.start_soon(quietly, second.call("sleep", {"ms": 30_000}))
                await anyio.sleep(0.3)
                start = time.monotonic()
            expect(time.monotonic() - start < 1.5, f"closing took {time.monotonic() - start:.1f} s")
            group.cancel_scope.cancel()

    if HOW == "sse":
        await check("raw: after close the endpoint is gone", gone)
    else:
        await check("close: the process ends by itself", ended)
        await check("close while a call runs: the process ends by itself", ended_while_busy)


async def quietly(awaitable: Any) -> None:
    with contextlib.suppress(Exception):
        await awaitable


async def exchanges() -> None:
    posts = [e for e in wire.exchanges if e.method == "POST"]
    equal([e.status for e in wire.exchanges if e.method == "GET"], [200], "GETs")
    equal({e.status for e in posts}, {202}, "statuses of POSTs")
    equal(len({e.url for e in posts}), 1, "endpoints")


async def two(session: Any, handlers: Handlers) -> None:
    def heard(by: Handlers) -> list[str]:
        return [m["data"]["push"] for m in by.messages() if isinstance(m["data"], dict) and m["data"].get("push") in ("p", "q")]

    others = Handlers()
    async with connect(others, []) as second:
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "push", {"count": 3, "tag": "p"})
            group.start_soon(second.call, "push", {"count": 3, "tag": "q"})
        await until(lambda: len(heard(handlers) + heard(others)) >= 6, 5, lambda: f"{heard(handlers)} {heard(others)}")
        await anyio.sleep(0.2)
        equal([heard(handlers), heard(others)], [["p"] * 3, ["q"] * 3], "heard")
    equal(text(await session.call("echo", {"message": "still here"})), "still here", "the first session")


async def session_checks(session: Any, handlers: Handlers, log: list[Any]) -> None:
    client = session.mcp
    call = client.call_tool
    messages = handlers.messages

    async def initialized() -> None:
        wanted = next(m for _, m in log if m.get("method") == "initialize")["params"]["protocolVersion"]
        print(f"info asked for {wanted}, got {session.initialized['protocolVersion']}")
        expect(session.initialized["protocolVersion"][:4] in ("2024", "2025"), session.initialized["protocolVersion"])
        expect(session.initialized["serverInfo"]["name"], "no server name")
        for name in ["tools", "resources", "prompts", "logging"]:
            expect(name in session.initialized["capabilities"], f"capability {name} missing")

    async def ping() -> None:
        await client.send_ping()

    async def tools() -> None:
        names = {t["name"] for t in wire_form(await client.list_tools())["tools"]}
        wanted = {"echo", "burst", "sleep", "log_burst", "push", "notify_self", "ask", "ask_many", "counters", "test_sampling", "test_elicitation"}
        equal(sorted(wanted - names), [], "missing")

    async def echo() -> None:
        equal(text(await call("echo", {"message": MESSAGE})), MESSAGE, "echo")

    async def echo_large() -> None:
        expect(text(await call("echo", {"message": "x" * 200_000})) == "x" * 200_000, "differs")

    async def log_burst() -> None:
        before = len(messages())
        equal(text(await call("log_burst", {"count": 10})), "logged 10", "result")
        await anyio.sleep(0.05)
        numbers = [m["data"]["n"] for m in messages()[before:] if m.get("logger") == "fixture"]
        expect(numbers and numbers[0] in (0, 1), f"n: {numbers}")
        equal(numbers, list(range(numbers[0], numbers[0] + 10)), "n")

    async def level_filters() -> None:
        await session.set_level("error")
        before = len(messages())
        await call("log_burst", {"count": 5})
        await anyio.sleep(0.2)
        count = len(messages()) - before
        await session.set_level("debug")
        equal(count, 0, "info messages at level error")

    async def sampling() -> None:
        equal(text(await call("test_sampling", {"prompt": "two plus two"})), "LLM response: heard two plus two", "text")
        equal(handlers.sampled, 1, "questions")

    async def elicitation() -> None:
        answer = text(await call("test_elicitation", {"message": "who are you"}))
        for part in ["accept", "ada", "ada@example.org"]:
            expect(part in answer, answer)
        equal(handlers.elicited, 1, "questions")

    async def roots() -> None:
        answer = json.loads(text(await call("ask", {"what": "roots"})))
        equal(answer["roots"][0]["uri"], "file:///outside/root", "root")
        equal(handlers.rooted, 1, "questions")

    async def ask_many() -> None:
        before = handlers.elicited
        answers = json.loads(text(await call("ask_many", {"rounds": 3})))
        equal([a["action"] for a in answers], ["accept"] * 3, "answers")
        equal(handlers.elicited - before, 3, "questions")

    async def subscribe() -> None:
        def updates() -> int:
            return sum(1 for method, params in handlers.notes if method.endswith("resources/updated") and params["uri"] == WATCHED)

        await client.subscribe_resource(session.uri(WATCHED))
        await until(lambda: updates() >= 1, 10, "no notifications/resources/updated within 10 s")
        await client.unsubscribe_resource(session.uri(WATCHED))
        await anyio.sleep(0.1)
        before = updates()
        await anyio.sleep(3.5)
        equal(updates(), before, "updates after unsubscribe")

    async def arrives_once(read: Any, count: int, what: str) -> None:
        await until(lambda: len(read()) >= count, 8, lambda: f"{what}: got {read()}")
        await anyio.sleep(0.2)
        seen = read()
        first = 0 if seen[0] == 0 else 1
        equal(seen, list(range(first, first + count)), what)

    async def push() -> None:
        equal(text(await call("push", {"count": 5, "tag": "x"})), "pushed 5", "result")
        await arrives_once(
            lambda: [m["data"]["n"] for m in messages() if isinstance(m["data"], dict) and m["data"].get("push") == "x"], 5, "n"
        )

    async def notify_self() -> None:
        equal(text(await call("notify_self", {"events": 5, "tag": "y"})), "notified 5", "result")
        await arrives_once(
            lambda: [int(m["data"].split(" ")[1]) for m in messages() if isinstance(m["data"], str) and m["data"].startswith("y ")], 5, "i"
        )

    async def notify_all() -> None:
        def changes() -> int:
            return sum(1 for method, _ in handlers.notes if method == "notifications/tools/list_changed")

        await call("notify_all", {"kind": "tools"})
        await until(lambda: changes() > 0, 5, "no tools/list_changed")
        await anyio.sleep(0.2)
        equal(changes(), 1, "changes")

    async def error_response() -> None:
        code = None
        try:
            await client.read_resource(session.uri("test://no-such-resource"))
        except Exception as error:  # the class has another name in each release
            code = getattr(getattr(error, "error", None), "code", None)
        expect(isinstance(code, int) and code < -32000, f"no JSON-RPC error: {code}")

    async def no_faults() -> None:
        equal(handlers.faults, [], "exceptions handed to the message handler")

    await check("initialize", initialized)
    await check("ping", ping)
    await check("tools/list", tools)
    await check("call echo", echo)
    await check("call echo, 200 kB", echo_large)
    await check("burst: 20 progress notifications, once and in order", lambda: burst(call, 20))
    await check("burst: paced progress notifications", lambda: burst(call, 20, delay_us=5000))
    await check("log_burst: 10 log messages", log_burst)
    await check("logging/setLevel filters", level_filters)
    await check("sampling: test_sampling", sampling)
    await check("elicitation: test_elicitation", elicitation)
    await check("roots: ask", roots)
    await check("ask_many: 3 rounds", ask_many)
    await check("resources/subscribe, updated, unsubscribe", subscribe, 30)
    await check("push: 5 messages, once, in order", push)
    await check("notify_self: 5 messages, once, in order", notify_self)
    await check("notify_all tools: list_changed, once", notify_all)
    await check("error response: unknown resource", error_response)
    await cancellation(call, log, session.cancel if MAJOR == 1 else None)
    await check("20 bursts at once: progress stays with its call", lambda: bursts(call), 40)
    await check("ping at the end", ping)
    await check("no faults in the client", no_faults)


class Asked(Handlers):
    """Answers a form with a value for each of its fields."""

    async def elicitation(self, _context: Any, params: Any) -> Any:
        self.elicited += 1
        return types.ElicitResult(action="accept", content={n: f"a {n}" for n in wire_form(params)["requestedSchema"]["properties"]})


@contextlib.asynccontextmanager
async def modern_client(mode: str, handlers: Handlers, log: list[Any]):  # type: ignore[no-untyped-def]
    from mcp import Client

    async with Client(
        transport(log),  # type: ignore[arg-type]
        mode=mode,
        read_timeout_seconds=30,
        sampling_callback=handlers.sampling,
        elicitation_callback=handlers.elicitation,
        list_roots_callback=handlers.roots,
        message_handler=handlers.message,
    ) as client:
        yield client


async def modern() -> None:
    handlers = Asked()
    log: list[Any] = []
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(modern_client("auto", handlers, log))
        await modern_checks(client, handlers, log)
        await check_log(log)
        start = time.monotonic()
    took = time.monotonic() - start

    async def ended() -> None:
        expect(took < 1.5, f"closing took {took:.1f} s")

    async def no_faults() -> None:
        equal(handlers.faults, [], "exceptions handed to the message handler")

    await check("close: the process ends by itself", ended)
    await check("no faults in the client", no_faults)


async def modern_checks(client: Any, handlers: Handlers, log: list[Any]) -> None:
    from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

    call = client.call_tool

    async def discovered() -> None:
        equal(client.protocol_version, VERSION, "negotiated")
        equal([m["method"] for side, m in log if side == "sent"], ["server/discover"], "requests of the client while connecting")
        expect("tools" in wire_form(client.server_capabilities), "no tools")

    async def pinned() -> None:
        async with modern_client(VERSION, Asked(), []) as second:
            equal(text(await second.call_tool("echo", {"message": "x"})), "x", "first request of all")

    async def tools() -> None:
        names = {t["name"] for t in wire_form(await client.list_tools())["tools"]}
        equal(sorted({"echo", "burst", "ask", "ask_many", "sleep", "notify_all"} - names), [], "missing")

    async def echo() -> None:
        equal(text(await call("echo", {"message": MESSAGE})), MESSAGE, "echo")

    async def log_burst() -> None:
        async def logged(level: str | None) -> list[int]:
            before = len(handlers.messages())
            await call("log_burst", {"count": 10}, meta={f"{META}logLevel": level} if level else None)
            await anyio.sleep(0.1)
            return [m["data"]["n"] for m in handlers.messages()[before:]]

        numbers = await logged("info")
        expect(numbers and numbers[0] in (0, 1), f"n: {numbers}")
        equal(numbers, list(range(numbers[0], numbers[0] + 10)), "n")
        equal(await logged(None), [], "without a level")

    async def rounds(tool: str, arguments: dict[str, Any], count: int) -> Any:
        """Calls `tool`. Each of its `count` questions is a new request with the echoed state."""
        before, start = handlers.elicited, len(log)
        said = json.loads(text(await call(tool, arguments)))
        equal(handlers.elicited - before, count, "questions")
        legs = [m for side, m in log[start:] if side == "sent" and m["params"].get("name") == tool]
        results = [next(m["result"] for side, m in log if side == "got" and m.get("id") == leg["id"]) for leg in legs]
        equal([r["resultType"] for r in results], ["input_required"] * count + ["complete"], "result types")
        for result, leg in zip(results, legs[1:]):
            equal(leg["params"].get("requestState"), result.get("requestState"), "state")
        return said

    async def ask() -> None:
        equal((await rounds("ask", {"what": "elicitation"}, 1))["action"], "accept", "action")

    async def ask_many() -> None:
        equal([a["action"] for a in await rounds("ask_many", {"rounds": 3}, 3)], ["accept"] * 3, "answers")

    async def listen() -> None:
        start = len(log)
        seen: list[Any] = []

        def lists() -> int:
            return sum(1 for e in seen if isinstance(e, ToolsListChanged))

        def raw() -> list[dict[str, Any]]:
            return [m for side, m in log[start:] if side == "got" and "method" in m]

        async with anyio.create_task_group() as group:

            async def collect(subscription: Any) -> None:
                async for event in subscription:
                    seen.append(event)

            async with client.listen(tools_list_changed=True, resource_subscriptions=[WATCHED]) as subscription:
                group.start_soon(collect, subscription)
                equal(wire_form(subscription.honored), {"toolsListChanged": True, "resourceSubscriptions": [WATCHED]}, "acknowledged")
                for count in (1, 2):
                    await call("notify_all", {"kind": "tools"})
                    await until(lambda: lists() >= count, 5, "no tools/list_changed")
                    await anyio.sleep(0.1)
                    equal(lists(), count, "changes")
                await call("notify_all", {"kind": "prompts"})
                await call("notify_all", {"kind": "updated"})
                await until(lambda: any(isinstance(e, ResourceUpdated) and e.uri == WATCHED for e in seen), 10, "no resources/updated")
            group.cancel_scope.cancel()
        request = next(m["id"] for side, m in log[start:] if side == "sent" and m["method"] == "subscriptions/listen")
        equal(raw()[0]["method"], "notifications/subscriptions/acknowledged", "first")
        equal({m["params"]["_meta"][f"{META}subscriptionId"] for m in raw()}, {request}, "subscription ids")
        equal([m for m in raw() if "prompts" in m["method"]], [], "changes nobody asked for")
        await anyio.sleep(0.1)
        before = len(raw())
        await call("notify_all", {"kind": "tools"})
        await anyio.sleep(0.3)
        equal(raw()[before:], [], "messages after close")

    async def plain() -> None:
        equal([m for side, m in log if side == "got" and "method" in m and "id" in m], [], "requests from the server")
        results = {m["result"].get("resultType") for side, m in log if side == "got" and "result" in m}
        equal(results, {"complete", "input_required"}, "result types")

    await check("connect auto: discover, revision, capabilities", discovered)
    await check("connect pinned, without a probe", pinned)
    await check("tools/list", tools)
    await check("call echo", echo)
    await check("burst: 20 progress notifications, once and in order", lambda: burst(call, 20))
    await check("20 bursts at once: progress stays with its call", lambda: bursts(call), 40)
    await check("log_burst: 10 messages at level info, none without", log_burst)
    await check("ask elicitation: one round", ask)
    await check("ask_many: 3 rounds", ask_many)
    await check("subscriptions/listen: acknowledged, its own changes once, silent after close", listen, 30)
    await cancellation(call, log, None)
    await check("no requests from the server, a resultType in every result", plain)


run(modern if HOW == "stdio-modern" else sessions, report, 120)
