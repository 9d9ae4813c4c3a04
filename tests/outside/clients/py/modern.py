"""The stateless revision 2026-07-28 of the fixture server through the official Python client (mcp 2.x).

usage: python modern.py <url>

Checks whose name says "raw" make the HTTP request themselves, because the client cannot be made to send or show the thing.
Nothing else may use the server meanwhile: changes and the counters of `sleep` are seen by all.
"""

from __future__ import annotations

import os
import base64
import contextlib
import json
import re
import sys
from typing import Any

import anyio

from common import MAJOR, Handlers, Report, Wire, equal, expect, http, run, sequence, streamable, text, types, until, wire_form

if len(sys.argv) != 2:
    sys.exit("usage: python modern.py <url>")
if MAJOR < 2:
    sys.exit("modern.py needs mcp 2.x: 1.x knows sessions only")
URL = sys.argv[1]

from mcp import Client  # noqa: E402
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged  # noqa: E402

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
LEVEL = f"{META}logLevel"
SUBSCRIPTION = f"{META}subscriptionId"
WATCHED = "test://watched-resource"
TOOL = "test_input_required_result_"
FIELDS = {"name": "Ada", "username": "ada", "email": "ada@example.org", "color": "teal", "context": "from outside", "ok": True}

report = Report()
check = report.check
wire = Wire(record=True, soften=False)


class Asked(Handlers):
    """Answers a form with a value for each of its fields."""

    action = "accept"

    async def elicitation(self, _context: Any, params: Any) -> Any:
        self.elicited += 1
        if self.action != "accept":
            return types.ElicitResult(action=self.action)
        names = wire_form(params)["requestedSchema"]["properties"]
        return types.ElicitResult(action="accept", content={n: FIELDS.get(n, f"a {n}") for n in names})

    def counts(self) -> dict[str, int]:
        return {"sampling": self.sampled, "elicitation": self.elicited, "roots": self.rooted}


def only_cancelled(start: dict, end: dict, finished: int) -> None:
    """With RETHREAD_SHARED=1 other clients may call `sleep` too, so only cancellations are counted."""
    equal(end["cancelled"] - start["cancelled"], 1, "cancelled")
    if not os.environ.get("RETHREAD_SHARED"):
        equal(end["finished"] - start["finished"], finished, "finished")


@contextlib.asynccontextmanager
async def connect(mode: str, handlers: Asked | None):  # type: ignore[no-untyped-def]
    options: dict[str, Any] = {}
    if handlers:
        options = {
            "sampling_callback": handlers.sampling,
            "elicitation_callback": handlers.elicitation,
            "list_roots_callback": handlers.roots,
            "message_handler": handlers.message,
        }
    async with http.AsyncClient(transport=_Shared(), timeout=http.Timeout(30, read=120)) as client:
        transport = streamable.streamable_http_client(URL, http_client=client)
        async with Client(transport, mode=mode, read_timeout_seconds=30, **options) as connected:  # type: ignore[arg-type]
            yield connected


class _Shared(http.AsyncBaseTransport):
    """One recorder for all clients of the run. Closing a client leaves it open."""

    async def handle_async_request(self, request: Any) -> Any:
        return await wire.handle_async_request(request)


def payload(
    method: str, params: dict[str, Any], request_id: Any, headers: dict[str, str | None], meta: dict[str, Any]
) -> dict[str, Any]:
    """A raw request, or a notification if the id is None. A value None in `headers` or `meta` removes that entry."""
    name = params.get("name") or params.get("uri")
    sent: dict[str, str | None] = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
        "mcp-name": name,
    }
    stamped = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": {}, **meta}
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        body["id"] = request_id
    body["params"] = {**params, "_meta": {k: v for k, v in stamped.items() if v is not None}}
    return {"headers": {k: v for k, v in {**sent, **headers}.items() if v is not None}, "json": body}


async def raw(
    method: str,
    params: dict[str, Any] | None = None,
    request_id: Any = 1,
    headers: dict[str, str | None] | None = None,
    meta: dict[str, Any] | None = None,
) -> tuple[int, int | None]:
    """Status and error code of a raw request."""
    async with http.AsyncClient(timeout=20) as client:
        response = await client.post(URL, **payload(method, params or {}, request_id, headers or {}, meta or {}))
    body = re.sub(r"^data: ?", "", response.text)
    return response.status_code, (json.loads(body).get("error") or {}).get("code") if body.strip() else None


def events(sse: str) -> list[dict[str, Any]]:
    return [json.loads(data) for data in re.findall(r"^data: ?(.+)$", sse, re.M)]


