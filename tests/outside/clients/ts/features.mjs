// Every feature of the fixture server through one session of an official client.
//   node features.mjs <sdk1|client2> <url> [--gateway [--nodes]]
// With --gateway the server is a child of the gateway: its lines do not name the call that a message belongs to. With --nodes
// there are several gateways: the one with the child cannot close a connection of another one.

import { Report, Wire, assert, connect, equal, sequence, sleep, text, until, watchdog } from './common.mjs';

const gateway = process.argv.includes('--gateway');
const nodes = process.argv.includes('--nodes');
const [which, url] = process.argv.slice(2).filter((arg) => !arg.startsWith('--'));
if (!which || !url) {
  console.error('usage: node features.mjs <sdk1|client2> <url> [--gateway [--nodes]]');
  process.exit(2);
}

const report = new Report();
watchdog(report, 180_000);

const wire = new Wire({ bodies: true });
const notes = [];
const asked = { sampling: 0, elicitation: 0, roots: 0 };
const ROOTS = [{ uri: 'file:///outside/root', name: 'outside root' }];
const PERSON = { username: 'ada', email: 'ada@example.org' };

const on = {
  notification: (method, params) => notes.push({ method, params }),
  sampling: (params) => {
    asked.sampling += 1;
    const prompt = params.messages?.[0]?.content?.text ?? '';
    return { role: 'assistant', model: 'outside-model', stopReason: 'endTurn', content: { type: 'text', text: `heard ${prompt}` } };
  },
  elicitation: () => {
    asked.elicitation += 1;
    return { action: 'accept', content: PERSON };
  },
  roots: () => {
    asked.roots += 1;
    return { roots: ROOTS };
  },
};

let session;
try {
  session = await connect(which, url, { wire, on, maxRetries: 3 });
} catch (error) {
  report.fail('connect', error);
  report.finish();
  await sleep(1000);
}
const { client, transport, call, errors } = session;

const messages = () => notes.filter((n) => n.method === 'notifications/message').map((n) => n.params);

/** Runs `events` of burst and checks its progress. */
async function burst(events, extra = {}) {
  const seen = [];
  const result = await call('burst', { events, bytes: 48, ...extra }, {
    onprogress: (p) => seen.push(p),
  });
  await sleep(0);
  equal(text(result), `burst ${events} done`, 'result');
  sequence(seen.map((p) => p.progress), events, 'progress');
  assert(seen.every((p) => p.total === events), `a total is not ${events}`);
}

await report.check('connect: session id, server info', async () => {
  assert(transport.sessionId, 'no session id');
  assert(client.getServerVersion()?.name, 'no server name');
  const caps = client.getServerCapabilities();
  assert(caps.tools && caps.resources?.subscribe && caps.prompts && caps.logging && caps.completions, JSON.stringify(caps));
});

await report.check('protocol revision is 2025-11-25', async () => {
  equal(transport.protocolVersion, '2025-11-25', 'negotiated');
});

await report.check('GET stream opens', () =>
  until(() => wire.exchanges.some((e) => e.method === 'GET' && e.status === 200), 5000, 'no GET answered 200'));

await report.check('ping', () => client.ping());

await report.check('tools/list', async () => {
  const names = new Set((await client.listTools()).tools.map((t) => t.name));
  const wanted = ['echo', 'burst', 'sleep', 'log_burst', 'push', 'notify_all', 'notify_self', 'ask', 'ask_many',
    'close_connection', 'counters', 'test_simple_text', 'test_image_content', 'test_error_handling', 'test_sampling',
    'test_elicitation', 'test_reconnection'];
  const missing = wanted.filter((n) => !names.has(n));
  assert(missing.length === 0, `missing ${missing}`);
});

await report.check('resources/list', async () => {
  const uris = (await client.listResources()).resources.map((r) => r.uri);
  for (const uri of ['test://static-text', 'test://watched-resource']) assert(uris.includes(uri), `${uri} missing`);
});

await report.check('resources/templates/list', async () => {
  const list = (await client.listResourceTemplates()).resourceTemplates.map((t) => t.uriTemplate);
  assert(list.includes('test://template/{id}/data'), JSON.stringify(list));
});

