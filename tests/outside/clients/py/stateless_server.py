"""A server on stdin and stdout, made with the official Python package (mcp 2.x), whose tools ask with input-required results.

usage: python stateless_server.py

The first request fixes the era of its process. The gateway is told to speak 2026-07-28 to it (`era = "modern"`). It has the tools,
prompts and resources of `stateless_server.mjs` that `bridge` uses.
"""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer

import shared_tools

logging.disable(logging.INFO)
# 2.x deprecates log messages.
warnings.simplefilter("ignore")

server = MCPServer("outside-python-stateless")
shared_tools.add_to(server)


def form(message: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "integer": {"type": "integer"}}, "required": ["name"]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(text: str, max_tokens: int = 20) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


def ask(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def answers(ctx: Context) -> dict[str, Any]:
    """The answers to the questions of this round, as they are on the wire."""
    found = ctx.input_responses or {}
    return {key: value.model_dump(by_alias=True, mode="json", exclude_none=True) for key, value in found.items()}


@server.tool(name="trigger-long-running-operation")
async def operate(ctx: Context, duration: float = 10, steps: int = 5) -> str:
    for step in range(1, steps + 1):
        await anyio.sleep(duration / steps)
        await ctx.report_progress(step, steps)
    return f"Long running operation completed. Duration: {duration:g} seconds, Steps: {steps}."


@server.tool(name="trigger-sampling-request")
async def sample(ctx: Context, prompt: str, maxTokens: int = 100) -> str | types.InputRequiredResult:
    if "sampled" not in answers(ctx):
        return ask(sampled=sampling(f"Resource trigger-sampling-request context: {prompt}", maxTokens))
    return f"LLM sampling result: \n{json.dumps(answers(ctx)['sampled'], indent=2)}"


@server.tool(name="trigger-elicitation-request")
async def elicit(ctx: Context) -> str | types.InputRequiredResult:
    if "inputs" not in answers(ctx):
        return ask(inputs=form("Please provide inputs for the following fields:"))
    answer = answers(ctx)["inputs"]
    if answer["action"] != "accept":
        return f"User did not provide the requested information: {answer['action']}"
    return f"User inputs:\n- Name: {answer['content']['name']}\n- Integer: {answer['content'].get('integer')}"


@server.tool(name="get-roots-list")
async def roots(ctx: Context) -> str | types.InputRequiredResult:
    if "roots" not in answers(ctx):
        return ask(roots=types.ListRootsRequest())
    found = answers(ctx)["roots"]["roots"]
    return f"Current MCP Roots ({len(found)} total):\n\n" + "\n".join(f"{root.get('name')}\n   URI: {root['uri']}" for root in found)


@server.tool(name="ask-together")
async def ask_together(ctx: Context, label: str) -> str | types.InputRequiredResult:
    found = answers(ctx)
    if not {"form", "sampled", "roots"} <= set(found):
        return ask(form=form(f"form {label}"), sampled=sampling(f"sampling {label}"), roots=types.ListRootsRequest())
    return f"{found['form']['content']['name']}, {found['sampled']['content']['text']}, {found['roots']['roots'][0]['uri']}"


@server.tool(name="ask-in-rounds")
async def ask_in_rounds(ctx: Context, label: str) -> str | types.InputRequiredResult:
    state, answer = ctx.request_state, answers(ctx).get("round")
    if not state or not answer:
        return ask("round 1", round=sampling(f"round 1 {label}"))
    said = answer["content"]["text"]
    if state == "round 1":
        return ask(f"round 2 {said}", round=sampling(f"round 2 {label}"))
    return f"{state.removeprefix('round 2 ')}, {said}"


@server.tool(name="ask-url")
async def ask_url(ctx: Context, url: str) -> str | types.InputRequiredResult:
    if "open" not in answers(ctx):
        params = types.ElicitRequestURLParams(message="Please open this page", url=url)
        return ask(open=types.ElicitRequest(params=params))
    return f"{answers(ctx)['open']['action']} {url}"


@server.tool(name="write-log")
async def write_log(ctx: Context, level: str, text: str) -> str:
    await ctx.log(level, text)  # type: ignore[arg-type]
    return "logged"


@server.tool(name="touch")
async def touch(ctx: Context, uri: str) -> str:
    await ctx.notify_resource_updated(uri)
    return "touched"


@server.tool(name="change-lists")
async def change_lists(ctx: Context) -> str:
    await ctx.notify_tools_changed()
    await ctx.notify_prompts_changed()
    return "changed"


@server.completion()
async def complete(_ref: Any, argument: Any, _context: Any) -> types.Completion:
    values = ["Engineering", "Sales", "Marketing", "Support"]
    return types.Completion(values=[value for value in values if value.startswith(argument.value)])


async def _on_level(_ctx: Any, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


# The package declares `logging` for a server with this handler. No 2026-07-28 client calls it.
server._lowlevel_server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _on_level)

server.run()
