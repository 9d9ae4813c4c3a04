// Checks of the console page in headless Chromium. Usage: console.mjs CHECK PAGE_FOLDER CHROMIUM [URL] [SCREENSHOT_FOLDER]
// URL is that of `rethread console`. The check `many` also needs MCP_URL, the URL of the gateway without a path.
// A check throws on the first thing that is wrong. The last line on stdout is `ok`.

import assert from "node:assert/strict";
import { join } from "node:path";
import { Browser } from "./chromium.mjs";
import { callWithProgress, listen, openSessions, statusOf } from "./sessions.mjs";
import { startStandIn } from "./stand_in.mjs";

const [check, pageFolder, chromium, url, folder] = process.argv.slice(2);

/** Names that try to become markup, script, another text or another line. */
const HOSTILE = [
  "<img src=x onerror=\"window.hacked=1;alert(1)\">",
  "<script>window.hacked=1</script>",
  "javascript:window.hacked=1",
  "\"><svg onload=window.hacked=1>",
  "{{constructor.constructor('window.hacked=1')()}}",
  "admin\u202etxt.exe\u2066",
  "a\nb\tc\u0000d",
  "\u200b\u200b",
  "x".repeat(128),
  "مرحبا שלום 你好 👩‍💻",
];

function hostileSession(name, n) {
  const time = new Date().toISOString();
  const tag = n.toString(16).padStart(16, "0");
  return {
    tag, server: "files", principal: { provider: name, issuer: name, subject: name }, revision: "2025-11-25", transport: "streamable",
    client: { name, version: name }, since: time, used: time, expires: null, calls: 1, child: null,
    streams: [{ ordinal: 1, kind: "call", method: name, first: 0, last: 3, cursor: 3, attached: true, sealed: false, bytes: 7, gap: false }],
  };
}

const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
const shot = async (browser, name) => folder && (await browser.screenshot(join(folder, `${name}.png`)));
const count = "document.getElementById('count').textContent";
const rows = "[...document.querySelectorAll('.row:not([hidden])')]";
const selectedTag = "document.querySelector('.detail-pane dd.tag')?.textContent ?? ''";

/** Contrast of every visible text against its background, at least 4.5 (3 for large text). Returns what is too faint. */
const FAINT = `(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => { const [r, g, b] = color.slice(0, 3).map((c) => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const background = (node) => { for (let at = node; at; at = at.parentElement) { const color = parse(getComputedStyle(at).backgroundColor); if (color.length < 4 || color[3] > 0) return color; } return [255, 255, 255]; };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) continue;
    if (!node.checkVisibility() || node.closest('option, noscript')) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(parse(style.color)), light(background(node))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if (ratio < least) found.push(node.className + ' ' + node.textContent.slice(0, 30) + ' ' + ratio.toFixed(2));
  }
  return found;
})()`;

/** Controls without a name for a screen reader. */
const NAMELESS = `[...document.querySelectorAll('button, input, select, [role=listbox], [role=img]')].filter((node) => node.checkVisibility() && !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length)).map((node) => node.outerHTML.slice(0, 80))`;

