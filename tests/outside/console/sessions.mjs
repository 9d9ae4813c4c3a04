// Clients of a real gateway for the checks of the console page: many sessions, some of them with open connections and calls.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Agent, request } from "node:http";

const CLIENTS = ["claude-code", "cursor", "vscode", "inspector", "python-sdk", "goose"];
const REVISIONS = ["2025-11-25", "2025-11-25", "2025-06-18", "2025-03-26"];
/** Connections that open sessions at the same time. */
const LANES = 16;

const agent = new Agent({ keepAlive: true, maxSockets: LANES });

/** Sends a request. The response is complete, unless `isOpen`: then its body is read and thrown away. */
function send(url, method, headers, message, isOpen = false) {
  return new Promise((resolve, reject) => {
    const all = { accept: "application/json, text/event-stream", "content-type": "application/json", ...headers };
    const sent = request(url, { method, headers: all, agent: isOpen ? undefined : agent }, (response) => {
      const { statusCode: status, headers } = response;
      const done = () => resolve({ status, headers, close: () => sent.destroy() });
      response.on("error", () => {}); // `close` cuts it
      response.on("end", done).resume();
      if (isOpen) done();
    });
    sent.on("error", reject);
    sent.end(message === undefined ? undefined : JSON.stringify({ jsonrpc: "2.0", ...message }));
  });
}

/** The name of a session for operators: no page knows its id. */
export const tagOf = (id) => createHash("sha256").update(id).digest("hex").slice(0, 16);

async function openSession(base, server, n) {
  const protocolVersion = REVISIONS[n % REVISIONS.length];
  const clientInfo = { name: CLIENTS[n % CLIENTS.length], version: `1.${n % 10}.${n % 7}` };
  const params = { protocolVersion, capabilities: {}, clientInfo };
  const { status, headers } = await send(`${base}/servers/${server}/mcp`, "POST", {}, { id: 0, method: "initialize", params });
  assert.equal(status, 200, `session ${n}`);
  const id = headers["mcp-session-id"];
  return { id, tag: tagOf(id), server, url: `${base}/servers/${server}/mcp`, headers: { "mcp-session-id": id, "mcp-protocol-version": protocolVersion } };
}

/** Opens `count` sessions on the servers in turn. Returns them by tag, as the console lists them. */
export async function openSessions(base, servers, count) {
  const sessions = [];
  let next = 0;
  const lane = async () => {
    while (next < count) {
      const n = next++;
      sessions.push(await openSession(base, servers[n % servers.length], n));
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return sessions.sort((a, b) => (a.tag < b.tag ? -1 : 1));
}

/** Opens the push stream of a session. Returns its connection. */
export async function listen(session) {
  const opened = await send(session.url, "GET", { ...session.headers, accept: "text/event-stream" }, undefined, true);
  assert.equal(opened.status, 200);
  return opened;
}

/** Starts a call that reports progress `events` times, every `millis`. Returns its connection once the response has begun. */
export async function callWithProgress(session, events, millis) {
  const params = { name: "burst", arguments: { events, bytes: 32, delay_us: millis * 1000 }, _meta: { progressToken: 1 } };
  const called = await send(session.url, "POST", session.headers, { id: 7, method: "tools/call", params }, true);
  assert.equal(called.status, 200);
  return called;
}

/** The status of the answer to a request in a session: 404 if it has ended. */
export async function statusOf(session) {
  return (await send(session.url, "POST", session.headers, { id: 8, method: "ping" })).status;
}
