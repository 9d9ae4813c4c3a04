"""A third-party server behind the gateway: @modelcontextprotocol/server-everything, or server.py with the same features.

usage: python behind.py <url>                  every feature once; a URL that ends in /sse uses HTTP+SSE
       python behind.py <url> <calls> [seed]   calls through a proxy that cuts every SSE response

For the official Python client, 1.x or 2.x by the interpreter used.
"""

from __future__ import annotations

import contextlib
import random
import re
import sys
import time
from typing import Any

import anyio

from common import (
    MAJOR, Handlers, Report, Session, Wire, connect, describe, equal, expect, http, run, sequence, text, types, until, wire_form,
)  # fmt: skip
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client

ARGS = sys.argv[1:]
if len(ARGS) not in (1, 2, 3) or not all(argument.isdigit() for argument in ARGS[1:]):
    sys.exit("usage: python behind.py <url> [<calls> [seed]]")
URL = ARGS[0]
CALLS = int(ARGS[1]) if len(ARGS) > 1 else 0
SEED = int(ARGS[2]) if len(ARGS) > 2 else 1
OLD = URL.endswith("/sse")
CONCURRENCY = 6
WATCHED = "demo://resource/dynamic/text/7"
OTHER = "demo://resource/dynamic/text/8"

report = Report()
check = report.check