const CHECKS = {
  /** 10,000 sessions of a real gateway: all are listed, scrolling draws few rows and keeps up, and the filter finds one of them. */
  async many(browser) {
    const started = Date.now();
    const sessions = await openSessions(process.env.MCP_URL, ["files", "git", "search"], 10000);
    console.log(`10,000 sessions opened in ${((Date.now() - started) / 1000).toFixed(1)} s`);
    const open = [];
    for (let n = 0; n < 200; n++) open.push(await listen(sessions[n * 50]));
    const busy = sessions.filter((_, n) => n % 400 === 0);
    for (const session of busy) open.push(await callWithProgress(session, 2000, 100));
    const shownIn = Date.now();
    await browser.open(url, { still: false });
    await browser.until(`${count} === '10,000 sessions'`);
    console.log(`the page shows them after ${Date.now() - shownIn} ms`);
    assert.ok((await browser.run(`document.querySelectorAll('.row').length`)) < 60, "only visible rows exist");
    await pause(folder ? 25000 : 0); // a line of some seconds
    await shot(browser, "many");
    // Frames of the same length with and without scrolling: another program may use the processor.
    const frames = (step) => browser.run(`new Promise((done) => {
      const list = document.getElementById('list'), frames = []; let last = performance.now();
      const next = (now) => { frames.push(now - last); last = now; list.scrollTop += ${step}; if (frames.length < 240) requestAnimationFrame(next); else done(frames.sort((a, b) => a - b)); };
      requestAnimationFrame(next);
    })`);
    const still = await frames(0);
    const moving = await frames(700);
    const work = await browser.run(`(() => { const list = document.getElementById('list'); const start = performance.now(); for (let n = 0; n < 100; n++) { list.scrollTop = n * 5000; list.dispatchEvent(new Event('scroll')); } return new Promise((done) => requestAnimationFrame(() => done((performance.now() - start) / 100))); })()`);
    console.log(`frames: median ${still[120].toFixed(1)} ms still and ${moving[120].toFixed(1)} ms while scrolling, 95 % ${moving[228].toFixed(1)} ms; ${work.toFixed(2)} ms of work for each`);
    assert.ok(moving[120] < Math.max(25, 1.5 * still[120]), `the median frame takes ${moving[120]} ms while scrolling, and ${still[120]} ms otherwise`);
    assert.ok(work < 4, `a quarter of a frame is not enough: ${work} ms`);
    const last = sessions.at(-1).tag.slice(0, 8);
    await browser.run("(() => { const list = document.getElementById('list'); list.scrollTop = list.scrollHeight; })()");
    await browser.until(`${rows}.some((row) => row.textContent.includes('${last}'))`, "the last session is at the end");
    await shot(browser, "many-end");
    const chosen = busy[3];
    await browser.press("/");
    await browser.type(chosen.tag);
    await browser.until(`${count} === '1 of 10,000 sessions'`);
    await browser.press("Enter");
    await browser.press("Enter");
    await browser.until(`${selectedTag} === '${chosen.tag}'`);
    await browser.until("document.querySelector('.strip')?.getAttribute('aria-label')?.includes('cursor')");
    await shot(browser, "many-session");
    const before = await browser.run("document.querySelector('.cursor').style.left + document.querySelector('.strip').getAttribute('aria-label')");
    await browser.until(`document.querySelector('.cursor').style.left + document.querySelector('.strip').getAttribute('aria-label') !== ${JSON.stringify(before)}`, "the cursor moves");
    assert.equal(await statusOf(chosen), 200);
    await browser.press("x");
    await browser.until("document.getElementById('confirm').open");
    await browser.run("document.querySelector('#confirm button[value=yes]').click()");
    await browser.until("!document.getElementById('confirm').open");
    await browser.until(`document.querySelector('.detail-head').textContent.includes('ended')`);
    assert.equal(await statusOf(chosen), 404, "the session has ended");
    await browser.run("document.getElementById('q').value = ''; document.getElementById('q').dispatchEvent(new Event('input'))");
    await browser.until(`${count} === '9,999 sessions'`);
    for (const connection of open) connection.close();
  },

  /** Hostile names are text, and nothing else. */
  async hostile(browser) {
    const standIn = await startStandIn(pageFolder, { sessions: HOSTILE.map(hostileSession) });
    await browser.open(standIn.url);
    await browser.until(`${count} === '${HOSTILE.length} sessions'`);
    for (let n = 0; n < HOSTILE.length; n++) {
      await browser.press("j");
      await browser.press("Enter");
      await browser.until(`${selectedTag} === '${n.toString(16).padStart(16, "0")}'`);
    }
    standIn.emit("refusal", { time: new Date().toISOString(), server: HOSTILE[0], reason: HOSTILE[1], status: 403, session: null });
    const text = await browser.run("document.body.innerText");
    assert.ok(text.includes(HOSTILE[0]) && text.includes(HOSTILE[1]), "the names are shown as they are");
    assert.ok(!/[\u202e\u2066\u200b\u0000]/.test(text), "invisible characters are shown as numbers");
    assert.ok(text.includes("⟨202e⟩"), text);
    assert.deepEqual(await browser.run("[window.hacked ?? null, document.images.length, document.scripts.length]"), [null, 0, 1]);
    await browser.press("k");
    await shot(browser, "hostile");
    const width = await browser.run("document.documentElement.scrollWidth");
    assert.ok(width <= 1280, `the page is ${width} px wide`);
    await browser.open(standIn.url, { width: 360, height: 740 });
    await browser.until(`${count} === '${HOSTILE.length} sessions'`);
    assert.equal(await browser.run("document.documentElement.scrollWidth"), 360);
    await standIn.stop();
  },

  /** A lost feed is said, and the page comes back by itself. */
  async lost(browser) {
    const standIn = await startStandIn(pageFolder, { count: 40 });
    await browser.open(standIn.url);
    await browser.until(`${count} === '40 sessions' && document.getElementById('state-word').textContent === 'ready'`);
    await standIn.stop();
    await browser.until("document.getElementById('state-word').textContent === 'feed lost'");
    assert.ok(!(await browser.run("document.getElementById('notice').hidden")));
    assert.equal(await browser.run(count), "40 sessions", "the last data stay");
    await shot(browser, "lost");
    const next = await startStandIn(pageFolder, { count: 41, port: standIn.port });
    await browser.until(`${count} === '41 sessions' && document.getElementById('state-word').textContent === 'ready'`, "the page comes back");
    assert.ok(await browser.run("document.getElementById('notice').hidden"));
    await next.stop();
    browser.errors = []; // refused connections
  },

  /** Without a token, and with a wrong one, the page asks for it and shows nothing. */
  async token(browser) {
    const standIn = await startStandIn(pageFolder, { count: 5 });
    await browser.open(standIn.url.replace(/#.*/, ""));
    await browser.until("document.getElementById('login').open");
    assert.equal(await browser.run("document.querySelectorAll('.row').length"), 0);
    await browser.run("document.getElementById('token').value = 'wrong'; document.querySelector('#login button').click()");
    await browser.until("document.getElementById('login').open && document.getElementById('login-error').textContent !== ''");
    await browser.run(`document.getElementById('token').value = '${standIn.url.split("#")[1]}'; document.querySelector('#login button').click()`);
    await browser.until(`${count} === '5 sessions'`);
    await browser.open(standIn.url);
    await browser.until(`${count} === '5 sessions'`);
    assert.equal(await browser.run("location.hash"), "", "the token is not in the history");
    await standIn.stop();
    browser.errors = []; // the answers 401
  },

  /** Light, dark and narrow: contrast, names for screen readers, no horizontal scrolling, keys. */
  async looks(browser) {
    const standIn = await startStandIn(pageFolder, { count: 60 });
    const gap = standIn.sessions.find((session) => session.calls > 0);
    gap.streams.push({ ordinal: 3, kind: "call", method: "tools/call", first: 410, last: 505, cursor: 120, attached: true, sealed: false, bytes: 48123, gap: true });
    gap.streams.push({ ordinal: 5, kind: "call", method: "tools/call", first: 4096, last: 8191, cursor: 6000, attached: true, sealed: false, bytes: 4812300, gap: false });
    gap.streams.push({ ordinal: 7, kind: "call", method: "resources/read", first: 0, last: 30, cursor: null, attached: false, sealed: false, bytes: 5900, gap: false });
    if (folder) standIn.breathe();
    for (const [name, dark, width, height] of [["light", false, 1200, 800], ["dark", true, 1200, 800], ["narrow", false, 360, 740], ["narrow-dark", true, 360, 740]]) {
      await browser.open(standIn.url, { dark, width, height });
      await browser.until(`${count} === '60 sessions'`);
      await browser.until("document.getElementById('alert').textContent === 'gap'");
      const check = async (where) => {
        assert.deepEqual(await browser.run(FAINT), [], `${name} ${where}: faint`);
        assert.deepEqual(await browser.run(NAMELESS), [], `${name} ${where}: without a name`);
        assert.equal(await browser.run("document.documentElement.scrollWidth"), width, `${name} ${where}: too wide`);
      };
      await check("list");
      await shot(browser, `${name}-list`);
      await browser.press("/");
      await browser.type(gap.tag);
      await browser.press("Enter");
      await browser.press("Enter");
      await browser.until(`${selectedTag} === '${gap.tag}'`);
      await browser.run("document.getElementById('q').value = ''; document.getElementById('q').dispatchEvent(new Event('input'))");
      await browser.until(`${count} === '60 sessions'`);
      await check("session");
      await pause(folder ? 20000 : 0);
      await shot(browser, name);
      await browser.press("?");
      await browser.until("document.getElementById('help').open");
      await check("help");
      await browser.press("Escape");
      await browser.run("document.getElementById('help').close()");
      await browser.press("g");
      await browser.until(`${selectedTag} === ''`);
      await check("overview");
      await browser.press(" ");
      await browser.until("document.getElementById('state-word').textContent === 'paused'");
      await browser.press(" ");
      await browser.until("document.getElementById('state-word').textContent === 'ready'");
    }
    await standIn.stop();
  },

  /** The real listener: sessions that a test opens, a stream that moves, a gateway that goes. */
  async gateway(browser) {
    await browser.open(url);
    await browser.until(`/^\\d+ sessions?$/.test(${count}) && document.getElementById('state-word').textContent === 'ready'`);
    await browser.press("j");
    await browser.press("Enter");
    await browser.until(`${selectedTag}.length === 16`);
    await browser.until("document.querySelector('.strip.open')", "an open connection");
    await browser.until("/Pid/.test(document.getElementById('detail').innerText)", "the child");
    const text = await browser.run("document.body.innerText");
    assert.ok(text.includes("<img src=x onerror=window.hacked=1>"), text);
    assert.equal(await browser.run("window.hacked ?? null"), null);
    await shot(browser, "gateway");
    console.log("ready for the end of the gateway");
    await browser.until("document.getElementById('state-word').textContent === 'feed lost'");
    browser.errors = browser.errors.filter((error) => !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(error));
  },
};

const browser = await Browser.start(chromium);
try {
  await CHECKS[check](browser);
  assert.deepEqual(browser.errors, [], "the page reports errors");
  assert.deepEqual(browser.dialogs, [], "a script ran");
  console.log("ok");
} finally {
  await browser.stop();
}
process.exit(0);
