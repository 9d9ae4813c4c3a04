// Clients of both eras through one gateway in front of several stdio servers.
//   node bridge.mjs <sdk1|client2|modern> <base url> <server> ...
//
// `modern` is client2 at 2026-07-28. A server is one of SERVERS, at <base url>/servers/<server>/mcp.

import { randomUUID } from 'node:crypto';
import { connect as connectSocket, createServer } from 'node:net';

import { Report, assert, connect, equal, sequence, sleep, until, watchdog, within } from './common.mjs';

const LOG_LEVEL = 'io.modelcontextprotocol/logLevel';
const ROOT = { uri: 'file:///outside/root', name: 'outside root' };
const FIELDS = { name: 'Ada Lovelace', integer: 37, username: 'ada', email: 'ada@example.org', color: 'teal', answer: 'yes' };

const request = (name, args, ...expected) => ({ name, args, expected });
/** The tools of server-everything. Each entry is a request and the texts that its answer must have. */
const EVERYTHING = {
  echo: (label) => request('echo', { message: label }, `Echo: ${label}`),
  progress: (steps, duration = 0.2) => request('trigger-long-running-operation', { duration, steps }, `Steps: ${steps}.`),
  sampling: (label) => request('trigger-sampling-request', { prompt: label, maxTokens: 20 }, `context: ${label}`, 'heard '),
  elicitation: () => request('trigger-elicitation-request', {}, 'Ada Lovelace', '37'),
  roots: () => request('get-roots-list', {}, ROOT.uri, ROOT.name),
  completion: { ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name: 'department', value: 'S' }, values: ['Sales', 'Support'] },
  missing: { uri: 'demo://no/such/resource' },
  uri: () => `demo://resource/dynamic/text/${Math.floor(Math.random() * 1e9) + 1}`,
};
const FULL = {
  ...EVERYTHING,
  url: (url) => request('ask-url', { url }, `accept ${url}`),
  together: (label) => request('ask-together', { label }, `Ada Lovelace, heard sampling ${label}, ${ROOT.uri}`),
  rounds: (label) => request('ask-in-rounds', { label }, `heard round 1 ${label}, heard round 2 ${label}`),
  log: (text) => request('write-log', { level: 'info', text }, 'logged'),
  touch: (uri) => [request('touch', { uri }, 'touched')],
  lists: () => request('change-lists', {}, 'changed'),
  wait: (label) => request('wait', { label }),
  wasCancelled: async (call, label) => (await call('was-cancelled', { label })).content[0].text === 'true',
};
/** Calls of `sleep` that were cancelled, in the process that answers. */
const sleepsCancelled = async (call) => JSON.parse((await call('counters', {})).content[0].text).cancelled;
const RMCP = {
  echo: (label) => request('echo', { message: label }, label),
  progress: (steps, duration = 0) =>
    request('burst', { events: steps, bytes: 8, delay_us: Math.round((duration / steps) * 1e6) }, `burst ${steps} done`),
  completion: { ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' }, argument: { name: 'arg1', value: 'par' }, values: ['paris', 'park city'] },
  missing: { uri: 'test://no-such-resource', code: -32602 },
  uri: () => 'test://watched-resource',
  touch: () => [request('notify_all', { kind: 'updated' }, 'notified')],
  lists: () => request('test_trigger_tool_change', {}, 'notified'),
  wait: () => request('sleep', { ms: 60_000 }),
  cancelled: sleepsCancelled,
  wasCancelled: async (call, _label, before = 0) => (await sleepsCancelled(call)) > before,
};
const SERVERS = {
  // From npm, sessions only.
  everything: {
    ...EVERYTHING,
    missing: { uri: 'demo://no/such/resource', code: -32602 },
    url: (url) => request('trigger-url-elicitation', { url }, 'User completed', url),
    urlByError: (url) => request('trigger-url-elicitation', { url, errorPath: true }, 'User completed', url),
    touch: () => [request('toggle-subscriber-updates', {}, 'Started'), request('toggle-subscriber-updates', {}, 'Stopped')],
  },
  // TypeScript 2.x, 2026-07-28 only.
  stateless: FULL,
  // The Python package. 2.x is told to use sessions.
  python1: FULL,
  python2: FULL,
  // Python 2.x, told to use 2026-07-28.
  'python2-stateless': FULL,
  // One program, told to use sessions, and told to use 2026-07-28.
  rmcp: {
    ...RMCP,
    sampling: (label) => request('test_sampling', { prompt: label }, `heard ${label}`),
    elicitation: () => request('test_elicitation', { message: 'Who?' }, 'action=accept', 'ada@example.org'),
    roots: () => request('ask', { what: 'roots' }, ROOT.uri),
    rounds: () => request('ask_many', { rounds: 2 }, 'yes'),
    log: () => request('log_burst', { count: 1, bytes: 4 }, 'logged 1'),
  },
  'rmcp-stateless': {
    ...RMCP,
    sampling: () => request('test_input_required_result_sampling', {}, 'The model says: heard What is the capital'),
    elicitation: () => request('test_input_required_result_elicitation', {}, 'Hello, Ada Lovelace!'),
    roots: () => request('test_input_required_result_list_roots', {}, ROOT.uri),
    together: () => request('test_input_required_result_multiple_inputs', {}, 'heard Generate a greeting', 'Ada Lovelace', ROOT.uri),
    rounds: () => request('test_input_required_result_multi_round', {}, 'Ada Lovelace likes teal.'),
    isUnlabelled: true,
  },
};

const [which, base, ...names] = process.argv.slice(2);
const unknown = names.filter((name) => !SERVERS[name]);
if (!['sdk1', 'client2', 'modern'].includes(which) || !base || !names.length || unknown.length) {
  console.error(`usage: node bridge.mjs <sdk1|client2|modern> <base url> <server> ...; servers: ${Object.keys(SERVERS).join(', ')}`);
  process.exit(2);
}
const isModern = which === 'modern';
const report = new Report();
watchdog(report, 150_000);

/** A TCP proxy in front of the gateway: its URL, and functions that cut all its connections, and end it. */
async function cuttableProxy() {
  const target = new URL(base);
  const sockets = new Set();
  const cut = () => sockets.forEach((socket) => socket.resetAndDestroy());
  const proxy = createServer((client) => {
    const gateway = connectSocket(Number(target.port), target.hostname);
    for (const [one, other] of [[client, gateway], [gateway, client]]) {
      sockets.add(one);
      one.on('error', () => {}).on('close', () => sockets.delete(one) && other.destroy());
      one.pipe(other);
    }
  });
  await new Promise((listening) => proxy.listen(0, '127.0.0.1', listening));
  const end = () => {
    proxy.close();
    cut();
  };
  return { url: `http://127.0.0.1:${proxy.address().port}`, cut, end };
}

/** A client that records questions and notifications. */
async function open(server, at = base) {
  const self = { questions: [], urls: [], notes: [], rootsAsked: 0 };
  const on = {
    notification: (method, params) => self.notes.push({ method, params: params ?? {} }),
    sampling: ({ messages: [{ content }] }) => {
      const { text } = Array.isArray(content) ? content[0] : content;
      self.questions.push(text);
      return { role: 'assistant', model: 'outside-model', stopReason: 'endTurn', content: { type: 'text', text: `heard ${text}` } };
    },
    elicitation: (params) => {
      if (params.mode === 'url') {
        self.urls.push(params.url);
        return { action: 'accept' };
      }
      self.questions.push(params.message);
      const fields = Object.keys(params.requestedSchema.properties).filter((name) => name in FIELDS);
      return { action: 'accept', content: Object.fromEntries(fields.map((name) => [name, FIELDS[name]])) };
    },
    roots: () => {
      self.rootsAsked += 1;
      return { roots: [ROOT] };
    },
  };
  const options = { on, maxRetries: 3, elicitation: { form: {}, url: {} }, mode: isModern ? { pin: '2026-07-28' } : 'legacy' };
  const connected = await connect(isModern ? 'client2' : which, `${at}/servers/${server}/mcp`, options);
  return Object.assign(self, connected);
}

const all = (result) => result.content.map((block) => block.text).join('\n');
/** Sends a request and checks its answer. */
async function make({ call }, { name, args, expected }, options) {
  const result = await call(name, args, options);
  assert(!result.isError, `${name} failed: ${all(result)}`);
  for (const part of expected) assert(all(result).includes(part), `${name}: ${JSON.stringify(part)} is not in ${all(result)}`);
}

/**
 * client2 makes a report of its own when it answers questions. A new process of server-everything asks for roots a moment after
 * its start, and so during a call.
 */
const isFromServer = ({ message }) => !message?.startsWith('Fulfilling input required');

async function serve(server) {
  const features = SERVERS[server];
  const check = (name, body, limit) => report.check(`${server}: ${name}`, body, limit);
  /** A check of what this server offers. */
  const feature = (key, body) => (features[key] ? check(key, () => body(features[key])) : undefined);
  let self;
  await check('connect', async () => {
    self = await open(server);
    const caps = self.client.getServerCapabilities();
    assert(caps.tools && caps.prompts && caps.resources && caps.completions, JSON.stringify(caps));
    assert(self.client.getServerVersion()?.name, 'no server name');
    if (isModern) equal(self.client.getProtocolEra(), 'modern', 'era');
  });
  if (!self) return;
  const { client, call } = self;

  await check('lists', async () => {
    const { tools } = await client.listTools();
    const made = Object.values(features).filter((f) => typeof f === 'function' && f !== features.uri && f !== features.wasCancelled && f !== features.cancelled);
    const needed = made.flatMap((f) => f('x')).map((r) => r.name);
    equal(needed.filter((name) => !tools.some((tool) => tool.name === name)), [], 'missing tools');
    assert((await client.listPrompts()).prompts.length > 0, 'no prompts');
    assert((await client.listResources()).resources.length > 0, 'no resources');
  });
  await feature('echo', async (echo) => {
    for (const label of ['plain', 'héllo "wörld"\nline \u{1F980} \u2028', 'x'.repeat(100_000)]) await make(self, echo(label));
  });
  await feature('missing', async ({ uri, code }) => {
    const failure = await client.readResource({ uri }).then(() => undefined, (error) => error);
    assert(typeof failure?.code === 'number', `no JSON-RPC error: ${failure}`);
    if (isModern && code) equal(failure.code, code, 'code');
  });
  await feature('progress', async (progress) => {
    await Promise.all([4, 6, 9].map(async (steps) => {
      const seen = [];
      await make(self, progress(steps), { onprogress: (p) => isFromServer(p) && seen.push(p.progress) });
      await sleep(0);
      sequence(seen, steps, 'progress');
    }));
  });
  await feature('completion', async ({ ref, argument, values }) => {
    const { completion } = await client.complete({ ref, argument });
    equal(completion.values, values, 'values');
  });
  await feature('sampling', async (sampling) => {
    const label = randomUUID();
    await make(self, sampling(label));
    equal(self.questions.length, 1, 'questions');
  });
  await feature('elicitation', async (elicitation) => {
    const before = self.questions.length;
    await make(self, elicitation());
    equal(self.questions.length - before, 1, 'questions');
  });
  await feature('roots', async (roots) => {
    await make(self, roots());
    if (!self.rootsAsked) throw new Error('the client was not asked');
  });
  await feature('url', async (url) => {
    const page = `https://example.org/${randomUUID()}`;
    await make(self, url(page));
    equal(self.urls.at(-1), page, 'URL');
  });
  if (isModern) {
    await feature('urlByError', async (url) => {
      const page = `https://example.org/${randomUUID()}`;
      const before = self.urls.length;
      await make(self, url(page));
      equal(self.urls.slice(before), ['https://modelcontextprotocol.io', page], 'URLs');
    });
  }
  await feature('together', async (together) => {
    const before = [self.questions.length, self.rootsAsked];
    await make(self, together('together'));
    equal([self.questions.length - before[0], self.rootsAsked - before[1]], [2, 1], 'questions');
  });
  await feature('rounds', async (rounds) => {
    const before = self.questions.length;
    await make(self, rounds('rounds'));
    equal(self.questions.length - before, 2, 'questions');
  });
  await feature('log', async (log) => {
    const logs = () => self.notes.filter((n) => n.method === 'notifications/message').length;
    const at = async (level) => {
      if (!isModern) await client.setLoggingLevel(level);
      await make(self, log('a message'), isModern ? { meta: { [LOG_LEVEL]: level } } : {});
    };
    // A log message names no call. While another client uses the same process, it reaches nobody.
    await until(async () => {
      await at('debug');
      await sleep(100);
      return logs() > 0;
    }, 15_000, 'no message at level debug');
    const before = logs();
    await at('error');
    if (isModern) await make(self, log('unwanted'));
    await sleep(200);
    equal(logs(), before, 'messages');
  });
  await feature('touch', async (touch) => {
    const uri = features.uri();
    const updated = () => self.notes.filter((n) => n.method === 'notifications/resources/updated').map((n) => n.params.uri);
    const listening = isModern ? await client.listen({ resourceSubscriptions: [uri] }) : await client.subscribeResource({ uri });
    for (const one of touch(uri)) await make(self, one);
    await until(() => updated().includes(uri), 8000, 'no notifications/resources/updated');
    // The rmcp server reports its one resource every few seconds.
    if (features.uri() !== uri) {
      await sleep(100);
      equal(updated().filter((u) => u !== uri), [], 'other updates');
    }
    await (isModern ? listening.close() : client.unsubscribeResource({ uri }));
  });
  await feature('lists', async (lists) => {
    const changed = () => self.notes.some((n) => n.method === 'notifications/tools/list_changed');
    const listening = isModern ? await client.listen({ toolsListChanged: true }) : undefined;
    await make(self, lists());
    await until(changed, 8000, 'no notifications/tools/list_changed');
    await listening?.close();
  });
  await feature('wait', async (wait) => {
    const label = randomUUID();
    const abort = new AbortController();
    const { name, args } = wait(label);
    const running = call(name, args, { signal: abort.signal }).then(() => 'finished', () => 'failed');
    await sleep(300);
    abort.abort('enough');
    equal(await running, 'failed', 'the call');
    await until(() => features.wasCancelled(call, label), 15_000, 'the server was not told');
  });

  // CAN-03: a connection that is cut cancels its call, at the server too.
  if (isModern && features.wait) {
    await check('cut', async () => {
      const label = randomUUID();
      const before = (await features.cancelled?.(call)) ?? 0;
      const proxy = await cuttableProxy();
      const other = await open(server, proxy.url);
      const { name, args } = features.wait(label);
      const running = other.call(name, args).then(() => 'finished', () => 'failed');
      await sleep(1000); // nothing tells when the server has the request
      proxy.end();
      equal(await within(running, 35_000, 'the call did not fail'), 'failed', 'the call');
      await until(() => features.wasCancelled(call, label, before), 15_000, 'the server was not told');
      await other.client.close().catch(() => {});
    }, 60_000);
  }
  // RES-01: a client with a session resumes, and loses nothing.
  if (!isModern) {
    await check('cut', async () => {
      const [steps, seen] = [10, []];
      const proxy = await cuttableProxy();
      const other = await open(server, proxy.url);
      const running = make(other, features.progress(steps, 2), { onprogress: (p) => isFromServer(p) && seen.push(p.progress) });
      for (const least of [2, 5]) {
        await until(() => seen.length >= least, 15_000, 'no progress');
        proxy.cut();
      }
      await within(running, 35_000, 'no result after the cuts');
      await sleep(0);
      sequence(seen, steps, 'progress');
      await other.transport.terminateSession().catch(() => {});
      await other.client.close().catch(() => {});
      proxy.end();
    }, 60_000);
  }

  // Two clients with the same name and capabilities, so that they may share processes.
  if (!features.isUnlabelled) {
    await check('questions of two clients never cross', async () => {
      const pair = await Promise.all(['red', 'blue'].map(async (color) => ({ color, self: await open(server) })));
      await Promise.all(pair.map(async ({ color, self: one }) => {
        const calls = [0, 1, 2].flatMap((n) => {
          const label = `${color}-${n}-${randomUUID()}`;
          return [features.sampling(label), ...(features.together && n === 0 ? [features.together(label)] : []), features.echo(label)];
        });
        await Promise.all(calls.map((request) => make(one, request)));
        const foreign = one.questions.filter((question) => !question.includes(`${color}-`));
        equal(foreign, [], `questions of ${color}`);
        equal(one.questions.length, features.together ? 5 : 3, `number of questions of ${color}`);
        await one.client.close();
      }));
    });
  }
  await self.transport.terminateSession?.().catch(() => {});
  await client.close().catch(() => {});
}

for (const server of names) await serve(server);
report.finish();
