// Drives headless Chromium over the pipe of its debugging protocol. Needs nothing but Node.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LIMIT = 60_000;

/** A browser with one page. */
export class Browser {
  static async start(program) {
    const browser = new Browser();
    browser.profile = mkdtempSync(join(tmpdir(), "rethread-console-"));
    const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe", `--user-data-dir=${browser.profile}`, "about:blank"];
    browser.process = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    browser.next = 0;
    browser.waiting = new Map();
    browser.errors = [];
    browser.dialogs = [];
    let buffer = "";
    browser.process.stdio[4].on("data", (chunk) => {
      buffer += chunk;
      const messages = buffer.split("\0");
      buffer = messages.pop();
      for (const message of messages) browser.receive(JSON.parse(message));
    });
    const { targetInfos } = await browser.send("Target.getTargets");
    const page = targetInfos.find((target) => target.type === "page");
    const { sessionId } = await browser.send("Target.attachToTarget", { targetId: page.targetId, flatten: true });
    browser.session = sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await browser.send(`${domain}.enable`);
    return browser;
  }

  receive({ id, result, error, method, params }) {
    if (id !== undefined) {
      const waiter = this.waiting.get(id);
      this.waiting.delete(id);
      if (error) waiter?.reject(new Error(error.message));
      else waiter?.resolve(result);
    } else if (method === "Runtime.exceptionThrown") {
      this.errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    } else if (method === "Log.entryAdded" && params.entry.level === "error") {
      this.errors.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    } else if (method === "Page.javascriptDialogOpening") {
      this.dialogs.push(params.message);
      this.send("Page.handleJavaScriptDialog", { accept: true }).catch(() => {});
    }
  }

  send(method, params = {}) {
    const id = ++this.next;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${method} took too long`)), LIMIT);
      const done = (run) => (value) => {
        clearTimeout(timer);
        run(value);
      };
      this.waiting.set(id, { resolve: done(resolve), reject: done(reject) });
      this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.session })}\0`);
    });
  }

  async open(url, { width = 1280, height = 800, dark = false, still = true } = {}) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await this.look(dark, still);
    await this.send("Page.navigate", { url: "about:blank" });
    await this.send("Page.navigate", { url });
  }

  look(dark, still = true) {
    const features = [
      { name: "prefers-color-scheme", value: dark ? "dark" : "light" },
      { name: "prefers-reduced-motion", value: still ? "reduce" : "no-preference" },
    ];
    return this.send("Emulation.setEmulatedMedia", { features });
  }

  async run(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(`${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  /** Waits until an expression is true. */
  async until(expression, what = expression) {
    const end = Date.now() + LIMIT;
    for (;;) {
      const value = await this.run(expression).catch(() => false);
      if (value) return value;
      if (Date.now() > end) throw new Error(`never: ${what}; the page says ${await this.run("document.body.innerText.slice(0, 800)")}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async press(key) {
    const text = key.length === 1 ? key : key === "Enter" ? "\r" : undefined;
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", key, text });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", key });
  }

  async type(text) {
    await this.send("Input.insertText", { text });
  }

  async screenshot(file) {
    await this.run("document.fonts.ready.then(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))");
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    writeFileSync(file, Buffer.from(data, "base64"));
  }

  async stop() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await ended;
    try {
      rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
    } catch {
      // a process of the browser may still write there
    }
  }
}