def answer(e: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The notifications and the response of one exchange."""
    messages = events(e.sse) if e.sse else [json.loads(e.json)] if e.json else []
    return [m for m in messages if "method" in m], next((m for m in messages if "method" not in m), {})


def last_for(tool: str) -> Any:
    return [e for e in wire.exchanges if e.rpc.get("tool") == tool][-1]


def code_of(error: Any) -> Any:
    return getattr(getattr(error, "error", None), "code", None)


async def fails(awaitable: Any, what: str) -> Any:
    try:
        await awaitable
    except Exception as error:
        return error
    expect(False, f"{what} was answered with success")


async def main() -> None:
    handlers, others = Asked(), Asked()
    async with connect("auto", handlers) as client:
        probes = [e.rpc.get("method") for e in wire.exchanges]
        if client.protocol_version != VERSION:
            report.fail("connect", f"the client fell back to {client.protocol_version} with {probes}")
            return
        async with connect(VERSION, others) as second:
            await checks(client, second, handlers, probes)
    await whole_run(handlers, others)


async def checks(client: Any, second: Any, handlers: Asked, probes: list[str]) -> None:
    call = client.call_tool

    async def negotiated() -> None:
        equal(client.protocol_version, VERSION, "negotiated")
        equal(probes, ["server/discover"], "requests of the client while connecting")
        caps = wire_form(client.server_capabilities)
        for name in ["tools", "resources", "prompts", "completions"]:
            expect(name in caps, f"capability {name} missing: {caps}")
        expect(client.server_info and client.server_info.name, "no server identity")

    async def pinned() -> None:
        equal(second.protocol_version, VERSION, "negotiated")
        equal(text(await second.call_tool("echo", {"message": "x"})), "x", "first request of all")

    async def tools() -> None:
        names = {t["name"] for t in wire_form(await client.list_tools())["tools"]}
        wanted = {
            "echo", "burst", "sleep", "log_burst", "notify_all", "ask", "ask_many", "counters", "region_echo", "test_simple_text",
            "test_image_content", "test_error_handling", "test_missing_capability", "test_logging_tool",
            "test_trigger_tool_change", "test_trigger_prompt_change",
        }  # fmt: skip
        kinds = ["elicitation", "sampling", "list_roots", "request_state", "multiple_inputs", "multi_round", "tampered_state"]
        equal(sorted((wanted | {TOOL + kind for kind in kinds}) - names), [], "missing")

    async def prompts() -> None:
        names = {p["name"] for p in wire_form(await client.list_prompts())["prompts"]}
        equal(sorted({"test_simple_prompt", "test_prompt_with_arguments", f"{TOOL}prompt"} - names), [], "missing")

    async def resources() -> None:
        uris = {r["uri"] for r in wire_form(await client.list_resources())["resources"]}
        equal(sorted({"test://static-text", "test://static-binary", WATCHED} - uris), [], "missing")

    async def templates() -> None:
        found = {t["uriTemplate"] for t in wire_form(await client.list_resource_templates())["resourceTemplates"]}
        expect("test://template/{id}/data" in found, str(found))

    async def echo() -> None:
        message = 'héllo "wörld"\nsecond line \U0001f980 \u2028 end'
        equal(text(await call("echo", {"message": message})), message, "echo")
        expect(last_for("echo").json, "a silent call was not answered as JSON")

    async def echo_large() -> None:
        message = "x" * 200_000
        expect(text(await call("echo", {"message": message})) == message, "differs")

    async def image() -> None:
        block = wire_form(await call("test_image_content", {}))["content"][0]
        equal([block["type"], block["mimeType"]], ["image", "image/png"], "block")
        equal(base64.b64decode(block["data"])[1:4], b"PNG", "signature")

    async def tool_error() -> None:
        result = await call("test_error_handling", {})
        equal(wire_form(result).get("isError"), True, "isError")
        equal(text(result), "This tool intentionally returns an error for testing", "text")

    async def burst(count: int, **extra: Any) -> None:
        seen: list[tuple[float, float | None]] = []

        async def progress(value: float, total: float | None, _message: str | None) -> None:
            seen.append((value, total))

        result = await call("burst", {"events": count, "bytes": 48, **extra}, progress_callback=progress)
        await anyio.sleep(0.01)
        equal(text(result), f"burst {count} done", "result")
        sequence([value for value, _ in seen], count, "progress")
        expect(all(total == count for _, total in seen), f"a total is not {count}")

    async def silent_burst() -> None:
        equal(text(await call("burst", {"events": 5})), "burst 5 done", "result")
        equal(answer(last_for("burst"))[0], [], "notifications")

    async def thirty() -> None:
        async with anyio.create_task_group() as group:
            for i in range(30):

                async def one(count: int) -> None:
                    await burst(count, delay_us=2000)

                group.start_soon(one, 10 + i)

    async def one_token_per_stream() -> None:
        streams = [e for e in wire.exchanges if "notifications/progress" in e.sse]
        expect(len(streams) >= 30, f"{len(streams)} streams with progress")
        for e in streams:
            tokens = {n["params"]["progressToken"] for n in answer(e)[0] if n["method"] == "notifications/progress"}
            equal(tokens, {e.sent["params"]["_meta"]["progressToken"]}, "tokens on one stream")

    async def mirrored() -> None:
        equal(json.loads(text(await call("region_echo", {"region": "eu-west", "n": 42}))), {"region": "eu-west", "n": 42}, "arguments")
        sent = last_for("region_echo").headers
        equal([sent.get("mcp-param-region"), sent.get("mcp-param-n")], ["eu-west", "42"], "headers")

    async def mirrored_base64() -> None:
        equal(json.loads(text(await call("region_echo", {"region": " Zürich "})))["region"], " Zürich ", "region")
        sent = last_for("region_echo").headers["mcp-param-region"]
        expect(sent.startswith("=?base64?"), sent)

    async def mirrored_wrong() -> None:
        params = {"name": "region_echo", "arguments": {"region": "eu"}}
        equal(await raw("tools/call", params), (400, -32020), "missing")
        equal(await raw("tools/call", params, headers={"mcp-param-region": "us"}), (400, -32020), "different")
        equal(await raw("tools/call", params, headers={"mcp-param-region": "eu"}), (200, None), "the same")

    async def unknown_tool() -> None:
        try:
            failed = wire_form(await call("no_such_tool", {})).get("isError") is True
        except Exception as error:
            equal(code_of(error), -32602, "code")
        else:
            expect(failed, "an unknown tool was called with success")

    async def refused_tools() -> None:
        for tool in ["push", "notify_self"]:
            equal(code_of(await fails(call(tool, {}), tool)), -32602, tool)

    async def read_static() -> None:
        contents = wire_form(await client.read_resource("test://static-text"))["contents"]
        equal(contents[0]["text"], "This is the content of the static text resource.", "text")
        binary = wire_form(await client.read_resource("test://static-binary"))["contents"][0]
        equal([binary["mimeType"], base64.b64decode(binary["blob"])[1:4]], ["image/png", b"PNG"], "binary")

    async def read_template() -> None:
        contents = wire_form(await client.read_resource("test://template/123/data"))["contents"]
        equal(contents[0]["uri"], "test://template/123/data", "uri")
        equal(json.loads(contents[0]["text"]), {"id": "123", "templateTest": True, "data": "Data for ID: 123"}, "json")

    async def read_base64_name() -> None:
        uri = "test://template/größe/data"
        failure = None
        try:
            await client.read_resource(uri)
        except Exception as error:
            failure = error
        e = next(e for e in wire.exchanges if (e.sent.get("params") or {}).get("uri") == uri)
        expect(e.headers["mcp-name"].startswith("=?base64?"), e.headers["mcp-name"])
        expect(e.status == 200, f"HTTP {e.status}: {failure}")

    async def unknown_resource() -> None:
        error = await fails(client.read_resource("test://no-such-resource"), "an unknown resource")
        equal(code_of(error), -32602, "code")
        equal((error.error.data or {}).get("uri"), "test://no-such-resource", "uri")

    async def get_prompt() -> None:
        simple = wire_form(await client.get_prompt("test_simple_prompt"))
        equal(simple["messages"][0]["content"]["text"], "This is a simple prompt for testing.", "simple")
        args = wire_form(await client.get_prompt("test_prompt_with_arguments", {"arg1": "one", "arg2": "two"}))
        equal(args["messages"][0]["content"]["text"], "Prompt with arguments: arg1='one', arg2='two'", "with arguments")

    async def complete() -> None:
        ref = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        result = wire_form(await client.complete(ref, {"name": "arg1", "value": ""}))
        expect(isinstance(result["completion"]["values"], list), str(result))

    await check("connect auto: the client chooses the revision by itself", negotiated)
    await check("connect pinned, without a probe", pinned)
    await check("tools/list", tools)
    await check("prompts/list", prompts)
    await check("resources/list", resources)
    await check("resources/templates/list", templates)
    await check("call echo, answered as JSON", echo)
    await check("call echo, 200 kB", echo_large)
    await check("call test_image_content", image)
    await check("call test_error_handling", tool_error)
    await check("burst: 20 progress notifications, once and in order", lambda: burst(20))
    await check("burst: paced progress notifications", lambda: burst(20, delay_us=5000))
    await check("burst without a progress token is silent", silent_burst)
    await check("30 bursts at once: progress stays with its call", thirty, 40)
    await check("each progress token on one stream only", one_token_per_stream)
    await check("region_echo: arguments mirrored as headers", mirrored)
    await check("region_echo: a mirrored value in base64", mirrored_base64)
    await check("raw: a mirrored header that is missing or differs is refused", mirrored_wrong)
    await check("unknown tool: error", unknown_tool)
    await check("push and notify_self are refused here", refused_tools)
    await check("resources/read static text and binary", read_static)
    await check("resources/read template", read_template)
    await check("resources/read with Mcp-Name in base64", read_base64_name)
    await check("unknown resource: -32602 that names it", unknown_resource)
    await check("prompts/get", get_prompt)
    await check("completion/complete", complete)
    await input_rounds(client, second, handlers)
    await logging(client, handlers)
    await listening(client, second, handlers)
    await cancellation(client)
    await gone()


async def input_rounds(client: Any, second: Any, handlers: Asked) -> None:
    async def rounds(tool: str, expected: dict[str, int], body: Any) -> list[Any]:
        """Runs `body` and checks the number of questions, and that each round was a new request with the echoed state."""
        before = handlers.counts()
        start = len(wire.exchanges)
        await body()
        after = handlers.counts()
        equal({k: after[k] - before[k] for k in after}, {"sampling": 0, "elicitation": 0, "roots": 0, **expected}, "questions")
        legs = [e for e in wire.exchanges[start:] if e.rpc.get("tool") == tool]
        equal(len({e.rpc["id"] for e in legs}), len(legs), "request ids")
        results = [answer(e)[1]["result"] for e in legs]
        equal([r["resultType"] for r in results], ["input_required"] * (len(legs) - 1) + ["complete"], "result types")
        for result, leg in zip(results, legs[1:]):
            params = leg.sent["params"]
            equal(params.get("requestState"), result.get("requestState"), "state")
            equal(sorted(params["inputResponses"]), sorted(result["inputRequests"]), "answered keys")
            expect("ttlMs" not in result, "an input_required result has a caching hint")
        return legs

    async def ask(what: str) -> Any:
        return json.loads(text(await client.call_tool("ask", {"what": what})))

    async def elicitation() -> None:
        async def body() -> None:
            result = await ask("elicitation")
            equal(result["action"], "accept", "action")
            expect(result.get("content"), str(result))

        await rounds("ask", {"elicitation": 1}, body)

    async def declined() -> None:
        async def body() -> None:
            handlers.action = "decline"
            try:
                equal((await ask("elicitation"))["action"], "decline", "action")
            finally:
                handlers.action = "accept"

        await rounds("ask", {"elicitation": 1}, body)

    async def sampling() -> None:
        async def body() -> None:
            result = await ask("sampling")
            equal(result["model"], "outside-model", "model")
            expect("heard " in json.dumps(result["content"]), str(result))

        await rounds("ask", {"sampling": 1}, body)

    async def roots() -> None:
        async def body() -> None:
            equal((await ask("roots"))["roots"][0]["uri"], "file:///outside/root", "root")

        await rounds("ask", {"roots": 1}, body)

    async def ask_many() -> None:
        async def body() -> None:
            answers = json.loads(text(await client.call_tool("ask_many", {"rounds": 3})))
            equal([a["action"] for a in answers], ["accept"] * 3, "answers")

        equal(len(await rounds("ask_many", {"elicitation": 3}, body)), 4, "requests")

    async def one(kind: str, expected: dict[str, int], part: str) -> list[Any]:
        async def body() -> None:
            said = text(await client.call_tool(TOOL + kind, {}))
            expect(part in said, said)

        return await rounds(TOOL + kind, expected, body)

    async def multiple() -> None:
        legs = await one("multiple_inputs", {"elicitation": 1, "sampling": 1, "roots": 1}, "")
        equal(len(legs), 2, "requests")
        expect(isinstance(answer(legs[0])[1]["result"].get("requestState"), str), "no requestState")

    async def multi_round() -> None:
        legs = await one("multi_round", {"elicitation": 2}, "")
        states = [answer(e)[1]["result"].get("requestState") for e in legs[:2]]
        expect(states[0] and states[1] and states[0] != states[1], "the state did not change between rounds")

    async def prompt() -> None:
        async def body() -> None:
            expect(wire_form(await client.get_prompt(f"{TOOL}prompt"))["messages"], "no messages")

        await rounds(f"{TOOL}prompt", {"elicitation": 1}, body)

    async def manual(from_client: Any, kind: str, responses: Any = None, state: str | None = None) -> Any:
        return await from_client.session.call_tool(
            TOOL + kind, {}, input_responses=responses, request_state=state, allow_input_required=True
        )

    accepted = types.ElicitResult(action="accept", content={"ok": True})

    async def handed_over() -> None:
        first = await manual(client, "request_state")
        equal(first.result_type, "input_required", "result type")
        last = await manual(second, "request_state", {"confirm": accepted}, first.request_state)
        expect("state-ok" in text(last), text(last))

    async def tampered() -> None:
        first = await manual(client, "tampered_state")
        state = first.request_state
        middle = len(state) // 2
        changed = state[:middle] + ("B" if state[middle] == "A" else "A") + state[middle + 1 :]
        responses = {key: accepted for key in first.input_requests}
        equal(code_of(await fails(manual(client, "tampered_state", responses, changed), "a changed state")), -32602, "code")

    async def asked_again() -> None:
        first = await manual(client, "elicitation")
        again = await manual(client, "elicitation", {"something_else": accepted}, first.request_state)
        equal(again.result_type, "input_required", "result type")

    async def missing_capability() -> None:
        async with connect(VERSION, None) as bare:
            error = await fails(bare.call_tool("test_missing_capability", {}), "the call")
            equal(code_of(error), -32021, "code")
            expect("sampling" in (error.error.data or {}).get("requiredCapabilities", {}), str(error.error.data))
            equal(last_for("test_missing_capability").status, 400, "HTTP status")
            equal(code_of(await fails(bare.call_tool("ask", {"what": "roots"}), "ask roots")), -32021, "ask roots")

    await check("ask elicitation", elicitation)
    await check("ask elicitation, declined", declined)
    await check("ask sampling", sampling)
    await check("ask roots", roots)
    await check("ask_many: 3 rounds", ask_many)
    await check(f"{TOOL}elicitation", lambda: one("elicitation", {"elicitation": 1}, "Hello, Ada!"))
    await check(f"{TOOL}sampling", lambda: one("sampling", {"sampling": 1}, "heard "))
    await check(f"{TOOL}list_roots", lambda: one("list_roots", {"roots": 1}, "outside"))
    await check(f"{TOOL}multiple_inputs", multiple)
    await check(f"{TOOL}multi_round", multi_round)
    await check(f"{TOOL}request_state", lambda: one("request_state", {"elicitation": 1}, "state-ok"))
    await check(f"prompt {TOOL}prompt", prompt)
    await check("a round begun by one client is finished by another", handed_over)
    await check("a changed requestState is refused", tampered)
    await check("a missing answer is asked for again", asked_again)
    await check("a client without the capability gets -32021", missing_capability)


async def logging(client: Any, handlers: Asked) -> None:
    async def logged(tool: str, level: str | None, **arguments: Any) -> list[dict[str, Any]]:
        """The logs of a call, which must arrive only on its stream."""
        start, before = len(wire.exchanges), len(handlers.messages())
        await client.call_tool(tool, arguments, meta={LEVEL: level} if level else None)
        await anyio.sleep(0.1)
        seen = handlers.messages()[before:]
        carriers = [e.rpc["tool"] for e in wire.exchanges[start:] if "notifications/message" in e.sse]
        equal(carriers, [tool] if seen else [], "streams that carried logs")
        return seen

    async def without() -> None:
        equal(await logged("test_logging_tool", None), [], "logged")

    async def with_level() -> None:
        expect(await logged("test_logging_tool", "debug"), "nothing was logged")

    async def log_burst() -> None:
        numbers = [m["data"]["n"] for m in await logged("log_burst", "info", count=10)]
        expect(numbers and numbers[0] in (0, 1), f"n: {numbers}")
        equal(numbers, list(range(numbers[0], numbers[0] + 10)), "n")
        equal(await logged("log_burst", "error", count=5), [], "at error")
        equal(await logged("log_burst", None, count=5), [], "without a level")

    async def unknown_level() -> None:
        equal((await raw("tools/call", {"name": "echo", "arguments": {}}, meta={LEVEL: "loud"}))[1], -32602, "code")

    await check("test_logging_tool without a log level logs nothing", without)
    await check("test_logging_tool with a log level logs", with_level)
    await check("log_burst: 10 messages at level info, none at error, none without", log_burst)
    await check("raw: an unknown log level is refused", unknown_level)


async def listening(client: Any, second: Any, handlers: Asked) -> None:
    names = {
        ToolsListChanged: "tools/list_changed",
        PromptsListChanged: "prompts/list_changed",
        ResourcesListChanged: "resources/list_changed",
    }

    async def collect(subscription: Any, into: list[Any]) -> None:
        async for event in subscription:
            into.append(event)

    async def streams() -> None:
        seen: dict[str, list[Any]] = {"a": [], "b": [], "c": []}
        wanted: dict[str, list[str]] = {"a": [], "b": [], "c": []}
        before_notes = len(handlers.notes)

        def lists() -> dict[str, list[str]]:
            return {k: [names[type(e)] for e in v if not isinstance(e, ResourceUpdated)] for k, v in seen.items()}

        def updates(stream: str) -> list[str]:
            return [e.uri for e in seen[stream] if isinstance(e, ResourceUpdated)]

        # One at a time, because the server and the client may merge unread changes.
        async def trigger(tool: str, arguments: dict[str, Any], change: str, *for_streams: str) -> None:
            await client.call_tool(tool, arguments)
            for name in for_streams:
                wanted[name].append(change)
            await until(lambda: all(len(lists()[k]) >= len(wanted[k]) for k in wanted), 5, lambda: f"{tool} {arguments}: got {lists()}")
            await anyio.sleep(0.1)
            equal(lists(), wanted, f"after {tool} {arguments}")

        async with (
            anyio.create_task_group() as group,
            client.listen(prompts_list_changed=True, resource_subscriptions=[WATCHED]) as b,
            second.listen(tools_list_changed=True, resources_list_changed=True) as c,
        ):
            group.start_soon(collect, b, seen["b"])
            group.start_soon(collect, c, seen["c"])
            async with client.listen(tools_list_changed=True) as a:
                group.start_soon(collect, a, seen["a"])
                equal(wire_form(a.honored), {"toolsListChanged": True}, "tools acknowledged")
                honored = wire_form(b.honored)
                equal([honored.get("promptsListChanged"), honored.get("resourceSubscriptions")], [True, [WATCHED]], "others acknowledged")
                await trigger("test_trigger_tool_change", {}, "tools/list_changed", "a", "c")
                await trigger("test_trigger_prompt_change", {}, "prompts/list_changed", "b")
                await trigger("notify_all", {"kind": "tools"}, "tools/list_changed", "a", "c")
                await trigger("notify_all", {"kind": "prompts"}, "prompts/list_changed", "b")
                await trigger("notify_all", {"kind": "resources"}, "resources/list_changed", "c")
                await trigger("notify_all", {}, "tools/list_changed", "a", "c")
                before = len(updates("b"))
                await client.call_tool("notify_all", {"kind": "updated"})
                await until(lambda: len(updates("b")) > before, 1.5, "no resources/updated within 1.5 s")
                equal(set(updates("b")), {WATCHED}, "resources")
                equal([updates("a"), updates("c")], [[], []], "updates for streams that did not ask")
            await trigger("notify_all", {"kind": "tools"}, "tools/list_changed", "c")
            group.cancel_scope.cancel()

        listens = [e for e in wire.exchanges if e.rpc.get("method") == "subscriptions/listen"]
        equal(len(listens), 3, "listen requests")
        for e in listens:
            notes = answer(e)[0]
            equal([i for i, n in enumerate(notes) if n["method"].endswith("/acknowledged")], [0], "places of the acknowledgement")
            equal({n["params"]["_meta"][SUBSCRIPTION] for n in notes}, {e.rpc["id"]}, "subscription ids")
        # The same events reach the message handler of the client, each once.
        heard = [m for m, _ in handlers.notes[before_notes:] if m.endswith("list_changed")]
        equal(sorted(heard), sorted(f"notifications/{n}" for n in wanted["a"] + wanted["b"]), "at the message handler")

    async def typed_ids() -> None:
        seen: dict[Any, str] = {7: "", "7": ""}

        async def read(request_id: Any, opened: Any) -> None:
            request = payload("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id, {}, {})
            async with http.AsyncClient(timeout=20) as raw_client, raw_client.stream("POST", URL, **request) as response:
                opened.set()
                async for chunk in response.aiter_text():
                    seen[request_id] += chunk

        async with anyio.create_task_group() as group:
            for request_id in seen:
                opened = anyio.Event()
                group.start_soon(read, request_id, opened)
                await opened.wait()
            await client.call_tool("notify_all", {"kind": "tools"})
            await until(lambda: all(len(events(sse)) >= 2 for sse in seen.values()), 5, lambda: str(seen))
            group.cancel_scope.cancel()
        for request_id, sse in seen.items():
            messages = [[m["method"].removeprefix("notifications/"), m["params"]["_meta"][SUBSCRIPTION]] for m in events(sse)]
            equal(messages, [["subscriptions/acknowledged", request_id], ["tools/list_changed", request_id]], "messages")

    async def no_filter() -> None:
        equal((await raw("subscriptions/listen"))[1], -32602, "code")

    await check("subscriptions/listen: three streams, each gets exactly its own", streams, 40)
    await check("raw: the subscription id keeps its JSON type", typed_ids)
    await check("raw: listen without a filter is refused", no_filter)


async def cancellation(client: Any) -> None:
    async def counters() -> dict[str, int]:
        """Behind a balancer each node has its own counters: RETHREAD_NODES has their URLs."""
        nodes = os.environ.get("RETHREAD_NODES")
        if not nodes:
            return json.loads(text(await client.call_tool("counters", {})))
        total = {"started": 0, "finished": 0, "cancelled": 0}
        async with http.AsyncClient(timeout=20) as raw_client:
            for node in nodes.split(","):
                request = payload("tools/call", {"name": "counters", "arguments": {}}, 1, {}, {})
                response = await raw_client.post(node, **request)
                counted = json.loads(response.json()["result"]["content"][0]["text"])
                total = {name: value + counted[name] for name, value in total.items()}
        return total

    async def has(key: str, more_than: int) -> bool:
        return (await counters())[key] > more_than

    async def counted(start: dict[str, int], first: int) -> None:
        await until(lambda: has("cancelled", start["cancelled"]), 1, "not counted as cancelled within 1 s")
        end = await counters()
        only_cancelled(start, end, 0)
        sent = [e for e in wire.exchanges[first:] if e.rpc.get("method") == "notifications/cancelled"]
        equal(len(sent), 0, "notifications/cancelled sent")

    async def disconnect(seconds: float) -> None:
        start, first = await counters(), len(wire.exchanges)
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "sleep", {"ms": 30_000})
            await until(lambda: has("started", start["started"]), 5, "sleep did not start")
            await anyio.sleep(seconds)
            group.cancel_scope.cancel()
        await counted(start, first)

    async def timeout() -> None:
        start, first = await counters(), len(wire.exchanges)
        await fails(client.call_tool("sleep", {"ms": 30_000}, read_timeout_seconds=0.7), "a call that takes too long")
        await counted(start, first)

    async def others_live() -> None:
        start = await counters()
        finished: list[str] = []

        async def short() -> None:
            finished.append(text(await client.call_tool("sleep", {"ms": 1200})))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(short)
            async with anyio.create_task_group() as doomed:
                doomed.start_soon(client.call_tool, "sleep", {"ms": 30_000})
                await until(lambda: has("started", start["started"] + 3), 5, "sleeps did not start")
                doomed.cancel_scope.cancel()
        equal(finished, ["slept 1200"] * 3, "the others")
        end = await counters()
        only_cancelled(start, end, 3)

    async def stranger() -> None:
        start = await counters()
        finished: list[str] = []

        async def short() -> None:
            finished.append(text(await client.call_tool("sleep", {"ms": 1200})))

        async with anyio.create_task_group() as group:
            group.start_soon(short)
            await until(lambda: has("started", start["started"]), 5, "sleep did not start")
            status = await raw("notifications/cancelled", {"requestId": last_for("sleep").rpc["id"]}, None)
            equal(status, (202, None), "answer")
        equal(finished, ["slept 1200"], "the call")

    await check("cancellation by disconnect: sleep stops within 1 s", lambda: disconnect(0))
    await check("cancellation by disconnect after 1.5 s of silence", lambda: disconnect(1.5))
    await check("a timeout of the client cancels too", timeout)
    await check("cancelling one call leaves the others alone", others_live)
    await check("raw: notifications/cancelled from a stranger is ignored", stranger)


async def gone() -> None:
    async def removed() -> None:
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        for method, params in {
            "initialize": hello,
            "ping": {},
            "logging/setLevel": {"level": "info"},
            "resources/subscribe": {"uri": WATCHED},
            "resources/unsubscribe": {"uri": WATCHED},
            "no/such/method": {},
        }.items():
            equal(await raw(method, params), (404, -32601), method)

    async def envelope() -> None:
        params = {"name": "echo", "arguments": {}}
        equal(await raw("tools/call", params, headers={"mcp-name": "burst"}), (400, -32020), "Mcp-Name")
        equal(await raw("tools/call", params, headers={"mcp-method": "tools/list"}), (400, -32020), "Mcp-Method")
        equal(await raw("tools/call", params, headers={"mcp-protocol-version": None}), (400, -32020), "no version header")
        unknown = "2099-01-01"
        status = await raw("tools/call", params, headers={"mcp-protocol-version": unknown}, meta={f"{META}protocolVersion": unknown})
        equal(status, (400, -32022), "unknown revision")
        equal(await raw("tools/call", params, meta={f"{META}clientCapabilities": None}), (400, -32602), "no capabilities")

    async def methods() -> None:
        async with http.AsyncClient(timeout=20) as client:
            for method in ["GET", "DELETE"]:
                headers = {"accept": "text/event-stream", "mcp-protocol-version": VERSION}
                equal((await client.request(method, URL, headers=headers)).status_code, 405, method)

    await check("raw: removed and unknown methods are 404 with -32601", removed)
    await check("raw: headers that differ, unknown revisions, missing _meta", envelope)
    await check("raw: GET and DELETE are 405", methods)


async def whole_run(handlers: Asked, others: Asked) -> None:
    def aborted(e: Any) -> bool:
        """A call that this script abandoned: its stream, if any, has no response."""
        return e.rpc["tool"] == "sleep" and not answer(e)[1]

    async def no_session() -> None:
        equal({e.method for e in wire.exchanges}, {"POST"}, "HTTP methods")
        expect(not any(e.session or e.last_event_id for e in wire.exchanges), "a request carried a session id or a cursor")
        expect(not any("mcp-session-id" in e.answered for e in wire.exchanges), "an answer carried a session id")
        equal({e.headers.get("mcp-protocol-version") for e in wire.exchanges}, {VERSION}, "revisions")
        methods = {e.rpc["method"] for e in wire.exchanges}
        expect("initialize" not in methods and not any(m.startswith("notifications/") for m in methods), f"sent: {methods}")

    async def streams() -> None:
        for e in wire.exchanges:
            name = e.rpc.get("tool") or e.rpc["method"]
            field = re.search(r"^(id|retry|event:(?! ?message$)).*", e.sse, re.M)
            expect(field is None, f"{name}: {field and field[0]}")
            messages = events(e.sse)
            expect(not any("method" in m and "id" in m for m in messages), f"{name}: a request from the server")
            if not e.sse or e.rpc["method"] == "subscriptions/listen" or aborted(e):
                continue
            equal([i for i, m in enumerate(messages) if "method" not in m], [len(messages) - 1], f"{name}: places of responses")
            allowed = {"notifications/progress", "notifications/message"}
            expect(all(m["method"] in allowed for m in messages[:-1]), f"{name}: {[m.get('method') for m in messages]}")

    async def results() -> None:
        for e in wire.exchanges:
            if e.status != 200 or not (e.sse or e.json) or e.rpc["method"] == "subscriptions/listen" or aborted(e):
                continue
            response = answer(e)[1]
            equal(response["id"], e.rpc["id"], f"id of {e.rpc}")
            if "result" in response:
                expect(response["result"].get("resultType") in ("complete", "input_required"), f"result type of {e.rpc}")

    async def hints() -> None:
        for method in ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]:
            found = [answer(e)[1].get("result") for e in wire.exchanges if e.rpc["method"] == method]
            found = [r for r in found if r]
            expect(found, f"no result of {method}")
            for r in found:
                fine = isinstance(r.get("ttlMs"), int) and r["ttlMs"] >= 0 and r.get("cacheScope") in ("public", "private")
                expect(fine, f"{method}: {r.get('ttlMs')} {r.get('cacheScope')}")

    async def no_faults() -> None:
        equal(handlers.faults + others.faults, [], "exceptions handed to the message handler")

    await check("no session: no session id, no GET, no DELETE, no cursor, no notifications", no_session)
    await check("streams: no id, no retry, no server requests, one response at the end", streams)
    await check("every result has a resultType, every answer the id of its request", results)
    await check("caching hints on discover, lists and reads", hints)
    await check("no faults in the client", no_faults)


run(main, report, 180)
