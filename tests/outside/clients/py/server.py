"""A server on stdin and stdout, made with the official Python package (mcp 1.x or 2.x).

usage: python server.py

It has the tools, prompts and resources of the npm package @modelcontextprotocol/server-everything that `behind` and `crash`
use, under the same names and with the same answers, so that one script fits both. It also has the tools of `bridge`.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import warnings
from typing import Any

import anyio
from mcp.server.lowlevel.server import NotificationOptions
from pydantic import BaseModel

import shared_tools

if int(importlib.metadata.version("mcp").split(".")[0]) == 1:
    import mcp.types as types
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.types import Completion

    server = FastMCP("outside-python")
    inner = server._mcp_server
else:
    import mcp_types as types  # type: ignore[no-redef]
    from mcp.server.mcpserver import Context, MCPServer  # type: ignore[assignment]
    from mcp_types import Completion  # type: ignore[assignment]

    server = MCPServer("outside-python")  # type: ignore[assignment]
    inner = server._lowlevel_server  # type: ignore[attr-defined]

logging.disable(logging.INFO)
# 2.x deprecates calls of the legacy era, which are tested here.
warnings.simplefilter("ignore")

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
level = "debug"
subscriptions: list[str] = []
toggled: set[str] = set()
shared_tools.add_to(server)


async def log(session: Any, severity: str, data: str) -> None:
    if LEVELS.index(severity) >= LEVELS.index(level):
        await session.send_log_message(level=severity, data=data)


class Form(BaseModel):
    name: str
    integer: int = 42


@server.tool(name="get-sum")
async def get_sum(a: float, b: float) -> str:
    return f"The sum of {a:g} and {b:g} is {a + b:g}."


@server.tool(name="trigger-long-running-operation")
async def operate(ctx: Context, duration: float = 10, steps: int = 5) -> str:
    for step in range(1, steps + 1):
        await anyio.sleep(duration / steps)
        await ctx.report_progress(step, steps)
    return f"Long running operation completed. Duration: {duration:g} seconds, Steps: {steps}."


@server.tool(name="trigger-sampling-request")
async def sample(ctx: Context, prompt: str, maxTokens: int = 100) -> str:
    content = types.TextContent(type="text", text=f"Resource trigger-sampling-request context: {prompt}")
    message = types.SamplingMessage(role="user", content=content)
    answer = await ctx.session.create_message(messages=[message], max_tokens=maxTokens, related_request_id=ctx.request_id)
    return f"LLM sampling result: \n{json.dumps(answer.model_dump(by_alias=True, mode='json', exclude_none=True), indent=2)}"


@server.tool(name="trigger-elicitation-request")
async def elicit(ctx: Context) -> list[str]:
    answer = await ctx.elicit("Please provide inputs for the following fields:", Form)
    if answer.action != "accept":
        return [f"User did not provide the requested information: {answer.action}"]
    return ["User provided the requested information!", f"User inputs:\n- Name: {answer.data.name}\n- Integer: {answer.data.integer}"]


@server.tool(name="get-roots-list")
async def roots(ctx: Context) -> str:
    found = (await ctx.session.list_roots()).roots
    return f"Current MCP Roots ({len(found)} total):\n\n" + "\n".join(f"{root.name}\n   URI: {root.uri}" for root in found)


@server.tool(name="toggle-subscriber-updates")
async def updates(ctx: Context) -> str:
    if "updates" in toggled:
        toggled.remove("updates")
        return "Stopped simulated resource updates"
    toggled.add("updates")
    for uri in subscriptions:
        await ctx.session.send_resource_updated(uri)
    return "Started simulated resource updated notifications"


@server.tool(name="toggle-simulated-logging")
async def simulate(ctx: Context) -> str:
    if "logging" in toggled:
        toggled.remove("logging")
        return "Stopped simulated logging"
    toggled.add("logging")
    await log(ctx.session, "emergency", "Emergency-level message")
    return "Started simulated, random-leveled logging"


# The tools of `bridge`.


def _question(prompt: str) -> Any:
    return types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))


async def _sampled(ctx: Context, prompt: str) -> str:
    answer = await ctx.session.create_message(messages=[_question(prompt)], max_tokens=20, related_request_id=ctx.request_id)
    return answer.model_dump(mode="json")["content"]["text"]


@server.tool(name="ask-together")
async def ask_together(ctx: Context, label: str) -> str:
    answers: dict[str, str] = {}

    async def fill() -> None:
        answers["form"] = (await ctx.elicit(f"form {label}", Form)).data.name

    async def sample_it() -> None:
        answers["sampled"] = await _sampled(ctx, f"sampling {label}")

    async def list_roots() -> None:
        answers["roots"] = str((await ctx.session.list_roots()).roots[0].uri)

    async with anyio.create_task_group() as group:
        for ask in (fill, sample_it, list_roots):
            group.start_soon(ask)
    return f"{answers['form']}, {answers['sampled']}, {answers['roots']}"


@server.tool(name="ask-in-rounds")
async def ask_in_rounds(ctx: Context, label: str) -> str:
    first = await _sampled(ctx, f"round 1 {label}")
    return f"{first}, {await _sampled(ctx, f'round 2 {label}')}"


@server.tool(name="ask-url")
async def ask_url(ctx: Context, url: str) -> str:
    answer = await ctx.elicit_url("Please open this page", url, elicitation_id=f"id of {url}")
    return f"{answer.action} {url}"


@server.tool(name="write-log")
async def write_log(ctx: Context, level: str, text: str) -> str:
    await log(ctx.session, level, text)
    return "logged"


@server.tool(name="touch")
async def touch(ctx: Context, uri: str) -> str:
    if uri in subscriptions:
        await ctx.session.send_resource_updated(uri)
    return "touched"


@server.tool(name="change-lists")
async def change_lists(ctx: Context) -> str:
    await ctx.session.send_tool_list_changed()
    await ctx.session.send_prompt_list_changed()
    return "changed"


@server.prompt(name="simple-prompt")
def simple() -> str:
    return "This is a simple prompt without arguments."


@server.prompt(name="args-prompt")
def weather(city: str, state: str = "") -> str:
    return f"What's weather in {city}{', ' + state if state else ''}?"


@server.completion()
async def complete(_ref: Any, argument: Any, context: Any) -> Completion:
    values = ["Engineering", "Sales", "Marketing", "Support"]
    if argument.name == "name":
        department = (context.arguments or {}).get("department") if context else None
        values = ["David", "Eve", "Frank"] if department == "Sales" else []
    return Completion(values=[value for value in values if value.startswith(argument.value)])


async def subscribe(session: Any, uri: Any) -> None:
    await log(session, "info", f"Received Subscribe Resource request for URI: {uri}")
    subscriptions.append(str(uri))


async def unsubscribe(session: Any, uri: Any) -> None:
    await log(session, "info", f"Received Unsubscribe Resource request: {uri}")
    subscriptions.remove(str(uri))


def set_level(wanted: str) -> None:
    global level
    level = wanted


# Methods that only the low-level API of the package offers.
if hasattr(inner, "request_handlers"):

    @inner.subscribe_resource()
    async def _subscribe(uri: Any) -> None:
        await subscribe(inner.request_context.session, uri)

    @inner.unsubscribe_resource()
    async def _unsubscribe(uri: Any) -> None:
        await unsubscribe(inner.request_context.session, uri)

    @inner.set_logging_level()
    async def _level(wanted: Any) -> None:
        set_level(wanted)

else:

    async def _on_subscribe(ctx: Any, params: Any) -> Any:
        await subscribe(ctx.session, params.uri)
        return types.EmptyResult()

    async def _on_unsubscribe(ctx: Any, params: Any) -> Any:
        await unsubscribe(ctx.session, params.uri)
        return types.EmptyResult()

    async def _on_level(_ctx: Any, params: Any) -> Any:
        set_level(params.level)
        return types.EmptyResult()

    inner.add_request_handler("resources/subscribe", types.SubscribeRequestParams, _on_subscribe)
    inner.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, _on_unsubscribe)
    inner.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _on_level)

# The package declares neither of them by itself.
_options = inner.create_initialization_options


def _declared(*_args: Any, **_kwargs: Any) -> Any:
    options = _options(NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True))
    options.capabilities.resources.subscribe = True
    return options


inner.create_initialization_options = _declared  # type: ignore[method-assign]

server.run()
