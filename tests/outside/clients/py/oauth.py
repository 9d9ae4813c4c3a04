"""The OAuth flow of the official Python client against the gateway, without a person.

    python oauth.py <url> [stateless]

Discovery, 401, registration, code, token, retry, and the step-up after 403 `insufficient_scope`. The authorization server
of the test kit answers an authorization request with a redirect. This script follows it.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio

from common import MAJOR, Report, equal, expect, http
from mcp.client.auth import OAuthClientProvider
from mcp.client.session import ClientSession
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

import mcp.client.streamable_http as streamable

URL = sys.argv[1]
STATELESS = sys.argv[2:] == ["stateless"]
REDIRECT = "http://127.0.0.1:9/callback"


class Storage:
    """Keeps everything in memory."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """Follows redirects in place of a person."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.callback: dict[str, str] = {}

    async def redirect(self, url: str) -> None:
        self.asked.append({name: values[0] for name, values in parse_qs(urlsplit(url).query).items()})
        async with http.AsyncClient(follow_redirects=False) as client:
            response = await client.get(url)
        equal(response.status_code, 302, f"the redirect of {url}: {response.text}")
        query = urlsplit(response.headers["location"]).query
        self.callback = {name: values[0] for name, values in parse_qs(query).items()}

    async def result(self) -> Any:
        code, state = self.callback["code"], self.callback.get("state")
        if MAJOR == 1:
            return code, state
        from mcp.shared.auth import AuthorizationCodeResult

        return AuthorizationCodeResult(code=code, state=state, iss=self.callback.get("iss"))


def text(result: Any) -> str:
    return result.content[0].text


async def check_all(report: Report, browser: Browser, storage: Storage, call: Any, list_tools: Any) -> None:
    async def first() -> None:
        equal(len(browser.asked), 1, "authorizations")
        asked = browser.asked[0]
        equal(asked["resource"], URL, "resource")
        equal(asked["scope"], "mcp", "scope of the challenge")
        equal(asked["code_challenge_method"], "S256", "PKCE")
        expect(storage.tokens is not None, "a token")

    async def calls() -> None:
        tools = await list_tools()
        expect(any(tool.name == "echo" for tool in tools.tools), f"{tools}")
        expect("hi" in text(await call("echo", {"text": "hi"})), "echo")

    async def step_up() -> None:
        equal(text(await call("counter", {})), "1", "the refused call has not run")
        equal(len(browser.asked), 2, "authorizations")
        equal(sorted(browser.asked[1]["scope"].split()), ["count", "mcp"], "scopes")

    async def again() -> None:
        expect("again" in text(await call("echo", {"text": "again"})), "echo")

    await report.check("401 leads to the authorization server and back", first)
    await report.check("calls work with the token", calls)
    await report.check("403 insufficient_scope asks for all scopes at once", step_up)
    await report.check("the first calls still work after the step-up", again)


async def main() -> None:
    report, storage, browser = Report(), Storage(), Browser()
    provider = OAuthClientProvider(
        server_url=URL,
        client_metadata=OAuthClientMetadata(
            client_name="outside",
            redirect_uris=[REDIRECT],  # type: ignore[list-item]
            token_endpoint_auth_method="none",
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        storage=storage,
        redirect_handler=browser.redirect,
        callback_handler=browser.result,
    )
    with anyio.fail_after(120):
        if STATELESS:
            await stateless(report, provider, browser, storage)
        else:
            await in_session(report, provider, browser, storage)
    report.finish()


async def in_session(report: Report, provider: Any, browser: Browser, storage: Storage) -> None:
    async with http.AsyncClient(auth=provider, timeout=30) as client:
        async with streamable.streamable_http_client(URL, http_client=client) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                await check_all(report, browser, storage, session.call_tool, session.list_tools)


async def stateless(report: Report, provider: Any, browser: Browser, storage: Storage) -> None:
    from mcp import Client

    async with http.AsyncClient(auth=provider, timeout=30) as http_client:
        transport = streamable.streamable_http_client(URL, http_client=http_client)
        async with Client(transport, mode="2026-07-28") as client:
            await client.list_tools()
            await check_all(report, browser, storage, client.call_tool, client.list_tools)


anyio.run(main)
