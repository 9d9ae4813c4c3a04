"""The tools, resources and prompts that `server.py` and `stateless_server.py` have in common."""

from __future__ import annotations

from typing import Any

import anyio

cancelled: set[str] = set()


async def echo(message: str) -> str:
    return f"Echo: {message}"


async def wait(label: str) -> str:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        cancelled.add(label)
        raise
    return "never"


async def was_cancelled(label: str) -> str:
    return str(label in cancelled).lower()


def document() -> str:
    return "# A document"


def dynamic(resourceId: str) -> str:
    return f"Resource {int(resourceId)}: This is a plaintext resource"


def promote(department: str, name: str) -> str:
    return f"Please promote {name} to the head of the {department} team."


def add_to(server: Any) -> None:
    """Adds them to a server of the official package, 1.x or 2.x."""
    server.tool(name="echo")(echo)
    server.tool(name="wait")(wait)
    server.tool(name="was-cancelled")(was_cancelled)
    server.resource("demo://resource/static/document/server.md", mime_type="text/markdown")(document)
    server.resource("demo://resource/dynamic/text/{resourceId}", mime_type="text/plain")(dynamic)
    server.prompt(name="completable-prompt")(promote)
