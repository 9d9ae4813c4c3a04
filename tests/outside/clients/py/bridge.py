"""Clients of both eras through one gateway in front of several stdio servers.

usage: python bridge.py <legacy|modern> <base url> <server> ...

`modern` is 2026-07-28 and needs mcp 2.x. A server is one of SERVERS, at <base url>/servers/<server>/mcp. The checks are those of
bridge.mjs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import uuid
from typing import Any

import anyio

from common import (
    MAJOR, Handlers, Report, Wire, connect, equal, expect, http, run, sequence, streamable, types, until, wire_form,
)  # fmt: skip

LEVEL = "io.modelcontextprotocol/logLevel"
ROOT = "file:///outside/root"
FIELDS = {"name": "Ada Lovelace", "integer": 37, "username": "ada", "email": "ada@example.org", "color": "teal", "answer": "yes"}
Request = tuple[str, dict[str, Any], list[str]]


def request(tool: str, arguments: dict[str, Any], *expected: str) -> Request:
    return tool, arguments, list(expected)


# The tools of server-everything. Each entry is a request and the texts that its answer must have.
EVERYTHING: dict[str, Any] = {
    "echo": lambda label: request("echo", {"message": label}, f"Echo: {label}"),
    "progress": lambda steps: request("trigger-long-running-operation", {"duration": 0.2, "steps": steps}, f"Steps: {steps}."),
    "sampling": lambda label: request("trigger-sampling-request", {"prompt": label, "maxTokens": 20}, f"context: {label}", "heard "),
    "elicitation": lambda: request("trigger-elicitation-request", {}, "Ada Lovelace", "37"),
    "roots": lambda: request("get-roots-list", {}, ROOT),
    "completion": ("completable-prompt", "department", "S", ["Sales", "Support"]),
    "missing": ("demo://no/such/resource", None),
    "uri": lambda: f"demo://resource/dynamic/text/{random.randint(1, 10**9)}",
}
FULL = EVERYTHING | {
    "url": lambda url: request("ask-url", {"url": url}, f"accept {url}"),
    "together": lambda label: request("ask-together", {"label": label}, f"Ada Lovelace, heard sampling {label}, {ROOT}"),
    "rounds": lambda label: request("ask-in-rounds", {"label": label}, f"heard round 1 {label}, heard round 2 {label}"),
    "log": lambda: request("write-log", {"level": "info", "text": "a message"}, "logged"),
    "touch": lambda uri: [request("touch", {"uri": uri}, "touched")],
    "lists": lambda: request("change-lists", {}, "changed"),
    "wait": lambda label: request("wait", {"label": label}),
    "cancelled": lambda label: request("was-cancelled", {"label": label}),
}
RMCP: dict[str, Any] = {
    "echo": lambda label: request("echo", {"message": label}, label),
    "progress": lambda steps: request("burst", {"events": steps, "bytes": 8}, f"burst {steps} done"),
    "completion": ("test_prompt_with_arguments", "arg1", "par", ["paris", "park city"]),
    "missing": ("test://no-such-resource", -32602),
    "uri": lambda: "test://watched-resource",
    "touch": lambda _uri: [request("notify_all", {"kind": "updated"}, "notified")],
    "lists": lambda: request("test_trigger_tool_change", {}, "notified"),
    "wait": lambda _label: request("sleep", {"ms": 60_000}),
    "cancelled": lambda _label: request("counters", {}),
}
INPUT = "test_input_required_result_"
SERVERS: dict[str, dict[str, Any]] = {
    # From npm, sessions only.
    "everything": EVERYTHING
    | {
        "missing": ("demo://no/such/resource", -32602),
        "url": lambda url: request("trigger-url-elicitation", {"url": url}, "User completed", url),
        "url_by_error": lambda url: request("trigger-url-elicitation", {"url": url, "errorPath": True}, "User completed", url),
        "touch": lambda _uri: [
            request("toggle-subscriber-updates", {}, "Started"),
            request("toggle-subscriber-updates", {}, "Stopped"),
        ],
    },
    # TypeScript 2.x, 2026-07-28 only.
    "stateless": FULL,
    # The Python package. 2.x is told to use sessions.
    "python1": FULL,
    "python2": FULL,
    # Python 2.x, told to use 2026-07-28.
    "python2-stateless": FULL,
    # One program, told to use sessions, and told to use 2026-07-28.
    "rmcp": RMCP
    | {
        "sampling": lambda label: request("test_sampling", {"prompt": label}, f"heard {label}"),
        "elicitation": lambda: request("test_elicitation", {"message": "Who?"}, "action=accept", "ada@example.org"),
        "roots": lambda: request("ask", {"what": "roots"}, ROOT),
        "rounds": lambda _label: request("ask_many", {"rounds": 2}, "yes"),
        "log": lambda: request("log_burst", {"count": 1, "bytes": 4}, "logged 1"),
    },
    "rmcp-stateless": RMCP
    | {
        "sampling": lambda _label: request(f"{INPUT}sampling", {}, "The model says: heard What is the capital"),
        "elicitation": lambda: request(f"{INPUT}elicitation", {}, "Hello, Ada Lovelace!"),
        "roots": lambda: request(f"{INPUT}list_roots", {}, ROOT),
        "together": lambda _label: request(f"{INPUT}multiple_inputs", {}, "heard Generate a greeting", "Ada Lovelace", ROOT),
        "rounds": lambda _label: request(f"{INPUT}multi_round", {}, "Ada Lovelace likes teal."),
        "unlabelled": True,
    },
}

ERA, BASE, *NAMES = sys.argv[1:] if len(sys.argv) > 3 else ("", "", "")
if ERA not in ("legacy", "modern") or any(name not in SERVERS for name in NAMES):
    sys.exit(f"usage: python bridge.py <legacy|modern> <base url> <server> ...; servers: {', '.join(SERVERS)}")
MODERN = ERA == "modern"
if MODERN and MAJOR < 2:
    sys.exit("2026-07-28 needs mcp 2.x: 1.x knows sessions only")

report = Report()


class Recorder(Handlers):
    """Records questions and fills forms."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[str] = []
        self.urls: list[str] = []

    async def sampling(self, context: Any, params: Any) -> Any:
        answer = await super().sampling(context, params)
        self.questions.append(wire_form(answer)["content"]["text"].removeprefix("heard "))
        return answer

    async def elicitation(self, _context: Any, params: Any) -> Any:
        form = wire_form(params)
        if form.get("mode") == "url":
            self.urls.append(form["url"])
            return types.ElicitResult(action="accept")
        self.questions.append(form["message"])
        names = form["requestedSchema"]["properties"]
        return types.ElicitResult(action="accept", content={n: FIELDS[n] for n in names if n in FIELDS})

    def seen(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.notes if name == f"notifications/{method}"]


