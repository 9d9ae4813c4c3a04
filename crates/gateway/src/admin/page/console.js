// The console page. It has no data of its own: everything comes from the admin API, with the token of the operator.
// Names of clients, tools and errors are hostile input, so text is only ever set as text.

const ROW_HEIGHT = 52;
const PAGE = 1000;
/** Sessions that the page keeps. Beyond it, the server filters. */
const MAX_SESSIONS = 20000;
const MAX_REFUSALS = 100;
const SPARK_SECONDS = 60;
/** Ticks of a strip. With more events, one tick stands for several. */
const MAX_TICKS = 160;
/** The part of a strip that stands for evicted events, however many they are. */
const EVICTED_SHARE = 0.12;
/** Places of a strip, so that a young stream grows from the left. */
const MIN_PLACES = 60;
const CRASH_LOOP = { crashes: 3, seconds: 60 };
const TOTALS = ["sessions", "calls", "connections", "children", "parks", "listens"];
const TOTAL_NAMES = { parks: "parked calls", listens: "subscriptions" };
const TOKEN_KEY = "rethread-admin-token";

const $ = (id) => document.getElementById(id);

const data = {
  sessions: new Map(),
  order: [],
  isCapped: false,
  totals: {},
  servers: [],
  providers: [],
  refusals: [],
  crashes: new Map(),
  gaps: new Set(),
  node: "",
  version: "",
  state: "connecting",
  actions: false,
};
const view = { tags: [], selected: null, current: -1, isPaused: false, isLost: false, child: null };
const samples = Object.fromEntries(TOTALS.map((name) => [name, []]));

// ---- small helpers ----

/** An element with text and children. There is no way to pass markup. */
function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key === "on") for (const [type, run] of Object.entries(value)) element.addEventListener(type, run);
    else if (key === "class") element.className = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Makes invisible and direction-changing characters visible, so that a name cannot pretend to be another text. */
function shown(text) {
  // A joiner inside an emoji is harmless.
  const hidden = /(?<!\p{Extended_Pictographic}\ufe0f?)\u200d|[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;
  return String(text ?? "").replace(hidden, (c) => "\u27e8" + c.codePointAt(0).toString(16).padStart(4, "0") + "\u27e9");
}

const number = new Intl.NumberFormat("en");
const bytes = (n) => (n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`);

function duration(millis) {
  const seconds = Math.max(0, Math.round(millis / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

const ago = (time) => (time ? duration(Date.now() - Date.parse(time)) : "–");
const isActive = (session) => session.calls > 0 || session.streams.some((stream) => stream.attached);
const hasGap = (session) => session.streams.some((stream) => stream.gap);
const clientName = (session) => shown(session.client?.name) || "unnamed client";
const subject = (session) => session.principal?.subject ?? "";

// ---- the API ----

function token() {
  const fragment = decodeURIComponent(location.hash.slice(1));
  if (fragment) {
    sessionStorage.setItem(TOKEN_KEY, fragment);
    history.replaceState(null, "", location.pathname + location.search); // not in the history of the browser
  }
  return sessionStorage.getItem(TOKEN_KEY);
}

class Unauthorized extends Error {}

async function call(path, options = {}) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(TOKEN_KEY)}` };
  const response = await fetch(`api/v1/${path}`, { ...options, headers, cache: "no-store" });
  if (response.status === 401) throw new Unauthorized();
  if (!response.ok) throw new Error(`${response.status} ${(await response.text()).trim()}`);
  return response;
}

async function readSnapshot(query) {
  const response = await call(`snapshot?${query}`);
  data.actions = response.headers.get("rethread-actions") === "on";
  return response.json();
}