await report.check('prompts/list', async () => {
  const list = (await client.listPrompts()).prompts.map((p) => p.name);
  for (const name of ['test_simple_prompt', 'test_prompt_with_arguments']) assert(list.includes(name), `${name} missing`);
});

await report.check('call echo', async () => {
  const message = 'héllo "wörld"\nsecond line \u{1F980} \u2028 end';
  equal(text(await call('echo', { message })), message, 'echo');
});

await report.check('call echo, 200 kB', async () => {
  const message = 'x'.repeat(200_000);
  assert(text(await call('echo', { message })) === message, 'differs');
});

await report.check('call test_simple_text', async () =>
  equal(text(await call('test_simple_text', {})), 'This is a simple text response for testing.', 'text'));

await report.check('call test_image_content', async () => {
  const [block] = (await call('test_image_content', {})).content;
  equal([block.type, block.mimeType], ['image', 'image/png'], 'block');
  equal(Buffer.from(block.data, 'base64').subarray(1, 4).toString(), 'PNG', 'signature');
});

await report.check('call test_error_handling', async () => {
  const result = await call('test_error_handling', {});
  equal(result.isError, true, 'isError');
  equal(text(result), 'This tool intentionally returns an error for testing', 'text');
});

await report.check('burst: 20 progress notifications', () => burst(20));
await report.check('burst: paced progress notifications', () => burst(20, { delay_us: 5000 }));

await report.check('log_burst: 10 log messages on the stream of the call', async () => {
  const before = messages().length;
  equal(text(await call('log_burst', { count: 10 })), 'logged 10', 'result');
  await sleep(50);
  const mine = messages().slice(before).filter((m) => m.logger === 'fixture' && m.data?.n !== undefined);
  const numbers = mine.map((m) => m.data.n);
  const first = numbers[0];
  assert(first === 0 || first === 1, `first n is ${first}`);
  equal(numbers, Array.from({ length: 10 }, (_, i) => i + first), 'n');
  assert(mine.every((m) => m.level === 'info'), 'a level is not info');
  const carriers = wire.exchanges.filter((e) => e.sse.includes('"logger":"fixture"') && e.sse.includes('"pad"'));
  equal(carriers.map((e) => [e.method, e.rpc?.tool]), [['POST', 'log_burst']], 'streams that carried them');
});

await report.check('logging/setLevel', async () => {
  for (const level of ['error', 'warning', 'debug', 'info']) await client.setLoggingLevel(level);
});

await report.check('logging/setLevel filters', async () => {
  await client.setLoggingLevel('error');
  const before = messages().length;
  await call('log_burst', { count: 5 });
  await sleep(200);
  const count = messages().length - before;
  await client.setLoggingLevel('debug');
  equal(count, 0, 'info messages at level error');
});

await report.check('sampling: test_sampling', async () => {
  const result = await call('test_sampling', { prompt: 'two plus two' });
  equal(text(result), 'LLM response: heard two plus two', 'text');
  equal(asked.sampling, 1, 'questions');
});

await report.check('elicitation: test_elicitation', async () => {
  const answer = text(await call('test_elicitation', { message: 'who are you' }));
  for (const part of ['accept', 'ada', 'ada@example.org']) assert(answer.includes(part), answer);
  equal(asked.elicitation, 1, 'questions');
});

await report.check('roots: ask', async () => {
  const answer = JSON.parse(text(await call('ask', { what: 'roots' })));
  equal(answer.roots?.[0]?.uri, ROOTS[0].uri, 'root');
  equal(asked.roots, 1, 'questions');
});

await report.check('ask_many: 3 rounds', async () => {
  const before = asked.elicitation;
  const answers = JSON.parse(text(await call('ask_many', { rounds: 3 })));
  equal(answers.length, 3, 'answers');
  assert(answers.every((a) => a.action === 'accept'), JSON.stringify(answers));
  equal(asked.elicitation - before, 3, 'questions');
});

await report.check('server requests travel on the stream of their call', async () => {
  const carriers = wire.exchanges.filter((e) => /"method":"(sampling\/createMessage|elicitation\/create|roots\/list)"/.test(e.sse));
  assert(carriers.length === 4 && carriers.every((e) => e.method === 'POST'), JSON.stringify(carriers.map((e) => [e.method, e.rpc])));
});