class Answering(Handlers):
    """Also records the prompts of its questions."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []

    async def sampling(self, context: Any, params: Any) -> Any:
        answer = await super().sampling(context, params)
        self.prompts.append(wire_form(answer)["content"]["text"])
        return answer

    async def elicitation(self, _context: Any, _params: Any) -> Any:
        self.elicited += 1
        return types.ElicitResult(action="accept", content={"name": "Ada Lovelace", "integer": 37})


@contextlib.asynccontextmanager
async def connect_old(wire: Wire, handlers: Handlers):  # type: ignore[no-untyped-def]
    def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
        return http.AsyncClient(transport=wire, headers=headers, timeout=timeout, auth=auth)

    read_timeout: Any = 30
    if MAJOR == 1:
        from datetime import timedelta

        read_timeout = timedelta(seconds=30)
    async with sse_client(URL, httpx_client_factory=client) as (read, write):
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


async def main() -> None:
    wire = Wire(record=CALLS == 0, soften=CALLS > 0)
    handlers = Answering()
    async with connect_old(wire, handlers) if OLD else connect(URL, wire, handlers, 30) as session:
        kit = Kit(session, handlers)
        await (cuts(kit, wire) if CALLS else features(kit, wire))

        async def no_faults() -> None:
            equal(handlers.faults[:5], [], "exceptions handed to the message handler")

        await check("no faults in the client", no_faults)


def all_text(result: Any) -> str:
    return "\n".join(block.get("text", "") for block in wire_form(result)["content"])


class Kit:
    """The tools of the server that report progress."""

    def __init__(self, session: Any, handlers: Answering) -> None:
        self.session = session
        self.handlers = handlers

    async def operate(self, duration: float, steps: int) -> None:
        seen: list[tuple[float, float | None]] = []

        async def progress(value: float, total: float | None, _message: str | None) -> None:
            seen.append((value, total))

        arguments = {"duration": duration, "steps": steps}
        result = await self.session.call("trigger-long-running-operation", arguments, progress)
        await anyio.sleep(0.05)  # callbacks are tasks of their own in 2.x
        equal(text(result), f"Long running operation completed. Duration: {duration:g} seconds, Steps: {steps}.", "result")
        sequence([value for value, _ in seen], steps, "progress")
        expect(all(total == steps for _, total in seen), f"a total is not {steps}")

    async def sample(self, prompt: str) -> None:
        heard = f"heard Resource trigger-sampling-request context: {prompt}"
        before = self.handlers.prompts.count(heard)
        answer = all_text(await self.session.call("trigger-sampling-request", {"prompt": prompt, "maxTokens": 20}))
        expect(f'{heard}"' in answer, answer)
        equal(self.handlers.prompts.count(heard) - before, 1, "questions")

    async def elicit(self) -> None:
        answer = all_text(await self.session.call("trigger-elicitation-request", {}))
        for part in ["Ada Lovelace", "37"]:
            expect(part in answer, answer)


async def features(kit: Kit, wire: Wire) -> None:
    session, handlers = kit.session, kit.handlers
    client, call = session.mcp, session.call

    def logs(part: str) -> int:
        return sum(1 for m in handlers.messages() if part in str(m["data"]))

    async def initialized() -> None:
        expect(session.initialized["serverInfo"]["name"], "no server name")
        for name in ["tools", "resources", "prompts", "logging", "completions"]:
            expect(name in session.initialized["capabilities"], f"capability {name} missing")

    async def ping() -> None:
        await client.send_ping()

    async def tools() -> None:
        found = wire_form(await client.list_tools())["tools"]
        wanted = {
            "echo", "get-sum", "trigger-long-running-operation", "trigger-sampling-request",
            "trigger-elicitation-request", "get-roots-list", "toggle-subscriber-updates", "toggle-simulated-logging",
        }  # fmt: skip
        equal(sorted(wanted - {tool["name"] for tool in found}), [], "missing")
        expect(all(tool["inputSchema"]["type"] == "object" for tool in found), "a tool without a schema")

    async def calls() -> None:
        message = 'héllo "wörld"\nsecond line \U0001f980 \u2028 end'
        equal(text(await call("echo", {"message": message})), f"Echo: {message}", "echo")
        large = "x" * 200_000
        expect(text(await call("echo", {"message": large})) == f"Echo: {large}", "200 kB differ")
        equal(text(await call("get-sum", {"a": 19, "b": 23})), "The sum of 19 and 23 is 42.", "sum")

    async def wrong_arguments() -> None:
        failed = True
        try:
            failed = wire_form(await call("get-sum", {"a": "x"})).get("isError") is True
        except Exception as error:  # the class has another name in each release
            expect(hasattr(error, "error"), f"not a JSON-RPC error: {describe(error)}")
        expect(failed, "wrong arguments were taken")

    async def at_once() -> None:
        async with anyio.create_task_group() as group:
            for i in range(10):
                group.start_soon(kit.operate, 0.3, 3 + i)

    async def elicitation() -> None:
        await kit.elicit()
        equal(handlers.elicited, 1, "questions")

    async def roots() -> None:
        answer = all_text(await call("get-roots-list", {}))
        expect("file:///outside/root" in answer and "outside root" in answer, answer)
        expect(handlers.rooted >= 1, "the client was not asked")

    async def questions() -> None:
        before = handlers.elicited
        async with anyio.create_task_group() as group:
            group.start_soon(kit.operate, 1, 10)
            group.start_soon(kit.sample, "first")
            group.start_soon(kit.elicit)
            group.start_soon(kit.sample, "second")
            group.start_soon(kit.elicit)
            for _ in range(10):
                group.start_soon(call, "echo", {"message": "x"})
        equal(handlers.elicited - before, 2, "elicitations")

    async def resources() -> None:
        uri = wire_form(await client.list_resources())["resources"][0]["uri"]
        contents = wire_form(await client.read_resource(session.uri(uri)))["contents"]
        equal(contents[0]["uri"], uri, "uri")
        expect(contents[0]["text"], "no text")
        found = {t["uriTemplate"] for t in wire_form(await client.list_resource_templates())["resourceTemplates"]}
        expect("demo://resource/dynamic/text/{resourceId}" in found, str(found))
        contents = wire_form(await client.read_resource(session.uri(WATCHED)))["contents"]
        expect(contents[0]["text"].startswith("Resource 7: This is a plaintext resource"), contents[0]["text"])

    async def no_resource() -> None:
        code = None
        try:
            await client.read_resource(session.uri("demo://no/such/resource"))
        except Exception as error:  # the class has another name in each release
            code = getattr(getattr(error, "error", None), "code", None)
        expect(isinstance(code, int), "no JSON-RPC error")

    async def levels() -> None:
        await session.set_level("debug")
        await client.subscribe_resource(session.uri(WATCHED))
        await until(lambda: logs(f"Subscribe Resource request for URI: {WATCHED}") == 1, 5, "no message")
        await session.set_level("error")
        await client.subscribe_resource(session.uri(OTHER))
        await anyio.sleep(0.2)
        equal(logs(OTHER), 0, "messages at level info")
        await session.set_level("debug")

    async def unasked() -> None:
        before = logs("message")
        await call("toggle-simulated-logging", {})
        await until(lambda: logs("message") > before, 5, "no message")
        await call("toggle-simulated-logging", {})

    async def subscriptions() -> None:
        def updated() -> list[str]:
            return [params["uri"] for method, params in handlers.notes if method == "notifications/resources/updated"]

        await client.unsubscribe_resource(session.uri(OTHER))
        await call("toggle-subscriber-updates", {})
        await until(updated, 5, "no notifications/resources/updated")
        await anyio.sleep(0.2)
        equal(updated(), [WATCHED], "updated")
        if not OLD:
            carriers = [e.method for e in wire.exchanges if "notifications/resources/updated" in e.sse]
            equal(carriers, ["GET"], "carried by")
        await call("toggle-subscriber-updates", {})
        await client.unsubscribe_resource(session.uri(WATCHED))
        await call("toggle-subscriber-updates", {})
        await anyio.sleep(0.3)
        equal(updated(), [WATCHED], "updated after unsubscribe")
        await call("toggle-subscriber-updates", {})

    async def prompts() -> None:
        names = {p["name"] for p in wire_form(await client.list_prompts())["prompts"]}
        equal(sorted({"simple-prompt", "args-prompt", "completable-prompt"} - names), [], "missing")
        got = wire_form(await client.get_prompt("args-prompt", {"city": "Oslo", "state": "Norway"}))
        equal(got["messages"][0]["content"]["text"], "What's weather in Oslo, Norway?", "text")

    async def completion() -> None:
        ref = types.PromptReference(type="ref/prompt", name="completable-prompt")
        departments = wire_form(await client.complete(ref, {"name": "department", "value": "S"}))
        equal(departments["completion"]["values"], ["Sales", "Support"], "departments")
        known = {"department": "Sales"}
        names = wire_form(await client.complete(ref, {"name": "name", "value": ""}, context_arguments=known))
        equal(names["completion"]["values"], ["David", "Eve", "Frank"], "names")

    async def cancellation() -> None:
        seen: list[float] = []

        async def progress(value: float, _total: float | None, _message: str | None) -> None:
            seen.append(value)

        async with anyio.create_task_group() as group:
            group.start_soon(call, "trigger-long-running-operation", {"duration": 20, "steps": 200}, progress)
            await until(lambda: len(seen) > 1, 5, "no progress")
            group.cancel_scope.cancel()
        if MAJOR == 1:
            ours = [e.rpc["id"] for e in wire.exchanges if e.rpc.get("tool") == "trigger-long-running-operation"]
            await session.cancel(ours[-1])
        await anyio.sleep(0.1)
        count = len(seen)
        await anyio.sleep(0.4)
        equal(len(seen), count, "progress")
        equal(text(await call("echo", {"message": "on"})), "Echo: on", "echo")

    async def streams() -> None:
        for e in wire.exchanges:
            tokens = set(re.findall(r'"progressToken":("?[^",}]*"?)', e.sse))
            expect(len(tokens) <= 1, f"one stream carried tokens {tokens}")
            standalone = e.method == "GET" and not e.last_event_id
            answers = re.search(r'^data: .*"(result|error)":', e.sse, re.MULTILINE)
            expect(not (standalone and answers), "a response on the standalone stream")

    await check("connect: server info, capabilities", initialized)
    await check("ping", ping)
    await check("tools/list: also those that depend on what the client can do", tools)
    await check("call echo, get-sum", calls)
    await check("call with wrong arguments: an error", wrong_arguments)
    await check("progress: 8 of 8, once and in order", lambda: kit.operate(0.4, 8))
    await check("progress: 10 calls at once, each its own", at_once)
    await check("sampling", lambda: kit.sample("two plus two"))
    await check("elicitation", elicitation)
    await check("roots", roots)
    await check("questions while other calls run", questions)
    await check("resources: list, templates, read", resources)
    await check("resources/read of what is not there: a JSON-RPC error", no_resource)
    await check("logging: a message at level debug, none at level error", levels)
    await check("logging: unasked, from a call that has ended or not", unasked)
    await check("subscriptions: updated once, of what is subscribed to, and not after unsubscribe", subscriptions)
    await check("prompts: list, get", prompts)
    await check("completion, also with what is known already", completion)
    await check("cancellation: nothing more is heard of the call, and the session goes on", cancellation)
    if not OLD:
        await check("each progress token on one stream only, no response on the standalone GET stream", streams)


async def cuts(kit: Kit, wire: Wire) -> None:
    dice = random.Random(SEED)
    plan: list[tuple[str, Any]] = []
    for index in range(CALLS):
        die, steps = dice.random(), dice.randint(8, 30)
        if die < 0.6:
            plan.append(("operate", (dice.randint(10, 30) * steps / 1000, steps)))
        elif die < 0.8:
            plan.append(("sample", (f"{SEED}-{index}.",)))
        else:
            plan.append(("elicit", ()))
    wrong: list[str] = []
    queue = iter(plan)

    async def worker() -> None:
        for kind, arguments in queue:
            try:
                await getattr(kit, kind)(*arguments)
            except Exception as error:
                wrong.append(f"{kind} {arguments}: {describe(error)}")

    started = time.monotonic()
    async with anyio.create_task_group() as group:
        for _ in range(CONCURRENCY):
            group.start_soon(worker)
    elapsed = int((time.monotonic() - started) * 1000)
    for line in wrong[:20]:
        report.fail("call", line)

    async def right() -> None:
        equal(len(wrong), 0, "wrong")

    async def elicited() -> None:
        equal(kit.handlers.elicited, sum(1 for kind, _ in plan if kind == "elicit"), "questions")

    async def sampled() -> None:
        prompts = kit.handlers.prompts
        equal(len(prompts), sum(1 for kind, _ in plan if kind == "sample"), "questions")
        equal(len(set(prompts)), len(prompts), "different ones")

    async def kept_cursor() -> None:
        equal(wire.fresh_gets(), 1, "GETs without Last-Event-ID")

    async def was_cut() -> None:
        expect(wire.resumes() >= CALLS / 4, f"only {wire.resumes()} resumptions in {CALLS} calls: is the proxy cutting?")

    await check(f"{CALLS} calls: results right, progress 1..N once and in order", right)
    await check("elicitations: each asked once", elicited)
    await check("samplings: each asked once", sampled)
    await check("the client never lost its cursor", kept_cursor)
    await check("streams were cut and resumed", was_cut)
    print(f"info {CALLS} calls in {elapsed} ms, {wire.resumes()} resumptions, seed {SEED}", flush=True)


run(main, report, 120)