/** Reads server-sent events. `fetch` and not `EventSource`, which cannot send a token. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop();
    for (const block of blocks) {
      const name = /^event: (.*)$/m.exec(block)?.[1];
      const text = /^data: (.*)$/m.exec(block)?.[1];
      if (name && text) yield { name, data: JSON.parse(text), at: performance.now() };
    }
  }
}

// ---- data ----

function put(session, at) {
  const known = data.sessions.has(session.tag);
  session.at = at;
  data.sessions.set(session.tag, session);
  if (!known) insertTag(session.tag);
  noteGaps(session);
}

function insertTag(tag) {
  let low = 0;
  let high = data.order.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.order[middle] < tag) low = middle + 1;
    else high = middle;
  }
  data.order.splice(low, 0, tag);
}

function remove(tag) {
  if (!data.sessions.delete(tag)) return;
  const at = data.order.indexOf(tag);
  if (at >= 0) data.order.splice(at, 1);
  data.gaps.delete(tag);
}

function noteGaps(session) {
  if (hasGap(session)) data.gaps.add(session.tag);
  else data.gaps.delete(session.tag);
}

/** Applies one event of the feed. Events that are older than the snapshot of their session are dropped. */
function apply({ name, data: change, at }) {
  switch (name) {
    case "session": {
      if (change.state === "opened") {
        const known = data.sessions.get(change.tag);
        if (!known && change.session && data.sessions.size < MAX_SESSIONS) put(change.session, at);
      } else if (change.state === "ended") {
        if (change.tag === view.selected) data.sessions.get(change.tag) && (view.ended = data.sessions.get(change.tag));
        remove(change.tag);
      } else {
        const session = data.sessions.get(change.tag);
        if (!session || at < session.at) return;
        const live = new Set(change.streams);
        session.calls = change.calls;
        session.used = change.used;
        session.expires = change.expires;
        session.streams = session.streams.filter((stream) => live.has(stream.ordinal));
        noteGaps(session);
      }
      mark("list", change.tag === view.selected ? "detail" : null);
      return;
    }
    case "stream": {
      const { tag, server, ...stream } = change;
      const session = data.sessions.get(tag);
      if (!session || at < session.at) return;
      const index = session.streams.findIndex((known) => known.ordinal === stream.ordinal);
      if (index >= 0) session.streams[index] = stream;
      else {
        session.streams.push(stream);
        session.streams.sort((a, b) => a.ordinal - b.ordinal);
      }
      noteGaps(session);
      mark("rows", tag === view.selected ? "detail" : null);
      return;
    }
    case "child": {
      const session = data.sessions.get(change.session);
      if (session) {
        if (change.state === "started") session.child = { pid: change.pid, since: change.since };
        else if (session.child?.pid === change.pid) session.child = null;
      }
      readOverviewSoon();
      mark(change.session && change.session === view.selected ? "detail" : null);
      return;
    }
    case "refusal":
      data.refusals.push(change);
      if (data.refusals.length > MAX_REFUSALS) data.refusals.shift();
      mark("detail");
      return;
    case "totals":
      data.totals = change;
      mark("totals", view.selected ? null : "detail");
      return;
    case "state":
      data.state = change.state;
      mark("top");
      return;
    case "reset":
      readAll();
  }
}

function noteOverview(snapshot) {
  data.node = snapshot.node;
  data.version = snapshot.rethread;
  data.state = snapshot.state;
  data.totals = snapshot.totals;
  data.providers = snapshot.providers;
  data.refusals = snapshot.errors;
  const now = performance.now();
  for (const server of snapshot.servers) {
    const seen = data.crashes.get(server.name) ?? { count: server.children.crashes, times: [] };
    for (let n = seen.count; n < server.children.crashes; n++) seen.times.push(now);
    seen.count = server.children.crashes;
    data.crashes.set(server.name, seen);
  }
  data.servers = snapshot.servers;
  mark("top", "totals", view.selected ? null : "detail");
}

function isCrashLoop(name) {
  const oldest = performance.now() - CRASH_LOOP.seconds * 1000;
  const times = data.crashes.get(name)?.times ?? [];
  while (times.length && times[0] < oldest) times.shift();
  return times.length >= CRASH_LOOP.crashes;
}

/** What is wrong, in one word. */
function alertWord() {
  if (data.state === "degraded") return "store";
  if (data.state === "keys" || data.providers.some((provider) => provider.outcome === "failed")) return "keys";
  if (data.servers.some((server) => isCrashLoop(server.name))) return "crash loop";
  if (data.gaps.size > 0) return data.gaps.size === 1 ? "gap" : `${data.gaps.size} gaps`;
  return "";
}

let reading = null;
let isReadAgain = false;