await report.check('resources/read static', async () => {
  const { contents } = await client.readResource({ uri: 'test://static-text' });
  equal(contents[0].text, 'This is the content of the static text resource.', 'text');
});

await report.check('resources/read template', async () => {
  const { contents } = await client.readResource({ uri: 'test://template/123/data' });
  equal(contents[0].uri, 'test://template/123/data', 'uri');
  equal(JSON.parse(contents[0].text), { id: '123', templateTest: true, data: 'Data for ID: 123' }, 'json');
});

await report.check('resources/subscribe, updated, unsubscribe', async () => {
  const uri = 'test://watched-resource';
  const updates = () => notes.filter((n) => n.method === 'notifications/resources/updated' && n.params.uri === uri).length;
  await client.subscribeResource({ uri });
  await until(() => updates() >= 1, 10_000, 'no notifications/resources/updated within 10 s');
  await client.unsubscribeResource({ uri });
  await sleep(100);
  const before = updates();
  await sleep(3500);
  equal(updates(), before, 'updates after unsubscribe');
  assert(wire.exchanges.filter((e) => e.sse.includes('notifications/resources/updated')).every((e) => e.method === 'GET'), 'not on GET');
}, 30_000);

const pushed = (tag) => messages().filter((m) => m.data?.push === tag).map((m) => m.data.n);
const selfNotes = (tag) => messages()
  .filter((m) => typeof m.data === 'string' && m.data.startsWith(`${tag} `))
  .map((m) => Number(m.data.split(' ')[1]));

/** Waits for `count` values and a short time for repeats, then checks their order. */
async function arrivesOnce(read, count, what) {
  await until(() => read().length >= count, 8000, () => `${what}: got ${JSON.stringify(read())}`);
  await sleep(200);
  const seen = read();
  equal(seen, Array.from({ length: count }, (_, i) => i + (seen[0] === 0 ? 0 : 1)), what);
}

await report.check(`push: 5 messages on ${gateway ? 'GET or the call' : 'GET'}, once, in order`, async () => {
  equal(text(await call('push', { count: 5, tag: 'x' })), 'pushed 5', 'result');
  await arrivesOnce(() => pushed('x'), 5, 'n');
  const carriers = wire.exchanges.filter((e) => e.sse.includes('"push":"x"'));
  assert(carriers.length > 0 && carriers.every((e) => e.method === 'GET' || (gateway && e.rpc?.tool === 'push')), 'not on GET');
});

await report.check('notify_self: 5 messages on GET, once, in order', async () => {
  equal(text(await call('notify_self', { events: 5, tag: 'y' })), 'notified 5', 'result');
  await arrivesOnce(() => selfNotes('y'), 5, 'i');
});

await report.check('notify_all tools: list_changed', async () => {
  await call('notify_all', { kind: 'tools' });
  await until(() => notes.some((n) => n.method === 'notifications/tools/list_changed'), 5000, 'no tools/list_changed');
});

await report.check('completion/complete', async () => {
  const { completion } = await client.complete({
    ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
    argument: { name: 'arg1', value: '' },
  });
  assert(Array.isArray(completion.values), JSON.stringify(completion));
});

await report.check('prompts/get', async () => {
  const simple = await client.getPrompt({ name: 'test_simple_prompt' });
  equal(simple.messages[0].content.text, 'This is a simple prompt for testing.', 'simple');
  const args = await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'one', arg2: 'two' } });
  equal(args.messages[0].content.text, "Prompt with arguments: arg1='one', arg2='two'", 'with arguments');
});

await report.check('error response: unknown resource, unknown tool', async () => {
  const before = wire.exchanges.length;
  let failure;
  try {
    await client.readResource({ uri: 'test://no-such-resource' });
  } catch (error) {
    failure = error;
  }
  assert(typeof failure?.code === 'number' && failure.code < -32000, `no JSON-RPC error: ${failure}`);
  // An unknown tool may be a JSON-RPC error or a result with isError, but not a success.
  const unknown = await call('no_such_tool', {}).catch(() => ({ isError: true }));
  assert(unknown.isError, 'an unknown tool was called with success');
  // For sdk1 an error response does not end a stream with ids. It may resume, but must stop eventually.
  await sleep(2000);
  const gets = wire.exchanges.slice(before).filter((e) => e.method === 'GET').length;
  assert(gets <= 4, `${gets} GETs within 2 s after an error response: the client is reconnecting in a loop`);
});

