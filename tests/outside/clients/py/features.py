"""Every feature of the fixture server through one session of the official Python client (mcp 1.x or 2.x).

usage: python features.py <url> [--gateway [--nodes]]

With --gateway the server is a child of the gateway: its lines do not tell which messages belong to the call that runs.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from typing import Any

import anyio

from common import MAJOR, Handlers, Report, Wire, connect, equal, expect, http, run, sequence, text, types, until, wire_form

GATEWAY = "--gateway" in sys.argv[2:]
# Several gateways: the one with the child cannot close a connection of another one.
NODES = "--nodes" in sys.argv[2:]
if len(sys.argv) != 2 + GATEWAY + NODES:
    sys.exit("usage: python features.py <url> [--gateway [--nodes]]")
URL = sys.argv[1]

report = Report()
check = report.check


async def main() -> None:
    wire = Wire(record=True, soften=False)
    handlers = Handlers()
    ended = ""
    async with connect(URL, wire, handlers, 30) as session:
        await checks(session, wire, handlers)
        ended = next(e.session for e in wire.exchanges if e.session)

    async def terminated() -> None:
        statuses = [e.status for e in wire.exchanges if e.method == "DELETE"]
        expect(len(statuses) == 1 and 200 <= statuses[0] < 300, f"DELETE answered {statuses}")
        async with http.AsyncClient() as client:
            response = await client.post(
                URL,
                json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
                headers={
                    "accept": "application/json, text/event-stream",
                    "mcp-session-id": ended,
                    "mcp-protocol-version": "2025-11-25",
                },
            )
        equal(response.status_code, 404, "POST after DELETE")

    await check("terminate session and close", terminated)


async def checks(session: Any, wire: Wire, handlers: Handlers) -> None:
    client = session.mcp
    call = session.call
    messages = handlers.messages

    async def burst(events: int, **extra: Any) -> None:
        seen: list[tuple[float, float | None]] = []

        async def progress(value: float, total: float | None, _message: str | None) -> None:
            seen.append((value, total))

        result = await call("burst", {"events": events, "bytes": 48, **extra}, progress)
        await anyio.sleep(0.01)
        equal(text(result), f"burst {events} done", "result")
        sequence([value for value, _ in seen], events, "progress")
        expect(all(total == events for _, total in seen), f"a total is not {events}")

    async def initialized() -> None:
        expect(session.initialized["serverInfo"]["name"], "no server name")
        caps = session.initialized["capabilities"]
        for name in ["tools", "resources", "prompts", "logging", "completions"]:
            expect(name in caps, f"capability {name} missing: {caps}")
        await until(lambda: any(e.session for e in wire.exchanges), 5, "no session id")

    async def revision() -> None:
        equal(session.initialized["protocolVersion"], "2025-11-25", "negotiated")

    async def get_opens() -> None:
        await until(lambda: any(e.method == "GET" and e.status == 200 for e in wire.exchanges), 5, "no GET answered 200")

    async def ping() -> None:
        await client.send_ping()

    async def tools() -> None:
        names = {t["name"] for t in wire_form(await client.list_tools())["tools"]}
        wanted = {
            "echo", "burst", "sleep", "log_burst", "push", "notify_all", "notify_self", "ask", "ask_many",
            "close_connection", "counters", "test_simple_text", "test_image_content", "test_error_handling",
            "test_sampling", "test_elicitation", "test_reconnection",
        }  # fmt: skip
        equal(sorted(wanted - names), [], "missing")

    async def resources() -> None:
        uris = {r["uri"] for r in wire_form(await client.list_resources())["resources"]}
        equal(sorted({"test://static-text", "test://watched-resource"} - uris), [], "missing")

    async def templates() -> None:
        found = {t["uriTemplate"] for t in wire_form(await client.list_resource_templates())["resourceTemplates"]}
        expect("test://template/{id}/data" in found, str(found))

    async def prompts() -> None:
        names = {p["name"] for p in wire_form(await client.list_prompts())["prompts"]}
        equal(sorted({"test_simple_prompt", "test_prompt_with_arguments"} - names), [], "missing")

    async def echo() -> None:
        message = 'héllo "wörld"\nsecond line \U0001f980 \u2028 end'
        equal(text(await call("echo", {"message": message})), message, "echo")

    async def echo_large() -> None:
        message = "x" * 200_000
        expect(text(await call("echo", {"message": message})) == message, "differs")

    async def simple_text() -> None:
        equal(text(await call("test_simple_text", {})), "This is a simple text response for testing.", "text")

    async def image() -> None:
        block = wire_form(await call("test_image_content", {}))["content"][0]
        equal([block["type"], block["mimeType"]], ["image", "image/png"], "block")
        equal(base64.b64decode(block["data"])[1:4], b"PNG", "signature")

    async def tool_error() -> None:
        result = await call("test_error_handling", {})
        equal(wire_form(result).get("isError"), True, "isError")
        equal(text(result), "This tool intentionally returns an error for testing", "text")

    async def log_burst() -> None:
        before = len(messages())
        equal(text(await call("log_burst", {"count": 10})), "logged 10", "result")
        await anyio.sleep(0.05)
        mine = [m for m in messages()[before:] if m.get("logger") == "fixture"]
        numbers = [m["data"]["n"] for m in mine]
        expect(numbers and numbers[0] in (0, 1), f"n: {numbers}")
        equal(numbers, list(range(numbers[0], numbers[0] + 10)), "n")
        carriers = [[e.method, e.rpc.get("tool")] for e in wire.exchanges if '"logger":"fixture"' in e.sse and '"pad"' in e.sse]
        equal(carriers, [["POST", "log_burst"]], "streams that carried them")

    async def levels() -> None:
        for level in ["error", "warning", "debug", "info"]:
            await session.set_level(level)

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

    async def request_streams() -> None:
        pattern = re.compile(r'"method":"(sampling/createMessage|elicitation/create|roots/list)"')
        carriers = [e.method for e in wire.exchanges if pattern.search(e.sse)]
        equal(carriers, ["POST"] * 4, "streams that carried server requests")

    async def read_static() -> None:
        contents = wire_form(await client.read_resource(session.uri("test://static-text")))["contents"]
        equal(contents[0]["text"], "This is the content of the static text resource.", "text")

    async def read_template() -> None:
        contents = wire_form(await client.read_resource(session.uri("test://template/123/data")))["contents"]
        equal(contents[0]["uri"], "test://template/123/data", "uri")
        equal(json.loads(contents[0]["text"]), {"id": "123", "templateTest": True, "data": "Data for ID: 123"}, "json")

    async def subscribe() -> None:
        uri = "test://watched-resource"

        def updates() -> int:
            return sum(1 for method, params in handlers.notes if method == "notifications/resources/updated" and params["uri"] == uri)

        await client.subscribe_resource(session.uri(uri))
        await until(lambda: updates() >= 1, 10, "no notifications/resources/updated within 10 s")
        await client.unsubscribe_resource(session.uri(uri))
        await anyio.sleep(0.1)
        before = updates()
        await anyio.sleep(3.5)
        equal(updates(), before, "updates after unsubscribe")
        equal({e.method for e in wire.exchanges if "notifications/resources/updated" in e.sse}, {"GET"}, "carried by")

    def pushed(tag: str) -> list[int]:
        return [m["data"]["n"] for m in messages() if isinstance(m["data"], dict) and m["data"].get("push") == tag]

    def self_notes(tag: str) -> list[int]:
        return [int(m["data"].split(" ")[1]) for m in messages() if isinstance(m["data"], str) and m["data"].startswith(f"{tag} ")]

    async def arrives_once(read: Any, count: int, what: str) -> None:
        await until(lambda: len(read()) >= count, 8, lambda: f"{what}: got {read()}")
        await anyio.sleep(0.2)
        seen = read()
        first = 0 if seen[0] == 0 else 1
        equal(seen, list(range(first, first + count)), what)

    async def push() -> None:
        equal(text(await call("push", {"count": 5, "tag": "x"})), "pushed 5", "result")
        await arrives_once(lambda: pushed("x"), 5, "n")
        carriers = {(e.method, e.rpc.get("tool")) for e in wire.exchanges if '"push":"x"' in e.sse}
        allowed = {("GET", None), ("POST", "push")} if GATEWAY else {("GET", None)}
        expect(carriers and carriers <= allowed, f"carried by {carriers}")

    async def notify_self(tag: str) -> None:
        equal(text(await call("notify_self", {"events": 5, "tag": tag})), "notified 5", "result")
        await arrives_once(lambda: self_notes(tag), 5, "i")

    async def notify_all() -> None:
        await call("notify_all", {"kind": "tools"})
        await until(
            lambda: any(method == "notifications/tools/list_changed" for method, _ in handlers.notes), 5, "no tools/list_changed"
        )

    async def complete() -> None:
        ref = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        result = wire_form(await client.complete(ref, {"name": "arg1", "value": ""}))
        expect(isinstance(result["completion"]["values"], list), str(result))

    async def get_prompt() -> None:
        simple = wire_form(await client.get_prompt("test_simple_prompt"))
        equal(simple["messages"][0]["content"]["text"], "This is a simple prompt for testing.", "simple")
        args = wire_form(await client.get_prompt("test_prompt_with_arguments", {"arg1": "one", "arg2": "two"}))
        equal(args["messages"][0]["content"]["text"], "Prompt with arguments: arg1='one', arg2='two'", "with arguments")

    async def comes_to_rest(before: int, after: str) -> None:
        await anyio.sleep(2)
        gets = sum(1 for e in wire.exchanges[before:] if e.method == "GET")
        expect(gets <= 4, f"{gets} GETs within 2 s after {after}: the client is reconnecting in a loop")

    async def error_response() -> None:
        before = len(wire.exchanges)
        code = None
        try:
            await client.read_resource(session.uri("test://no-such-resource"))
        except Exception as error:  # the class has another name in each release
            code = getattr(getattr(error, "error", None), "code", None)
        expect(isinstance(code, int) and code < -32000, f"no JSON-RPC error: {code}")
        # An unknown tool may be a JSON-RPC error or a result with isError, but not a success.
        failed = True
        try:
            failed = wire_form(await call("no_such_tool", {})).get("isError") is True
        except Exception:
            pass
        expect(failed, "an unknown tool was called with success")
        await comes_to_rest(before, "an error response")

    async def close_connection() -> None:
        before = wire.resumes()
        equal(text(await call("close_connection", {"ms": 300})), "reconnected", "text")
        expect(NODES or wire.resumes() > before, "no GET with Last-Event-ID was sent")

    async def reconnection() -> None:
        before = wire.resumes()
        answer = text(await call("test_reconnection", {}))
        expect(answer.startswith("Reconnection test completed"), answer)
        expect(NODES or wire.resumes() > before, "no GET with Last-Event-ID was sent")

    async def counters() -> dict[str, int]:
        return json.loads(text(await call("counters", {})))

    async def cancellation() -> None:
        start = await counters()
        async with anyio.create_task_group() as group:

            async def sleeper() -> None:
                await call("sleep", {"ms": 30_000})

            group.start_soon(sleeper)

            async def has_started() -> bool:
                return (await counters())["started"] > start["started"]

            await until(has_started, 5, "sleep did not start")
            request = next(e.rpc["id"] for e in reversed(wire.exchanges) if e.rpc.get("tool") == "sleep")
            group.cancel_scope.cancel()
        if MAJOR == 1:
            await session.cancel(request)

        async def has_stopped() -> bool:
            return (await counters())["cancelled"] > start["cancelled"]

        await until(has_stopped, 5, "counters show no cancellation")
        await comes_to_rest(len(wire.exchanges), "a cancellation")

    async def thirty() -> None:
        async with anyio.create_task_group() as group:
            for i in range(30):

                async def one(events: int) -> None:
                    await burst(events, delay_us=2000)

                group.start_soon(one, 10 + i)

    async def one_token_per_stream() -> None:
        # A question of the server may have its own token, for progress by the client.
        reports = [[line for line in e.sse.split("\n") if "notifications/progress" in line] for e in wire.exchanges]
        expect(sum(1 for lines in reports if lines) >= 30, "streams with progress")
        for lines in reports:
            tokens = set(re.findall(r'"progressToken":("?[^",}]*"?)', "\n".join(lines)))
            expect(len(tokens) <= 1, f"one stream carried tokens {tokens}")

    async def no_response_on_get() -> None:
        bad = [e for e in wire.exchanges if e.method == "GET" and not e.last_event_id]
        expect(not any(re.search(r'^data: .*"(result|error)":', e.sse, re.M) for e in bad), "a response on the standalone stream")

    async def one_standalone() -> None:
        equal(wire.fresh_gets(), 1, "GETs without Last-Event-ID")

    async def unique_ids() -> None:
        seen: set[str] = set()
        for e in wire.exchanges:
            for block in e.sse.split("\n\n"):
                number = re.search(r"^id: ?(.*)$", block, re.M)
                data = re.search(r"^data: ?(.+)$", block, re.M)
                if number and data:
                    expect(number[1] not in seen, f"id {number[1]} was sent twice")
                    seen.add(number[1])
        expect(seen, "no ids at all")

    async def no_faults() -> None:
        equal(handlers.faults, [], "exceptions handed to the message handler")

    await check("connect: session id, server info", initialized)
    await check("protocol revision is 2025-11-25", revision)
    await check("GET stream opens", get_opens)
    await check("ping", ping)
    await check("tools/list", tools)
    await check("resources/list", resources)
    await check("resources/templates/list", templates)
    await check("prompts/list", prompts)
    await check("call echo", echo)
    await check("call echo, 200 kB", echo_large)
    await check("call test_simple_text", simple_text)
    await check("call test_image_content", image)
    await check("call test_error_handling", tool_error)
    await check("burst: 20 progress notifications", lambda: burst(20))
    await check("burst: paced progress notifications", lambda: burst(20, delay_us=5000))
    await check("log_burst: 10 log messages on the stream of the call", log_burst)
    await check("logging/setLevel", levels)
    await check("logging/setLevel filters", level_filters)
    await check("sampling: test_sampling", sampling)
    await check("elicitation: test_elicitation", elicitation)
    await check("roots: ask", roots)
    await check("ask_many: 3 rounds", ask_many)
    await check("server requests travel on the stream of their call", request_streams)
    await check("resources/read static", read_static)
    await check("resources/read template", read_template)
    await check("resources/subscribe, updated, unsubscribe", subscribe, 30)
    await check(f"push: 5 messages on {'GET or the call' if GATEWAY else 'GET'}, once, in order", push)
    await check("notify_self: 5 messages on GET, once, in order", lambda: notify_self("y"))
    await check("notify_all tools: list_changed", notify_all)
    await check("completion/complete", complete)
    await check("prompts/get", get_prompt)
    await check("error response: unknown resource, unknown tool", error_response)
    await check("close_connection: the client resumes by itself", close_connection)
    await check("test_reconnection: the client resumes by itself", reconnection)
    await check("cancellation: sleep stops", cancellation)
    await check("GET stream still delivers once", lambda: notify_self("z"))
    await check("30 calls at once: progress stays with its call", thirty, 40)
    await check("each progress token on one stream only", one_token_per_stream)
    await check("no response on the standalone GET stream", no_response_on_get)
    await check("one standalone GET stream: the client never lost its cursor", one_standalone)
    await check("event ids are unique", unique_ids)
    await check("no faults in the client", no_faults)


run(main, report, 180)
