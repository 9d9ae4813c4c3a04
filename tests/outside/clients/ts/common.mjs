// Shared by the other scripts: one interface for both official TypeScript
// clients, a recorder of HTTP exchanges through their `fetch` option, and the report.

/** Prints one line per check and counts them. */
export class Report {
  passed = 0;
  failed = 0;

  ok(name) {
    this.passed += 1;
    console.log(`ok ${name}`);
  }

  fail(name, reason) {
    this.failed += 1;
    const text = reason instanceof Error ? reason.message : String(reason);
    console.log(`FAIL ${name}: ${text.replace(/\s+/g, ' ').slice(0, 600)}`);
  }

  /** Runs `body`; a throw (or taking longer than `limitMs`) is a failure. */
  async check(name, body, limitMs = 20_000) {
    try {
      await within(body(), limitMs, `no end within ${limitMs} ms`);
      this.ok(name);
    } catch (error) {
      this.fail(name, error);
    }
  }

  /** Prints the last line and exits at once, because a client that still retries would keep the process alive. */
  finish() {
    process.stdout.write(`${this.passed} passed, ${this.failed} failed\n`, () => {
      process.exit(this.failed === 0 && this.passed > 0 ? 0 : 1);
    });
  }
}

/** Ends the process as failed when the whole run takes too long. */
export function watchdog(report, ms) {
  setTimeout(() => {
    report.fail('watchdog', `the run did not end within ${ms} ms`);
    report.finish();
  }, ms).unref();
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export function within(promise, ms, message) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(message)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Waits until `test()` is true; throws with `message()` otherwise. */
export async function until(test, ms, message) {
  const end = Date.now() + ms;
  while (!(await test())) {
    if (Date.now() > end) throw new Error(typeof message === 'function' ? message() : message);
    await sleep(20);
  }
}

export function assert(condition, message) {
  if (!condition) throw new Error(message);
}

export function equal(actual, expected, what = 'value') {
  const [a, e] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== e) throw new Error(`${what}: got ${a}, expected ${e}`);
}

/** `values` must be 1..count, in order, each once. */
export function sequence(values, count, what) {
  const expected = Array.from({ length: count }, (_, i) => i + 1);
  equal(values, expected, what);
}

export function text(result) {
  const block = result.content?.[0];
  assert(block?.type === 'text', `first block is not text: ${JSON.stringify(result).slice(0, 200)}`);
  return block.text;
}

/** A small seeded generator (mulberry32), so that a run can be repeated. */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Records every HTTP exchange the client makes. With `bodies`, also the SSE or JSON
 * text of each response, to see which stream carried what; leave it off where
 * connections are cut, so that recording does not affect the client's reads.
 */
export class Wire {
  exchanges = [];

  constructor({ bodies }) {
    this.bodies = bodies;
  }

  fetch = async (url, init) => {
    const headers = new Headers(init?.headers);
    const exchange = {
      method: init?.method ?? 'GET',
      url: String(url),
      at: Date.now(),
      session: headers.get('mcp-session-id'),
      lastEventId: headers.get('last-event-id'),
      headers,
      rpc: undefined,
      sent: undefined,
      status: undefined,
      answered: undefined,
      sse: '',
      json: '',
      open: true,
    };
    if (typeof init?.body === 'string') {
      const message = JSON.parse(init.body);
      exchange.sent = message;
      exchange.rpc = { id: message.id, method: message.method, tool: message.params?.name };
    }
    this.exchanges.push(exchange);
    const response = await fetch(url, init);
    exchange.status = response.status;
    exchange.answered = response.headers;
    const type = response.headers.get('content-type') ?? '';
    const field = type.startsWith('text/event-stream') ? 'sse' : type.startsWith('application/json') ? 'json' : undefined;
    if (!this.bodies || !field || !response.body) return response;
    const decoder = new TextDecoder();
    const tap = new TransformStream({
      transform(chunk, controller) {
        exchange[field] += decoder.decode(chunk, { stream: true });
        controller.enqueue(chunk);
      },
      flush() {
        exchange.open = false;
      },
    });
    return new Response(response.body.pipeThrough(tap), {
      status: response.status,
      statusText: response.statusText,
      headers: response.headers,
    });
  };