class Caller:
    """One client."""

    def __init__(self, client: Any, handlers: Recorder) -> None:
        self.client = client
        self.handlers = handlers

    async def call(self, made: Request, **options: Any) -> str:
        tool, arguments, expected = made
        result = wire_form(await self.client.call_tool(tool, arguments, **options))
        said = "\n".join(block.get("text", "") for block in result["content"])
        expect(not result.get("isError"), f"{tool} failed: {said}")
        for part in expected:
            expect(part in said, f"{tool}: {part!r} is not in {said}")
        return said

    def uri(self, value: str) -> Any:
        if MAJOR == 1:
            from pydantic import AnyUrl

            return AnyUrl(value)
        return value


@contextlib.asynccontextmanager
async def cuttable_proxy():  # type: ignore[no-untyped-def]
    """A TCP proxy in front of the gateway. Yields its URL, and a function that cuts all its connections for good."""
    target = http.URL(BASE)
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to_upstream = await asyncio.open_connection(target.host, target.port)
        writers.extend([writer, to_upstream])
        await asyncio.gather(copy(reader, to_upstream), copy(upstream, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)

    def cut_all() -> None:
        server.close()
        for writer in writers:
            writer.transport.abort()

    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", cut_all
    finally:
        cut_all()


@contextlib.asynccontextmanager
async def opened(server: str, base: str = BASE):  # type: ignore[no-untyped-def]
    url = f"{base}/servers/{server}/mcp"
    handlers, wire = Recorder(), Wire(record=False, soften=True)
    if not MODERN:
        async with connect(url, wire, handlers, 30) as session:
            yield Caller(session.mcp, handlers)
        return
    from mcp import Client

    async with http.AsyncClient(transport=wire, timeout=http.Timeout(30, read=120)) as client:
        transport = streamable.streamable_http_client(url, http_client=client)
        async with Client(
            transport,  # type: ignore[arg-type]
            mode="2026-07-28",
            read_timeout_seconds=30,
            sampling_callback=handlers.sampling,
            elicitation_callback=handlers.elicitation,
            list_roots_callback=handlers.roots,
            message_handler=handlers.message,
        ) as connected:
            yield Caller(connected, handlers)


async def serve(server: str) -> None:
    features = SERVERS[server]
    try:
        with anyio.fail_after(100):
            async with opened(server) as caller:
                await features_of(server, features, caller)
                if not features.get("unlabelled"):
                    await report.check(f"{server}: questions of two clients never cross", lambda: crossing(server, features), 30)
    except Exception as error:
        report.fail(f"{server}: client", error)


async def features_of(server: str, features: dict[str, Any], caller: Caller) -> None:
    client, handlers = caller.client, caller.handlers

    async def feature(key: str, body: Any) -> None:
        """A check of what this server offers."""
        if key in features:
            await report.check(f"{server}: {key}", lambda: body(features[key]), 30)

    async def lists() -> None:
        tools = [tool["name"] for tool in wire_form(await client.list_tools())["tools"]]
        expect(features["echo"]("x")[0] in tools, f"missing tools: {tools}")
        expect(wire_form(await client.list_prompts())["prompts"], "no prompts")
        expect(wire_form(await client.list_resources())["resources"], "no resources")

    async def echo(make: Any) -> None:
        for label in ["plain", 'héllo "wörld"\nline \U0001f980 \u2028', "x" * 100_000]:
            await caller.call(make(label))

    async def missing(entry: Any) -> None:
        uri, code = entry
        try:
            await client.read_resource(caller.uri(uri))
        except Exception as error:
            found = getattr(getattr(error, "error", None), "code", None)
            expect(isinstance(found, int), f"no JSON-RPC error: {error!r}")
            if MODERN and code:
                equal(found, code, "code")
        else:
            expect(False, "it was read")

    async def progress(make: Any) -> None:
        async def one(steps: int) -> None:
            seen: list[float] = []

            async def on_progress(done: float, _total: Any, _message: Any) -> None:
                seen.append(done)

            await caller.call(make(steps), progress_callback=on_progress)
            await until(lambda: len(seen) >= steps, 5, lambda: f"progress {seen}")
            sequence(seen, steps, "progress")

        async with anyio.create_task_group() as group:
            for steps in (4, 6, 9):
                group.start_soon(one, steps)

    async def completion(entry: Any) -> None:
        prompt, name, value, values = entry
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        found = wire_form(await client.complete(ref, {"name": name, "value": value}))
        equal(found["completion"]["values"], values, "values")

    async def sampling(make: Any) -> None:
        await caller.call(make(str(uuid.uuid4())))
        equal(len(handlers.questions), 1, "questions")

    async def elicitation(make: Any) -> None:
        before = len(handlers.questions)
        await caller.call(make())
        equal(len(handlers.questions) - before, 1, "questions")

    async def roots(make: Any) -> None:
        await caller.call(make())
        expect(handlers.rooted, "the client was not asked")

    async def url(make: Any) -> None:
        page = f"https://example.org/{uuid.uuid4()}"
        await caller.call(make(page))
        equal(handlers.urls[-1:], [page], "URL")

    async def url_by_error(make: Any) -> None:
        if not MODERN:
            return
        page, before = f"https://example.org/{uuid.uuid4()}", len(handlers.urls)
        await caller.call(make(page))
        equal([u.rstrip("/") for u in handlers.urls[before:]], ["https://modelcontextprotocol.io", page], "URLs")

    async def together(make: Any) -> None:
        before, rooted = len(handlers.questions), handlers.rooted
        await caller.call(make("together"))
        equal((len(handlers.questions) - before, handlers.rooted - rooted), (2, 1), "questions")

    async def rounds(make: Any) -> None:
        before = len(handlers.questions)
        await caller.call(make("rounds"))
        equal(len(handlers.questions) - before, 2, "questions")

    async def log(make: Any) -> None:
        async def at(level: str) -> None:
            if MODERN:
                await caller.call(make(), meta={LEVEL: level})
            else:
                await client.set_logging_level(level)
                await caller.call(make())

        async def arrives() -> bool:
            await at("debug")
            await anyio.sleep(0.1)
            return bool(handlers.seen("message"))

        # A log message names no call. While another client uses the same process, it reaches nobody.
        await until(arrives, 15, "no message at level debug")
        before = len(handlers.seen("message"))
        await at("error")
        if MODERN:
            await caller.call(make())
        await anyio.sleep(0.2)
        equal(len(handlers.seen("message")), before, "messages")

    async def touch(make: Any) -> None:
        uri = features["uri"]()

        def updated() -> bool:
            return any(params["uri"] == uri for params in handlers.seen("resources/updated"))

        async with contextlib.AsyncExitStack() as stack:
            if MODERN:
                await stack.enter_async_context(client.listen(resource_subscriptions=[uri]))
            else:
                await client.subscribe_resource(caller.uri(uri))
            for one in make(uri):
                await caller.call(one)
            await until(updated, 8, "no notifications/resources/updated")
        if not MODERN:
            await client.unsubscribe_resource(caller.uri(uri))

    async def changed_lists(make: Any) -> None:
        async with contextlib.AsyncExitStack() as stack:
            if MODERN:
                await stack.enter_async_context(client.listen(tools_list_changed=True))
            await caller.call(make())
            await until(lambda: handlers.seen("tools/list_changed"), 8, "no notifications/tools/list_changed")

    async def wait(make: Any) -> None:
        label = str(uuid.uuid4())

        async def was_cancelled() -> bool:
            said = await caller.call(features["cancelled"](label))
            return json.loads(said)["cancelled"] > 0 if said.startswith("{") else said == "true"

        async with anyio.create_task_group() as group:
            group.start_soon(caller.call, make(label))
            await anyio.sleep(0.3)
            group.cancel_scope.cancel()
        await until(was_cancelled, 15, "the server was not told")

    async def cut(make: Any) -> None:
        """CAN-03: a connection that is cut cancels its call, at the server too."""
        label = str(uuid.uuid4())

        async def was_cancelled() -> bool:
            said = await caller.call(features["cancelled"](label))
            return json.loads(said)["cancelled"] > before if said.startswith("{") else said == "true"

        said = await caller.call(features["cancelled"](label))
        before = json.loads(said)["cancelled"] if said.startswith("{") else 0
        failed: list[Exception] = []
        connected = anyio.Event()

        async def call(base: str) -> None:
            # The whole client may end with its connection.
            try:
                async with opened(server, base) as other:
                    connected.set()
                    await other.call(make(label))
            except Exception as error:
                failed.append(error)

        async with cuttable_proxy() as (base, cut_all), anyio.create_task_group() as group:
            group.start_soon(call, base)
            await connected.wait()
            await anyio.sleep(1)  # nothing tells when the server has the request
            cut_all()
            await until(was_cancelled, 15, "the server was not told")
            await until(lambda: bool(failed), 35, "the call did not fail")

    await report.check(f"{server}: lists", lists, 30)
    await feature("echo", echo)
    await feature("missing", missing)
    await feature("progress", progress)
    await feature("completion", completion)
    await feature("sampling", sampling)
    await feature("elicitation", elicitation)
    await feature("roots", roots)
    await feature("url", url)
    await feature("url_by_error", url_by_error)
    await feature("together", together)
    await feature("rounds", rounds)
    await feature("log", log)
    await feature("touch", touch)
    await feature("lists", changed_lists)
    # The client of 1.x does not tell the server that a call was given up.
    if MAJOR > 1:
        await feature("wait", wait)
    if MODERN and "wait" in features:
        await report.check(f"{server}: cut", lambda: cut(features["wait"]), 60)


async def crossing(server: str, features: dict[str, Any]) -> None:
    """Two clients with the same name and capabilities, so that they may share processes."""

    async def one(color: str) -> None:
        async with opened(server) as caller:
            async with anyio.create_task_group() as group:
                for n in range(3):
                    label = f"{color}-{n}-{uuid.uuid4()}"
                    group.start_soon(caller.call, features["sampling"](label))
                    group.start_soon(caller.call, features["echo"](label))
                    if "together" in features and n == 0:
                        group.start_soon(caller.call, features["together"](label))
            foreign = [question for question in caller.handlers.questions if f"{color}-" not in question]
            equal(foreign, [], f"questions of {color}")
            equal(len(caller.handlers.questions), 5 if "together" in features else 3, f"number of questions of {color}")

    async with anyio.create_task_group() as group:
        group.start_soon(one, "red")
        group.start_soon(one, "blue")


async def main() -> None:
    for server in NAMES:
        await serve(server)


run(main, report, 170)
