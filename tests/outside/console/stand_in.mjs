// A stand-in for the admin listener, for states that a real gateway has only for a moment: gaps, hostile names, a lost feed. It
// serves the real page, with the real policy, and answers as the real API does.

import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { join } from "node:path";

export const TOKEN = "rt_stand_in_token_0123456789abcdefghijkl";
const CLIENTS = ["claude-code", "cursor", "vscode", "inspector", "python-sdk", "goose"];
const METHODS = ["tools/call", "resources/read", "prompts/get"];
const REVISIONS = ["2025-11-25", "2025-11-25", "2025-06-18", "2025-03-26"];
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** A number from 0 to 1 that depends on its arguments only. */
function chance(n, salt) {
  let hash = (n + 1) * 2654435761 + salt * 40503;
  hash = Math.imul(hash ^ (hash >>> 15), 2246822519);
  hash = Math.imul(hash ^ (hash >>> 13), 3266489917);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

function makeSession(n) {
  const pick = (list, salt) => list[Math.floor(chance(n, salt) * list.length)];
  const used = Date.now() - Math.floor(chance(n, 3) * 40 * 60000);
  const isActive = chance(n, 4) < 0.12;
  const streams = [];
  if (isActive) {
    const last = 3 + Math.floor(chance(n, 5) * 140);
    streams.push({ ordinal: 1, kind: "call", method: pick(METHODS, 6), first: 0, last, cursor: Math.max(0, last - Math.floor(chance(n, 7) * 5)), attached: true, sealed: false, bytes: last * 190, gap: false });
    streams.push({ ordinal: 2, kind: "push", method: null, first: 0, last: 4, cursor: 4, attached: chance(n, 8) < 0.8, sealed: false, bytes: 612, gap: false });
  }
  const tag = Math.floor(chance(n, 1) * 2 ** 32).toString(16).padStart(8, "0") + n.toString(16).padStart(8, "0");
  const subject = pick(["ada", "grace", "edsger", "barbara", "ken"], 9);
  return {
    tag, server: pick(["files", "git", "search"], 2), principal: chance(n, 10) < 0.8 ? { provider: "corp", issuer: "https://login.example", subject } : null,
    revision: pick(REVISIONS, 11), transport: "streamable", client: { name: pick(CLIENTS, 12), version: "1.4.2" },
    since: new Date(used - 3600000).toISOString(), used: new Date(used).toISOString(), expires: isActive ? null : new Date(used + 3600000).toISOString(),
    calls: isActive ? 1 : 0, child: { pid: 4000 + n, since: new Date(used - 3600000).toISOString() }, streams,
  };
}

/** Starts it on a free port. `sessions` are made unless they are given. */
export async function startStandIn(pageFolder, { count = 0, sessions = [], actions = false, state = "ready", port: wanted = 0 } = {}) {
  const all = [...sessions];
  for (let n = 0; n < count; n++) all.push(makeSession(n));
  const compare = (a, b) => (a.tag < b.tag ? -1 : 1);
  all.sort(compare);
  const feeds = new Set();
  const totals = () => ({ sessions: all.length, calls: all.reduce((sum, s) => sum + s.calls, 0), connections: all.flatMap((s) => s.streams).filter((s) => s.attached).length, children: all.filter((s) => s.child).length, parks: 2, listens: 5 });
  const servers = () => ["files", "git", "search"].map((name) => ({ name, eras: "legacy", sessions: all.filter((s) => s.server === name).length, children: { running: all.filter((s) => s.server === name).length, limit: 20000, starts: 12043, crashes: name === "git" ? 3 : 0 } }));
  const errors = [["origin", 403, "files"], ["unknown_session", 404, "git"], ["too_many", 429, "search"]].map(([reason, status, server], at) => ({ time: new Date(Date.now() - at * 47000).toISOString(), server, reason, status, session: null }));
  const providers = [{ name: "corp", keys: 2, age: 84, outcome: "ok" }];
  const sent = [];
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://x");
    const file = { "/": ["index.html", "text/html"], "/console.css": ["console.css", "text/css"], "/console.js": ["console.js", "text/javascript"] }[url.pathname];
    if (file) {
      response.writeHead(200, { "content-type": `${file[1]}; charset=utf-8`, "content-security-policy": CSP, "x-content-type-options": "nosniff", "cache-control": "no-store" });
      response.end(readFileSync(join(pageFolder, file[0])));
      return;
    }
    if (url.pathname === "/favicon.ico") {
      response.writeHead(200).end();
      return;
    }
    if (request.headers.authorization !== `Bearer ${TOKEN}`) {
      response.writeHead(401, { "www-authenticate": "Bearer" }).end();
      return;
    }
    if (url.pathname === "/api/v1/snapshot") {
      const after = url.searchParams.get("after") ?? "";
      const limit = Number(url.searchParams.get("limit") || 100);
      const rest = all.filter((s) => s.tag > after);
      const page = rest.slice(0, limit);
      const next = rest.length > limit ? page.at(-1).tag : null;
      const now = new Date().toISOString();
      response.writeHead(200, { "content-type": "application/json", "rethread-actions": actions ? "on" : "off" });
      response.end(JSON.stringify({ version: 1, node: "gateway-1", rethread: "0.1.0", started: now, now, state, totals: totals(), servers: servers(), providers, sessions: page, errors, next }));
    } else if (url.pathname === "/api/v1/feed") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(`event: state\ndata: {"state":"${state}"}\n\nevent: totals\ndata: ${JSON.stringify(totals())}\n\n`);
      feeds.add(response);
      request.on("close", () => feeds.delete(response));
    } else if (url.pathname.startsWith("/api/v1/children/")) {
      const pid = Number(url.pathname.split("/").pop());
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ pid, server: "git", session: null, since: new Date().toISOString(), crashes: 3, stderr: ["listening on stdio", "warning: the index is 3 days old"] }));
    } else if (request.method === "POST") {
      sent.push(url.pathname);
      response.writeHead(200).end();
    } else {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(wanted, "127.0.0.1", resolve));
  const { port } = server.address();
  return {
    url: `http://127.0.0.1:${port}/#${TOKEN}`,
    port,
    sessions: all,
    sent,
    emit: (name, data) => feeds.forEach((feed) => feed.write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`)),
    /** Changes the totals once a second, for pictures with lines. */
    breathe() {
      const steady = totals();
      let second = 0;
      const timer = setInterval(() => {
        second += 1;
        const wave = (size, period, salt) => Math.round(size * (Math.sin(second / period) + chance(second, salt)) * 0.5);
        this.emit("totals", { ...steady, calls: steady.calls + wave(Math.max(3, steady.calls * 0.2), 4, 1), connections: steady.connections + wave(Math.max(3, steady.connections * 0.1), 6, 2), parks: steady.parks + wave(2, 5, 3), listens: steady.listens + (second > 9 ? 2 : 0) });
      }, 1000);
      timer.unref();
    },
    stop: () => new Promise((resolve) => {
      server.closeAllConnections();
      server.close(resolve);
    }),
  };
}