  count(test) {
    return this.exchanges.filter(test).length;
  }

  /** GETs that carried a cursor. */
  resumes() {
    return this.count((e) => e.method === 'GET' && e.lastEventId);
  }

  /** GETs without a cursor: the standalone stream, or a client that lost its cursor. */
  freshGets() {
    return this.count((e) => e.method === 'GET' && !e.lastEventId);
  }
}

const RECONNECTION = {
  initialReconnectionDelay: 50,
  maxReconnectionDelay: 500,
  reconnectionDelayGrowFactor: 1.2,
};

/**
 * Connects one of the two clients and hides their differences.
 *
 * `which` is `sdk1` (@modelcontextprotocol/sdk 1.x) or `client2` (@modelcontextprotocol/client 2.x).
 * `on.notification(method, params)` gets every notification except progress;
 * `on.sampling`, `on.elicitation`, `on.roots` answer the server's requests.
 * `transport` replaces the one for Streamable HTTP to `url`. `mode` is the version negotiation of `client2`.
 */
export async function connect(which, url, { wire, on, maxRetries, timeout = 30_000, transport, mode = 'legacy', elicitation = { form: {} } }) {
  const info = { name: `outside-${which}`, version: '1.0.0' };
  const capabilities = { sampling: {}, elicitation, roots: { listChanged: true } };
  const options = { fetch: wire?.fetch, reconnectionOptions: { ...RECONNECTION, maxRetries } };
  const errors = [];
  const notifications = [
    'notifications/message',
    'notifications/resources/updated',
    'notifications/resources/list_changed',
    'notifications/tools/list_changed',
    'notifications/prompts/list_changed',
  ];
  let client;
  let call;

  if (which === 'sdk1') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const types = await import('@modelcontextprotocol/sdk/types.js');
    client = new Client(info, { capabilities });
    transport ??= new StreamableHTTPClientTransport(new URL(url), options);
    client.setRequestHandler(types.CreateMessageRequestSchema, (request) => on.sampling(request.params));
    client.setRequestHandler(types.ElicitRequestSchema, (request) => on.elicitation(request.params));
    client.setRequestHandler(types.ListRootsRequestSchema, () => on.roots());
    const schemas = [
      types.LoggingMessageNotificationSchema,
      types.ResourceUpdatedNotificationSchema,
      types.ResourceListChangedNotificationSchema,
      types.ToolListChangedNotificationSchema,
      types.PromptListChangedNotificationSchema,
    ];
    for (const schema of schemas) {
      client.setNotificationHandler(schema, (note) => on.notification(note.method, note.params));
    }
    call = (name, args, requestOptions) =>
      client.callTool({ name, arguments: args }, undefined, { timeout, ...requestOptions });
  } else if (which === 'client2') {
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    client = new Client(info, { capabilities, versionNegotiation: { mode } });
    transport ??= new StreamableHTTPClientTransport(new URL(url), options);
    client.setRequestHandler('sampling/createMessage', (request) => on.sampling(request.params));
    client.setRequestHandler('elicitation/create', (request) => on.elicitation(request.params));
    client.setRequestHandler('roots/list', () => on.roots());
    for (const method of notifications) {
      client.setNotificationHandler(method, (note) => on.notification(note.method, note.params));
    }
    call = (name, args, { meta, ...requestOptions } = {}) =>
      client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, { timeout, ...requestOptions });
  } else {
    throw new Error(`unknown client ${which}: use sdk1 or client2`);
  }

  client.onerror = (error) => errors.push(String(error?.message ?? error));
  await client.connect(transport);
  return { client, transport, call, errors };
}