await report.check('close_connection: the client resumes by itself', async () => {
  const before = wire.resumes();
  equal(text(await call('close_connection', { ms: 300 })), 'reconnected', 'text');
  assert(nodes || wire.resumes() > before, 'no GET with Last-Event-ID was sent');
});

await report.check('test_reconnection: the client resumes by itself', async () => {
  const before = wire.resumes();
  const answer = text(await call('test_reconnection', {}));
  assert(answer.startsWith('Reconnection test completed'), answer);
  assert(nodes || wire.resumes() > before, 'no GET with Last-Event-ID was sent');
});

const counters = async () => JSON.parse(text(await call('counters', {})));

await report.check('cancellation: sleep stops', async () => {
  const start = await counters();
  const abort = new AbortController();
  const running = call('sleep', { ms: 30_000 }, { signal: abort.signal }).then(() => 'finished', (error) => error);
  await until(async () => (await counters()).started > start.started, 5000, 'sleep did not start');
  abort.abort('enough');
  assert((await running) !== 'finished', 'the call was not aborted');
  await until(async () => (await counters()).cancelled > start.cancelled, 5000, 'counters show no cancellation');
  // The stream of the cancelled call ended without a response. Clients may resume it, but must stop eventually.
  const before = wire.exchanges.length;
  await sleep(2000);
  const gets = wire.exchanges.slice(before).filter((e) => e.method === 'GET').length;
  assert(gets <= 4, `${gets} GETs within 2 s after a cancellation: the client is reconnecting in a loop`);
});

await report.check('GET stream still delivers once', async () => {
  await call('notify_self', { events: 5, tag: 'z' });
  await arrivesOnce(() => selfNotes('z'), 5, 'i');
});

await report.check('30 calls at once: progress stays with its call', async () => {
  await Promise.all(Array.from({ length: 30 }, (_, i) => burst(10 + i, { delay_us: 2000 })));
}, 40_000);

await report.check('each progress token on one stream only', async () => {
  for (const e of wire.exchanges.filter((e) => e.sse.includes('notifications/progress'))) {
    const tokens = new Set([...e.sse.matchAll(/"progressToken":("?[^",}]*"?)/g)].map((m) => m[1]));
    assert(tokens.size === 1, `one stream carried tokens ${[...tokens]}`);
  }
});

await report.check('no response on the standalone GET stream', async () => {
  const bad = wire.exchanges.filter((e) => e.method === 'GET' && !e.lastEventId && /^data: .*"(result|error)":/m.test(e.sse));
  equal(bad.length, 0, 'streams');
});

await report.check('one standalone GET stream: the client never lost its cursor', async () =>
  equal(wire.freshGets(), 1, 'GETs without Last-Event-ID'));

await report.check('event ids are unique', async () => {
  const seen = new Set();
  for (const e of wire.exchanges) {
    const blocks = e.sse.split('\n\n');
    for (const block of blocks) {
      const id = /^id: ?(.*)$/m.exec(block)?.[1];
      const data = /^data: ?(.+)$/m.exec(block)?.[1];
      if (!id || !data) continue;
      assert(!seen.has(id), `id ${id} was sent twice`);
      seen.add(id);
    }
  }
  assert(seen.size > 0, 'no ids at all');
});

await report.check('no unexpected client errors', async () => {
  const strange = errors.filter((e) => /unknown message ID|JSON|parse|invalid/i.test(e));
  equal(strange, [], 'errors');
});

await report.check('terminate session', async () => {
  const id = transport.sessionId;
  await transport.terminateSession();
  const status = wire.exchanges.filter((e) => e.method === 'DELETE').map((e) => e.status);
  assert(status.length === 1 && status[0] >= 200 && status[0] < 300, `DELETE answered ${status}`);
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-session-id': id,
      'mcp-protocol-version': '2025-11-25',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }),
  });
  await response.body?.cancel();
  equal(response.status, 404, 'POST after DELETE');
});

await report.check('close', () => client.close());
report.finish();