/** Reads all pages of sessions. A second call while one runs reads once more afterwards. */
function readAll() {
  if (reading) {
    isReadAgain = true;
    return reading;
  }
  reading = (async () => {
    const started = performance.now();
    const seen = new Set();
    let after = "";
    do {
      const at = performance.now();
      const filter = data.isCapped ? serverFilter() : "";
      const snapshot = await readSnapshot(`limit=${PAGE}&after=${after}${filter}`);
      if (!after) noteOverview(snapshot);
      for (const session of snapshot.sessions) {
        seen.add(session.tag);
        put(session, at);
      }
      mark("list", "detail");
      after = snapshot.next ?? "";
    } while (after && seen.size < MAX_SESSIONS);
    data.isCapped = data.isCapped || after !== "";
    for (const tag of data.order.filter((tag) => !seen.has(tag))) {
      if (data.sessions.get(tag).at < started) remove(tag); // the feed has brought the others
    }
    readCapped();
    mark("list", "detail");
  })().finally(() => {
    reading = null;
    if (isReadAgain) {
      isReadAgain = false;
      setTimeout(() => readAll().catch(report), 1000);
    }
  });
  return reading;
}

let overviewTimer = null;

function readOverviewSoon() {
  overviewTimer ??= setTimeout(async () => {
    overviewTimer = null;
    try {
      noteOverview(await readSnapshot("limit=1"));
    } catch (error) {
      report(error);
    }
  }, 1000);
}

function serverFilter() {
  const filter = new URLSearchParams({ q: $("q").value, server: $("server").value, principal: $("principal").value, state: $("use").value });
  return `&${filter}`;
}

let cappedTimer = null;
let readFilter = "";

/** With more sessions than the page keeps, the server must filter. */
function readCapped() {
  if (!data.isCapped || serverFilter() === readFilter) return;
  clearTimeout(cappedTimer);
  cappedTimer = setTimeout(() => {
    readFilter = serverFilter();
    data.sessions.clear();
    data.order = [];
    readAll().catch(report);
  }, 250);
}

// ---- the feed ----

let retry = 1;

async function follow() {
  for (;;) {
    try {
      const response = await call("feed");
      await Promise.all([drain(response), readAll()]);
      throw new Error("the gateway has closed it");
    } catch (error) {
      if (error instanceof Unauthorized) {
        await login(sessionStorage.getItem(TOKEN_KEY) ? "The gateway does not know this token." : "");
        continue;
      }
      lose(error);
      await new Promise((resolve) => setTimeout(resolve, retry * 1000));
      retry = Math.min(retry * 2, 10);
    }
  }
}

async function drain(response) {
  retry = 1;
  view.isLost = false;
  document.body.classList.remove("stale");
  $("notice").hidden = true;
  mark("top");
  for await (const event of events(response)) {
    if (!view.isPaused) apply(event);
  }
}

function lose(error) {
  view.isLost = true;
  document.body.classList.add("stale");
  $("notice").textContent = `The feed is lost (${shown(error.message)}). What you see is from ${new Date().toLocaleTimeString()}. Trying again.`;
  $("notice").hidden = false;
  mark("top");
}

function report(error) {
  if (!(error instanceof Unauthorized)) console.warn("rethread console:", error.message);
}

function login(message) {
  return new Promise((resolve) => {
    $("login-error").textContent = message;
    $("token").value = "";
    $("login").showModal();
    $("login").addEventListener("cancel", (event) => event.preventDefault(), { once: true });
    $("login-form").addEventListener(
      "submit",
      () => {
        sessionStorage.setItem(TOKEN_KEY, $("token").value.trim());
        resolve();
      },
      { once: true },
    );
  });
}

// ---- drawing: once per frame, and only what has changed ----

const dirty = new Set();
let frame = null;

function mark(...parts) {
  for (const part of parts) if (part) dirty.add(part);
  if (dirty.size) frame ??= requestAnimationFrame(draw);
}

function draw() {
  frame = null;
  const parts = new Set(dirty);
  dirty.clear();
  if (parts.has("list")) filter();
  if (parts.has("list") || parts.has("rows")) drawRows();
  if (parts.has("totals")) drawTotals();
  if (parts.has("top") || parts.has("list") || parts.has("rows")) drawTop();
  if (parts.has("detail") || parts.has("list")) drawDetail();
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function drawTop() {
  setText($("node"), data.node ? `${shown(data.node)} · ${data.version}` : "");
  const state = view.isLost ? "lost" : view.isPaused ? "paused" : data.state;
  $("state").dataset.state = state;
  setText($("state-word"), state === "lost" ? "feed lost" : state);
  setText($("alert"), alertWord());
  document.title = alertWord() ? `${alertWord()} · Rethread console` : "Rethread console";
}

const totalCells = Object.fromEntries(
  TOTALS.map((name) => {
    const value = el("div", { class: "value", text: "–" });
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${SPARK_SECONDS} 24`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    svg.append(line);
    const cell = el("div", { class: "total" }, el("div", { class: "name", text: TOTAL_NAMES[name] ?? name }), value);
    cell.append(svg);
    $("totals").append(cell);
    return [name, { value, line }];
  }),
);

function drawTotals() {
  for (const name of TOTALS) {
    const total = data.totals[name];
    setText(totalCells[name].value, total === undefined ? "–" : number.format(total));
  }
}

/** One sample a second. A line that does not change is not drawn again. */
function sample() {
  if (view.isPaused || view.isLost || data.totals.sessions === undefined) return;
  for (const name of TOTALS) {
    const values = samples[name];
    values.push(data.totals[name]);
    if (values.length > SPARK_SECONDS) values.shift();
    const high = Math.max(1, ...values) * 1.2;
    const first = SPARK_SECONDS - values.length;
    const points = values.map((value, at) => `${first + at + 1},${(23 - (value / high) * 22).toFixed(1)}`);
    if (points.length === 1) points.unshift(`${first},${points[0].split(",")[1]}`);
    const text = points.join(" ");
    if (totalCells[name].line.getAttribute("points") !== text) totalCells[name].line.setAttribute("points", text);
  }
}

// ---- the list ----

function filter() {
  const text = $("q").value.trim().toLowerCase();
  const [server, principal, era, use] = ["server", "principal", "era", "use"].map((id) => $(id).value);
  const matches = (session) =>
    (!server || session.server === server) &&
    (!principal || subject(session) === principal) &&
    (!era || session.revision === era) &&
    (!use || (use === "active") === isActive(session)) &&
    (!text ||
      session.tag.includes(text) ||
      session.server.toLowerCase().includes(text) ||
      (session.client?.name ?? "").toLowerCase().includes(text) ||
      subject(session).toLowerCase().includes(text));
  const isFiltered = text || server || principal || era || use;
  const currentTag = view.tags[view.current];
  view.tags = isFiltered ? data.order.filter((tag) => matches(data.sessions.get(tag))) : data.order.slice();
  view.current = currentTag === undefined ? -1 : Math.min(view.tags.length - 1, lowerBound(view.tags, currentTag));
  $("spacer").style.height = `${view.tags.length * ROW_HEIGHT}px`;
  const all = data.isCapped ? (data.totals.sessions ?? data.order.length) : data.order.length;
  const found = number.format(view.tags.length);
  setText($("count"), isFiltered || data.isCapped ? `${found} of ${number.format(all)} sessions` : `${found} session${view.tags.length === 1 ? "" : "s"}`);
  drawChoices();
}

function lowerBound(tags, tag) {
  let low = 0;
  let high = tags.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tags[middle] < tag) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawChoices() {
  const servers = new Set(data.servers.map((server) => server.name));
  const principals = new Set();
  const eras = new Set();
  for (const session of data.sessions.values()) {
    servers.add(session.server);
    eras.add(session.revision);
    if (subject(session) && principals.size < 200) principals.add(subject(session));
  }
  choices($("server"), servers);
  choices($("principal"), principals);
  choices($("era"), eras, (revision) => (revision >= "2026" ? revision : `${revision} (sessions)`));
}

function choices(select, values, label = shown) {
  const wanted = [...values].sort();
  if (select.value && !wanted.includes(select.value)) wanted.push(select.value);
  const known = [...select.options].slice(1).map((option) => option.value);
  if (wanted.length === known.length && wanted.every((value, at) => value === known[at])) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...wanted.map((value) => el("option", { value, text: label(value) })));
  select.value = chosen;
}

const pool = [];
const emptyNote = el("p", { class: "empty", hidden: true });
$("list").append(emptyNote);

function newRow() {
  const parts = { who: el("span", { class: "who" }), first: el("span", { class: "note first" }), meta: el("span", { class: "meta" }), second: el("span", { class: "note" }) };
  const row = el("div", { class: "row", role: "option" }, el("div", {}, parts.who, parts.first), el("div", {}, parts.meta, parts.second));
  row.parts = parts;
  row.addEventListener("click", () => {
    view.current = row.index;
    select(view.tags[row.index]);
  });
  $("list").append(row);
  return row;
}

function drawRows() {
  const list = $("list");
  const first = Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT) - 4);
  const count = Math.min(view.tags.length - first, Math.ceil(list.clientHeight / ROW_HEIGHT) + 8);
  while (pool.length < count) pool.push(newRow());
  const now = Date.now();
  pool.forEach((row, at) => {
    const index = first + at;
    const session = at < count ? data.sessions.get(view.tags[index]) : undefined;
    row.hidden = !session;
    if (session) drawRow(row, index, session, now);
  });
  const isEmpty = view.tags.length === 0;
  emptyNote.hidden = !isEmpty;
  if (isEmpty) setText(emptyNote, data.order.length ? "No session matches the filter." : "No sessions yet. They appear here when a client connects.");
  const current = pool.find((row) => !row.hidden && row.index === view.current);
  if (current) list.setAttribute("aria-activedescendant", current.id);
  else list.removeAttribute("aria-activedescendant");
}

function drawRow(row, index, session, now) {
  row.index = index;
  row.id = `row-${index}`;
  row.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
  const active = isActive(session);
  const open = session.streams.filter((stream) => stream.attached).length;
  const classes = ["row", active && "active", hasGap(session) && "gap", index === view.current && "current"];
  row.className = classes.filter(Boolean).join(" ");
  row.setAttribute("aria-selected", session.tag === view.selected ? "true" : "false");
  row.setAttribute("aria-setsize", view.tags.length);
  row.setAttribute("aria-posinset", index + 1);
  setText(row.parts.who, clientName(session));
  const activity = [session.calls && `${session.calls} call${session.calls > 1 ? "s" : ""}`, open && `${open} open`].filter(Boolean);
  setText(row.parts.first, hasGap(session) ? "gap" : activity.join(" · "));
  const meta = [session.tag.slice(0, 8), session.server, subject(session)].filter(Boolean).map(shown);
  setText(row.parts.meta, meta.join(" · "));
  setText(row.parts.second, active ? "now" : duration(now - Date.parse(session.used)));
}

function select(tag) {
  view.selected = tag ?? null;
  view.ended = null;
  view.child = null;
  document.body.classList.toggle("showing", Boolean(tag));
  mark("rows", "detail");
  if (tag) $("detail").scrollTop = 0;
}

function move(step) {
  if (!view.tags.length) return;
  view.current = Math.max(0, Math.min(view.tags.length - 1, view.current + step));
  const list = $("list");
  const top = view.current * ROW_HEIGHT;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW_HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW_HEIGHT - list.clientHeight;
  list.focus({ preventScroll: true });
  mark("rows");
}

// ---- the right side ----

let drawnDetail = null;

function drawDetail() {
  const session = data.sessions.get(view.selected) ?? view.ended;
  if (view.selected && session) drawSession(session, !data.sessions.has(view.selected));
  else drawOverview();
}

function fact(name, value, isCode) {
  return el("div", {}, el("dt", { text: name }), el("dd", { class: isCode ? "tag" : null, text: value === "" ? "–" : value }));
}

/** The parts that change often stay in the document, so that their transitions run and the focus stays. */
function drawSession(session, hasEnded) {
  if (drawnDetail?.tag !== session.tag) {
    drawnDetail = {
      tag: session.tag,
      title: el("h2"),
      facts: el("dl", { class: "facts" }),
      streams: el("div"),
      child: el("div"),
      refusals: el("div"),
      strips: new Map(),
      end: el("button", { type: "button", class: "danger", text: "End session", on: { click: endSession } }),
    };
    const back = el("button", { type: "button", class: "back", text: "Back", on: { click: () => select(null) } });
    const block = (name, body) => el("section", { class: "block", "aria-label": name }, el("h2", { text: name }), body);
    $("detail").replaceChildren(
      el("div", { class: "detail-head" }, back, drawnDetail.title, drawnDetail.end),
      drawnDetail.facts,
      block("Streams", drawnDetail.streams),
      block("Child", drawnDetail.child),
      block("Refusals", drawnDetail.refusals),
    );
  }
  const detail = drawnDetail;
  detail.end.hidden = !data.actions || hasEnded;
  const version = shown(session.client?.version);
  detail.title.replaceChildren(clientName(session), el("small", { text: `${version ? ` ${version}` : ""}${hasEnded ? " · ended" : ""}` }));
  const principal = session.principal ?? { subject: "anonymous", issuer: "" };
  replaceIfChanged(detail.facts, [
    fact("Tag", session.tag, true),
    fact("Server", shown(session.server)),
    fact("Caller", shown(principal.subject)),
    fact("Provider", shown(principal.provider ?? principal.issuer)),
    fact("Revision", session.revision),
    fact("Transport", session.transport),
    fact("Open for", ago(session.since)),
    fact("Last used", isActive(session) ? "now" : `${ago(session.used)} ago`),
    fact("Expires in", session.expires ? duration(Date.parse(session.expires) - Date.now()) : "not while in use"),
    fact("Running calls", number.format(session.calls)),
  ]);
  drawStreams(session, detail);
  drawChild(session, detail);
  const refusals = data.refusals.filter((refusal) => refusal.session === session.tag);
  replaceIfChanged(detail.refusals, [refusalTable(refusals, false)]);
}

/** Replaces children only if their text differs: a selection of the reader stays. */
function replaceIfChanged(parent, children) {
  const text = children.map((child) => child.textContent).join("\u0000");
  if (parent.drawn === text) return;
  parent.drawn = text;
  parent.replaceChildren(...children);
}

function drawStreams(session, detail) {
  const live = new Set(session.streams.map((stream) => stream.ordinal));
  for (const [ordinal, strip] of detail.strips) {
    if (live.has(ordinal)) continue;
    strip.root.remove();
    detail.strips.delete(ordinal);
  }
  if (!session.streams.length) {
    replaceIfChanged(detail.streams, [el("p", { class: "quiet", text: "No open stream. Answers without events are plain JSON and need none." })]);
    return;
  }
  if (detail.streams.drawn) {
    detail.streams.drawn = undefined;
    detail.streams.replaceChildren();
  }
  for (const stream of session.streams) {
    let strip = detail.strips.get(stream.ordinal);
    if (!strip) {
      strip = newStrip();
      detail.strips.set(stream.ordinal, strip);
    }
    drawStrip(strip, stream);
  }
  const ordered = session.streams.map((stream) => detail.strips.get(stream.ordinal).root);
  if (ordered.some((root, at) => detail.streams.children[at] !== root)) detail.streams.replaceChildren(...ordered);
}

function newStrip() {
  const parts = {};
  for (const name of ["evicted", "missing", "ticks", "taken", "cursor"]) parts[name] = el("div", { class: name });
  const bar = el("div", { class: "strip", role: "img" }, parts.evicted, parts.missing, parts.ticks, parts.taken, parts.cursor);
  const [name, numbers, warn] = ["name", "numbers", "warn"].map((kind) => el("span", { class: kind }));
  return { root: el("div", { class: "stream" }, el("div", { class: "stream-head" }, name, warn, numbers), bar), bar, name, numbers, warn, ...parts };
}

/**
 * Places a stream on its strip, in percent. Evicted events have a fixed share on the left; every retained event has the same width.
 * An event is in the middle of its place, and the cursor is behind the last event that the client has.
 */
function place(stream) {
  const last = stream.last ?? -1;
  const first = Math.min(stream.first ?? 0, last + 1);
  const evicted = first > 0 ? EVICTED_SHARE * 100 : 0;
  const events = Math.max(0, last - first + 1);
  const width = 100 - evicted;
  const places = Math.max(events, MIN_PLACES);
  const at = (seq) => {
    if (seq >= first) return evicted + ((Math.min(seq, last) - first + 1) / places) * width;
    return first > 0 ? (Math.max(0, seq + 1) / first) * evicted : 0;
  };
  const ticks = Math.min(places, MAX_TICKS);
  return { first, last, evicted, events, end: at(last), tick: width / ticks, cursor: stream.cursor === null ? null : at(stream.cursor) };
}

function drawStrip(strip, stream) {
  const placed = place(stream);
  strip.bar.className = ["strip", stream.attached && "open", stream.sealed && "sealed"].filter(Boolean).join(" ");
  strip.evicted.style.width = `${placed.evicted}%`;
  strip.evicted.hidden = placed.evicted === 0;
  const width = placed.end - placed.evicted;
  const taken = Math.max(0, (placed.cursor ?? 0) - placed.evicted);
  for (const ticks of [strip.ticks, strip.taken]) {
    ticks.style.left = `${placed.evicted}%`;
    ticks.style.width = `${width}%`;
    ticks.style.backgroundSize = width > 0 ? `${(placed.tick / width) * 100}% 100%` : "0 0";
    ticks.hidden = placed.events === 0;
  }
  strip.taken.style.clipPath = width > 0 ? `inset(0 ${(1 - taken / width) * 100}% 0 0)` : "none";
  strip.cursor.hidden = placed.cursor === null;
  if (placed.cursor !== null) strip.cursor.style.left = `${placed.cursor}%`;
  const isBehind = stream.gap && placed.cursor !== null && placed.cursor < placed.evicted;
  strip.missing.hidden = !stream.gap;
  strip.missing.style.left = isBehind ? `${placed.cursor}%` : `${placed.end}%`;
  strip.missing.style.width = isBehind ? `${placed.evicted - placed.cursor}%` : "12px";
  const method = stream.method ? ` ${shown(stream.method)}` : "";
  setText(strip.name, `${stream.ordinal} · ${stream.kind}${method}`);
  setText(strip.warn, stream.gap ? "gap" : "");
  const span = placed.events === 0 ? "no events" : `${number.format(placed.first)} to ${number.format(placed.last)}`;
  const state = [stream.attached ? "open" : "no connection", stream.sealed && "ended"].filter(Boolean).join(", ");
  const cursor = stream.cursor === null ? "" : ` · cursor ${number.format(stream.cursor)}`;
  setText(strip.numbers, `${span}${cursor} · ${bytes(stream.bytes)} · ${state}`);
  const evicted = placed.first > 0 ? `, ${placed.first} evicted` : "";
  const gap = stream.gap ? ", with a gap" : "";
  strip.bar.setAttribute("aria-label", `Stream ${stream.ordinal}, ${stream.kind}${method}: events ${span}${evicted}${cursor.replace(" · ", ", ")}${gap}, ${state}`);
}

function drawChild(session, detail) {
  if (!session.child) {
    replaceIfChanged(detail.child, [el("p", { class: "quiet", text: "No child process runs for this session." })]);
    return;
  }
  const { pid, since } = session.child;
  if (view.child?.pid !== pid || performance.now() - view.child.at > 5000) readChild(pid);
  const known = view.child?.pid === pid ? view.child : {};
  const facts = el("dl", { class: "facts" }, fact("Pid", String(pid), true), fact("Age", ago(since)), fact("Crashes of the server", known.crashes === undefined ? "…" : number.format(known.crashes)));
  const lines = known.stderr ?? [];
  const box = el("div", { class: "box" }, facts, lines.length ? el("pre", { class: "stderr", tabindex: "0", "aria-label": "Last lines on stderr", text: lines.map(shown).join("\n") }) : null);
  replaceIfChanged(detail.child, [box]);
}

async function readChild(pid) {
  view.child = { ...(view.child?.pid === pid ? view.child : {}), pid, at: performance.now() };
  try {
    const child = await (await call(`children/${pid}`)).json();
    if (view.child?.pid === pid) view.child = { ...child, at: performance.now() };
    mark("detail");
  } catch (error) {
    report(error); // it has ended
  }
}

function refusalTable(refusals, withSession) {
  if (!refusals.length) return el("p", { class: "quiet", text: "None." });
  const head = ["Time", "Reason", "Status", "Server", ...(withSession ? ["Session"] : [])];
  const rows = refusals.slice(-20).reverse().map((refusal) =>
    el("tr", {}, ...[new Date(refusal.time).toLocaleTimeString(), refusal.reason, String(refusal.status), shown(refusal.server), ...(withSession ? [refusal.session?.slice(0, 8) ?? "–"] : [])].map((text) => el("td", { text }))),
  );
  return table(head, rows);
}

function table(head, rows, numbers = []) {
  const cells = head.map((text) => el("th", { text, scope: "col", class: numbers.includes(text) ? "number" : null }));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...cells)), el("tbody", {}, ...rows)));
}

function drawOverview() {
  if (drawnDetail?.tag !== null) {
    drawnDetail = { tag: null, servers: el("div"), providers: el("div"), refusals: el("div") };
    const block = (name, body) => el("section", { class: "block", "aria-label": name }, el("h2", { text: name }), body);
    const back = el("button", { type: "button", class: "back", text: "Back", on: { click: () => select(null) } });
    drawnDetail.providersBlock = block("Providers of identities", drawnDetail.providers);
    $("detail").replaceChildren(el("div", { class: "detail-head" }, back, el("h2", { text: "Overview" })), block("Servers", drawnDetail.servers), drawnDetail.providersBlock, block("Last refusals", drawnDetail.refusals));
  }
  const numbers = ["Sessions", "Children", "Limit", "Starts", "Crashes"];
  const servers = data.servers.map(({ name, eras, sessions, children }) =>
    el(
      "tr",
      {},
      el("td", { text: shown(name) }),
      el("td", {}, ...eras.split(", ").map((part) => el("div", { text: part }))),
      ...[sessions, children.running, children.limit, children.starts].map((n) => el("td", { class: "number", text: number.format(n) })),
      el("td", { class: isCrashLoop(name) ? "number bad" : "number", text: number.format(children.crashes) }),
    ),
  );
  replaceIfChanged(drawnDetail.servers, [servers.length ? table(["Server", "Eras", ...numbers], servers, numbers) : el("p", { class: "quiet", text: "No server is known yet." })]);
  drawnDetail.providersBlock.hidden = data.providers.length === 0;
  const providers = data.providers.map(({ name, keys, age, outcome }) =>
    el("tr", {}, el("td", { text: shown(name) }), el("td", { class: "number", text: number.format(keys) }), el("td", { text: age === null ? "never" : `${duration(age * 1000)} ago` }), el("td", { class: outcome === "failed" ? "bad" : null, text: outcome ?? "–" })),
  );
  replaceIfChanged(drawnDetail.providers, [table(["Provider", "Keys", "Loaded", "Last fetch"], providers, ["Keys"])]);
  replaceIfChanged(drawnDetail.refusals, [refusalTable(data.refusals, true)]);
}

// ---- actions ----

function endSession() {
  const session = data.sessions.get(view.selected);
  if (!session || !data.actions) return;
  $("confirm-text").textContent = `${clientName(session)}, ${session.tag}. Its calls are cancelled, and its client must open a new session.`;
  const dialog = $("confirm");
  dialog.returnValue = "no";
  dialog.addEventListener(
    "close",
    async () => {
      if (dialog.returnValue !== "yes") return;
      try {
        await call(`sessions/${session.tag}/end`, { method: "POST" });
      } catch (error) {
        $("notice").textContent = `The session was not ended: ${shown(error.message)}`;
        $("notice").hidden = false;
      }
    },
    { once: true },
  );
  dialog.showModal();
}

function pause() {
  view.isPaused = !view.isPaused;
  $("pause").setAttribute("aria-pressed", String(view.isPaused));
  setText($("pause"), view.isPaused ? "Continue" : "Pause");
  if (!view.isPaused) readAll().catch(report);
  mark("top");
}

const KEYS = {
  "/": () => $("q").focus(),
  j: () => move(1),
  k: () => move(-1),
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  PageDown: () => move(10),
  PageUp: () => move(-10),
  Enter: () => {
    if (view.current < 0) return;
    select(view.tags[view.current]);
    $("detail").focus({ preventScroll: true });
  },
  g: () => select(null),
  "?": () => $("help").showModal(),
  x: endSession,
  " ": pause,
  Escape: () => select(null),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target;
  if (target === $("q") && (event.key === "Escape" || event.key === "Enter")) {
    event.preventDefault();
    filter();
    view.current = view.tags.length ? Math.max(0, view.current) : -1;
    $("list").focus();
    mark("rows");
    return;
  }
  if (target.matches("input, select, textarea")) return;
  const isScrolling = target === $("detail") && event.key.startsWith("Arrow");
  if (target.matches("button") && (event.key === "Enter" || event.key === " ")) return;
  const run = isScrolling ? undefined : KEYS[event.key];
  if (!run) return;
  event.preventDefault();
  run();
});

$("filters").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["q", "server", "principal", "era", "use"]) {
  $(id).addEventListener("input", () => {
    filter();
    const selected = view.tags.indexOf(view.selected);
    if (selected >= 0) view.current = selected;
    $("list").scrollTop = Math.max(0, (selected - 2) * ROW_HEIGHT);
    readCapped();
    mark("list");
  });
}
$("list").addEventListener("scroll", () => mark("rows"), { passive: true });
new ResizeObserver(() => mark("rows")).observe($("list"));
$("pause").addEventListener("click", pause);
$("overview-button").addEventListener("click", () => select(null) ?? document.body.classList.add("showing"));
$("help-button").addEventListener("click", () => $("help").showModal());
window.addEventListener("hashchange", () => token() && location.reload());

setInterval(sample, 1000);
setInterval(() => mark("rows", "detail"), 5000); // the ages

token();
mark("top", "list", "totals", "detail");
follow();
