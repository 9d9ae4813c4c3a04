// The stateless revision 2026-07-28 of the fixture server through @modelcontextprotocol/client 2.x.
//   node modern.mjs <url>
//
// Checks named "raw" use fetch, because the client cannot send the request or show the response.
// No other client may use the server: all clients share its changes and its `sleep` counters.

import { Client, LOG_LEVEL_META_KEY, SUBSCRIPTION_ID_META_KEY, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

import { Report, Wire, assert, equal, sequence, sleep, text, until, watchdog } from './common.mjs';

const [url] = process.argv.slice(2);
if (!url) {
  console.error('usage: node modern.mjs <url>');
  process.exit(2);
}

const VERSION = '2026-07-28';
const META = 'io.modelcontextprotocol/';
const WATCHED = 'test://watched-resource';
const ROOTS = [{ uri: 'file:///outside/root', name: 'outside root' }];
const FIELDS = { name: 'Ada', username: 'ada', email: 'ada@example.org', color: 'teal', context: 'from outside', ok: true };
const EVERYTHING = { sampling: {}, elicitation: { form: {} }, roots: {} };
const CHANGES = ['tools/list_changed', 'prompts/list_changed', 'resources/list_changed', 'resources/updated'];

const report = new Report();
watchdog(report, 180_000);
const wire = new Wire({ bodies: true });

/** A client that records notifications and counts questions. */
async function connect(mode, capabilities) {
  const self = { notes: [], errors: [], asked: { sampling: 0, elicitation: 0, roots: 0 }, action: 'accept' };
  const client = new Client({ name: 'outside-modern', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
  if (capabilities.sampling) {
    client.setRequestHandler('sampling/createMessage', ({ params }) => {
      self.asked.sampling += 1;
      const [{ content }] = params.messages;
      return { role: 'assistant', model: 'outside-model', stopReason: 'endTurn', content: { type: 'text', text: `heard ${content.text}` } };
    });
  }
  if (capabilities.elicitation) {
    client.setRequestHandler('elicitation/create', ({ params }) => {
      self.asked.elicitation += 1;
      if (self.action !== 'accept') return { action: self.action };
      const names = Object.keys(params.requestedSchema.properties);
      return { action: 'accept', content: Object.fromEntries(names.map((n) => [n, FIELDS[n] ?? `a ${n}`])) };
    });
  }
  if (capabilities.roots) {
    client.setRequestHandler('roots/list', () => {
      self.asked.roots += 1;
      return { roots: ROOTS };
    });
  }
  for (const method of [...CHANGES, 'message'].map((m) => `notifications/${m}`)) {
    client.setNotificationHandler(method, (note) => self.notes.push({ method: note.method, params: note.params ?? {} }));
  }
  client.onerror = (error) => self.errors.push(String(error?.message ?? error));
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch: wire.fetch }));
  self.client = client;
  self.call = (name, args = {}, options = {}, meta = undefined) =>
    client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, { timeout: 30_000, ...options });
  self.logs = () => self.notes.filter((n) => n.method === 'notifications/message').map((n) => n.params);
  return self;
}

/** A raw request, or a notification if `id` is null. `headers` and `meta` replace entries; undefined removes one. */
function raw(method, params = {}, { id = 1, headers = {}, meta = {}, signal, to = url } = {}) {
  const name = params.name ?? params.uri;
  const sent = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': VERSION,
    'mcp-method': method,
    ...(name && { 'mcp-name': name }),
    ...headers,
  };
  const _meta = { [`${META}protocolVersion`]: VERSION, [`${META}clientCapabilities`]: {}, ...meta };
  const body = { jsonrpc: '2.0', ...(id !== null && { id }), method, params: { ...params, _meta } };
  const kept = Object.entries(sent).filter(([, value]) => value !== undefined);
  return fetch(to, { method: 'POST', headers: Object.fromEntries(kept), body: JSON.stringify(body), signal });
}

/** Status and error code of a raw response. */
async function refusal(response) {
  const body = JSON.parse((await response.text()).replace(/^data: ?/, ''));
  return [response.status, body.error?.code];
}

const events = (sse) => [...sse.matchAll(/^data: ?(.+)$/gm)].map((m) => JSON.parse(m[1]));
const exchanges = (test) => wire.exchanges.filter(test);
const lastFor = (tool) => exchanges((e) => e.rpc?.tool === tool).at(-1);

/** The notifications and the response of one exchange. */
function answer(e) {
  const all = e.sse ? events(e.sse) : e.json ? [JSON.parse(e.json)] : [];
  return { notes: all.filter((m) => m.method), response: all.find((m) => !m.method) };
}

async function fails(promise, what) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`${what} was answered with success`);
}

let main;
let auto;
try {
  main = await connect({ pin: VERSION }, EVERYTHING);
  auto = await connect('auto', EVERYTHING);
} catch (error) {
  report.fail('connect', error);
  report.finish();
  await sleep(1000);
}
const { client, call, asked } = main;
const check = (...args) => report.check(...args);

async function burst(count, extra = {}) {
  const seen = [];
  const result = await call('burst', { events: count, bytes: 48, ...extra }, { onprogress: (p) => seen.push(p) });
  await sleep(0);
  equal(text(result), `burst ${count} done`, 'result');
  sequence(seen.map((p) => p.progress), count, 'progress');
  assert(seen.every((p) => p.total === count), `a total is not ${count}`);
}

// ---- connecting and lists

await check('connect pinned: modern era, revision, capabilities, identity', async () => {
  equal([client.getProtocolEra(), client.getNegotiatedProtocolVersion()], ['modern', VERSION], 'negotiated');
  const caps = client.getServerCapabilities();
  assert(caps.tools?.listChanged && caps.prompts?.listChanged && caps.resources?.subscribe && caps.completions, JSON.stringify(caps));
  assert(client.getServerVersion()?.name, 'no server identity');
  assert(client.getDiscoverResult().supportedVersions.includes(VERSION), 'discover does not list the revision');
});

await check('connect auto: the client chooses the modern era by itself', async () => {
  equal([auto.client.getProtocolEra(), auto.client.getNegotiatedProtocolVersion()], ['modern', VERSION], 'negotiated');
  equal(exchanges(() => true).map((e) => e.rpc?.method), ['server/discover', 'server/discover'], 'requests so far');
});

await check('server/discover again', async () => {
  const { supportedVersions } = await client.discover();
  assert(supportedVersions.includes(VERSION), String(supportedVersions));
});

await check('tools/list', async () => {
  const names = new Set((await client.listTools()).tools.map((t) => t.name));
  const wanted = ['echo', 'burst', 'sleep', 'log_burst', 'notify_all', 'ask', 'ask_many', 'counters', 'region_echo', 'test_simple_text',
    'test_image_content', 'test_error_handling', 'test_missing_capability', 'test_logging_tool', 'test_trigger_tool_change',
    'test_trigger_prompt_change', ...['elicitation', 'sampling', 'list_roots', 'request_state', 'multiple_inputs', 'multi_round',
      'tampered_state'].map((n) => `test_input_required_result_${n}`)];
  equal(wanted.filter((n) => !names.has(n)), [], 'missing');
});

await check('prompts/list', async () => {
  const names = (await client.listPrompts()).prompts.map((p) => p.name);
  const wanted = ['test_simple_prompt', 'test_prompt_with_arguments', 'test_input_required_result_prompt'];
  equal(wanted.filter((n) => !names.includes(n)), [], 'missing');
});

await check('resources/list', async () => {
  const uris = (await client.listResources()).resources.map((r) => r.uri);
  equal(['test://static-text', 'test://static-binary', WATCHED].filter((u) => !uris.includes(u)), [], 'missing');
});

await check('resources/templates/list', async () => {
  const list = (await client.listResourceTemplates()).resourceTemplates.map((t) => t.uriTemplate);
  assert(list.includes('test://template/{id}/data'), JSON.stringify(list));
});

// ---- calls

await check('call echo', async () => {
  const message = 'héllo "wörld"\nsecond line \u{1F980} \u2028 end';
  equal(text(await call('echo', { message })), message, 'echo');
});

await check('call echo, 200 kB', async () => {
  const message = 'x'.repeat(200_000);
  assert(text(await call('echo', { message })) === message, 'differs');
});

await check('call test_simple_text', async () =>
  equal(text(await call('test_simple_text')), 'This is a simple text response for testing.', 'text'));

await check('call test_image_content', async () => {
  const [block] = (await call('test_image_content')).content;
  equal([block.type, block.mimeType], ['image', 'image/png'], 'block');
  equal(Buffer.from(block.data, 'base64').subarray(1, 4).toString(), 'PNG', 'signature');
});

await check('call test_error_handling', async () => {
  const result = await call('test_error_handling');
  equal([result.isError, text(result)], [true, 'This tool intentionally returns an error for testing'], 'result');
});

await check('a silent call is answered as JSON', async () => {
  await call('echo', { message: 'x' });
  assert(lastFor('echo').json !== '', `answered as ${lastFor('echo').answered.get('content-type')}`);
});

await check('burst: 20 progress notifications, once and in order', () => burst(20));
await check('burst: paced progress notifications', () => burst(20, { delay_us: 5000 }));

await check('burst without a progress token is silent', async () => {
  equal(text(await call('burst', { events: 5 })), 'burst 5 done', 'result');
  equal(answer(lastFor('burst')).notes, [], 'notifications');
});

await check('30 bursts at once: progress stays with its call', async () => {
  await Promise.all(Array.from({ length: 30 }, (_, i) => burst(10 + i, { delay_us: 2000 })));
}, 40_000);

await check('each progress token on one stream only', async () => {
  const streams = exchanges((e) => e.sse.includes('notifications/progress'));
  assert(streams.length >= 30, `${streams.length} streams with progress`);
  for (const e of streams) {
    const tokens = answer(e).notes.filter((n) => n.method === 'notifications/progress').map((n) => n.params.progressToken);
    equal([...new Set(tokens)], [e.sent.params._meta.progressToken], 'tokens on one stream');
  }
});

await check('region_echo: arguments mirrored as headers', async () => {
  equal(JSON.parse(text(await call('region_echo', { region: 'eu-west', n: 42 }))), { region: 'eu-west', n: 42 }, 'arguments');
  const { headers } = lastFor('region_echo');
  equal([headers.get('mcp-param-region'), headers.get('mcp-param-n')], ['eu-west', '42'], 'headers');
});

await check('region_echo: a mirrored value in base64', async () => {
  equal(JSON.parse(text(await call('region_echo', { region: ' Zürich ' }))).region, ' Zürich ', 'region');
  const sent = lastFor('region_echo').headers.get('mcp-param-region');
  assert(sent.startsWith('=?base64?'), sent);
});

await check('raw: a mirrored header that is missing or differs is refused', async () => {
  const params = { name: 'region_echo', arguments: { region: 'eu' } };
  equal(await refusal(await raw('tools/call', params)), [400, -32020], 'missing');
  equal(await refusal(await raw('tools/call', params, { headers: { 'mcp-param-region': 'us' } })), [400, -32020], 'different');
  equal((await raw('tools/call', params, { headers: { 'mcp-param-region': 'eu' } })).status, 200, 'the same');
});

await check('unknown tool: error', async () => {
  const error = await fails(call('no_such_tool').then((r) => r.isError && Promise.reject(r)), 'an unknown tool');
  assert(error.isError || error.code === -32602, `${error.code} ${error.message}`);
});

await check('push and notify_self are refused here', async () => {
  for (const tool of ['push', 'notify_self']) equal((await fails(call(tool), tool)).code, -32602, tool);
});

// ---- resources, prompts, completion

await check('resources/read static text and binary', async () => {
  const { contents } = await client.readResource({ uri: 'test://static-text' });
  equal(contents[0].text, 'This is the content of the static text resource.', 'text');
  const binary = (await client.readResource({ uri: 'test://static-binary' })).contents[0];
  equal([binary.mimeType, Buffer.from(binary.blob, 'base64').subarray(1, 4).toString()], ['image/png', 'PNG'], 'binary');
});

await check('resources/read template', async () => {
  const [content] = (await client.readResource({ uri: 'test://template/123/data' })).contents;
  equal(content.uri, 'test://template/123/data', 'uri');
  equal(JSON.parse(content.text), { id: '123', templateTest: true, data: 'Data for ID: 123' }, 'json');
});

await check('resources/read with Mcp-Name in base64', async () => {
  const uri = 'test://template/größe/data';
  const failure = await client.readResource({ uri }).then(() => undefined, (error) => error);
  const e = exchanges((x) => x.sent?.params?.uri === uri)[0];
  assert(e.headers.get('mcp-name').startsWith('=?base64?'), e.headers.get('mcp-name'));
  assert(e.status === 200, `HTTP ${e.status}: ${failure}`);
});

await check('unknown resource: -32602 that names it', async () => {
  const error = await fails(client.readResource({ uri: 'test://no-such-resource' }), 'an unknown resource');
  equal([error.code, error.data?.uri], [-32602, 'test://no-such-resource'], 'error');
});

await check('prompts/get', async () => {
  const simple = await client.getPrompt({ name: 'test_simple_prompt' });
  equal(simple.messages[0].content.text, 'This is a simple prompt for testing.', 'simple');
  const args = await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'one', arg2: 'two' } });
  equal(args.messages[0].content.text, "Prompt with arguments: arg1='one', arg2='two'", 'with arguments');
});

await check('completion/complete', async () => {
  const { completion } = await client.complete({
    ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
    argument: { name: 'arg1', value: '' },
  });
  assert(Array.isArray(completion.values), JSON.stringify(completion));
});

// ---- input-required rounds

/** Runs `body` and checks the number of questions, and that each round was a new request with the echoed state. */
async function rounds(tool, expected, body) {
  const before = { ...asked };
  const from = wire.exchanges.length;
  await body();
  const grown = Object.fromEntries(Object.keys(asked).map((k) => [k, asked[k] - before[k]]));
  equal(grown, { sampling: 0, elicitation: 0, roots: 0, ...expected }, 'questions');
  const legs = wire.exchanges.slice(from).filter((e) => e.rpc?.tool === tool);
  equal(new Set(legs.map((e) => e.rpc.id)).size, legs.length, 'request ids');
  for (const [i, leg] of legs.entries()) {
    const { result } = answer(leg).response;
    equal(result.resultType, i === legs.length - 1 ? 'complete' : 'input_required', `result type of request ${i + 1}`);
    if (i === legs.length - 1) continue;
    const next = legs[i + 1].sent.params;
    equal(next.requestState, result.requestState, 'state');
    equal(Object.keys(next.inputResponses).sort(), Object.keys(result.inputRequests).sort(), 'answered keys');
    assert(!('ttlMs' in result), 'an input_required result has a caching hint');
  }
  return legs;
}

await check('ask elicitation', () => rounds('ask', { elicitation: 1 }, async () => {
  const result = JSON.parse(text(await call('ask', { what: 'elicitation' })));
  equal(result.action, 'accept', 'action');
  assert(result.content && Object.keys(result.content).length > 0, JSON.stringify(result));
}));

await check('ask elicitation, declined', () => rounds('ask', { elicitation: 1 }, async () => {
  main.action = 'decline';
  try {
    equal(JSON.parse(text(await call('ask', { what: 'elicitation' }))).action, 'decline', 'action');
  } finally {
    main.action = 'accept';
  }
}));

await check('ask sampling', () => rounds('ask', { sampling: 1 }, async () => {
  const result = JSON.parse(text(await call('ask', { what: 'sampling' })));
  equal(result.model, 'outside-model', 'model');
  assert(JSON.stringify(result.content).includes('heard '), JSON.stringify(result));
}));

await check('ask roots', () => rounds('ask', { roots: 1 }, async () =>
  equal(JSON.parse(text(await call('ask', { what: 'roots' }))).roots, ROOTS, 'roots')));

await check('ask_many: 3 rounds', async () => {
  const legs = await rounds('ask_many', { elicitation: 3 }, async () => {
    const answers = JSON.parse(text(await call('ask_many', { rounds: 3 })));
    equal(answers.map((a) => a.action), ['accept', 'accept', 'accept'], 'answers');
  });
  equal(legs.length, 4, 'requests');
});

const TOOL = 'test_input_required_result_';

await check(`${TOOL}elicitation`, () => rounds(`${TOOL}elicitation`, { elicitation: 1 }, async () =>
  equal(text(await call(`${TOOL}elicitation`)), 'Hello, Ada!', 'text')));

await check(`${TOOL}sampling`, () => rounds(`${TOOL}sampling`, { sampling: 1 }, async () => {
  const said = text(await call(`${TOOL}sampling`));
  assert(said.includes('heard '), said);
}));

await check(`${TOOL}list_roots`, () => rounds(`${TOOL}list_roots`, { roots: 1 }, async () => {
  const said = text(await call(`${TOOL}list_roots`));
  assert(said.includes('outside'), said);
}));

await check(`${TOOL}multiple_inputs`, async () => {
  const legs = await rounds(`${TOOL}multiple_inputs`, { elicitation: 1, sampling: 1, roots: 1 }, () => call(`${TOOL}multiple_inputs`));
  equal(legs.length, 2, 'requests');
  assert(typeof answer(legs[0]).response.result.requestState === 'string', 'no requestState');
});

await check(`${TOOL}multi_round`, async () => {
  const legs = await rounds(`${TOOL}multi_round`, { elicitation: 2 }, () => call(`${TOOL}multi_round`));
  const states = legs.slice(0, 2).map((e) => answer(e).response.result.requestState);
  assert(states[0] && states[1] && states[0] !== states[1], 'the state did not change between rounds');
});

await check(`${TOOL}request_state`, () => rounds(`${TOOL}request_state`, { elicitation: 1 }, async () => {
  const said = text(await call(`${TOOL}request_state`));
  assert(said.includes('state-ok'), said);
}));

await check('prompt test_input_required_result_prompt', () => rounds(`${TOOL}prompt`, { elicitation: 1 }, async () => {
  const { messages } = await client.getPrompt({ name: `${TOOL}prompt` });
  assert(messages.length > 0, 'no messages');
}));

const manual = (from, name, extra = {}) =>
  from.client.callTool({ name, arguments: {}, ...extra }, { allowInputRequired: true, timeout: 30_000 });

// With RETHREAD_SHARED=1 other clients may call `sleep` too, so only cancellations can be counted.
function counted(start, end, finished) {
  equal(end.cancelled - start.cancelled, 1, 'cancelled');
  if (!process.env.RETHREAD_SHARED) equal(end.finished - start.finished, finished, 'finished');
}

await check('a round begun by one client is finished by another', async () => {
  const first = await manual(main, `${TOOL}request_state`);
  equal(first.resultType, 'input_required', 'result type');
  const responses = { confirm: { action: 'accept', content: { ok: true } } };
  const last = await manual(auto, `${TOOL}request_state`, { inputResponses: responses, requestState: first.requestState });
  assert(text(last).includes('state-ok'), text(last));
});

await check('a changed requestState is refused', async () => {
  const first = await manual(main, `${TOOL}tampered_state`);
  const state = first.requestState;
  const middle = Math.floor(state.length / 2);
  const changed = state.slice(0, middle) + (state[middle] === 'A' ? 'B' : 'A') + state.slice(middle + 1);
  const responses = Object.fromEntries(Object.keys(first.inputRequests).map((k) => [k, { action: 'accept', content: { ok: true } }]));
  const error = await fails(manual(main, `${TOOL}tampered_state`, { inputResponses: responses, requestState: changed }), 'a changed state');
  equal(error.code, -32602, 'code');
});

await check('a missing answer is asked for again', async () => {
  const first = await manual(main, `${TOOL}elicitation`);
  const again = await manual(main, `${TOOL}elicitation`, {
    inputResponses: { something_else: { action: 'accept', content: {} } },
    ...(first.requestState && { requestState: first.requestState }),
  });
  equal(again.resultType, 'input_required', 'result type');
});

await check('a client without the capability gets -32021', async () => {
  const bare = await connect({ pin: VERSION }, {});
  const error = await fails(bare.call('test_missing_capability'), 'the call');
  equal(error.code, -32021, 'code');
  assert(error.data?.requiredCapabilities?.sampling, JSON.stringify(error.data));
  equal(lastFor('test_missing_capability').status, 400, 'HTTP status');
  equal((await fails(bare.call('ask', { what: 'roots' }), 'ask roots')).code, -32021, 'ask roots');
  await bare.client.close();
});

// ---- logging

/** Calls a tool at a log level and returns its logs, which must arrive only on the stream of that call. */
async function logged(tool, level, args = {}) {
  const from = wire.exchanges.length;
  const before = main.logs().length;
  await call(tool, args, {}, level && { [LOG_LEVEL_META_KEY]: level });
  await sleep(100);
  const seen = main.logs().slice(before);
  const carriers = wire.exchanges.slice(from).filter((e) => e.sse.includes('notifications/message'));
  equal(carriers.map((e) => e.rpc.tool), seen.length > 0 ? [tool] : [], 'streams that carried logs');
  return seen;
}

await check('test_logging_tool without a log level logs nothing', async () =>
  equal(await logged('test_logging_tool'), [], 'logged'));

await check('test_logging_tool with a log level logs', async () => {
  const seen = await logged('test_logging_tool', 'debug');
  assert(seen.length > 0, 'nothing was logged');
});

await check('log_burst: 10 messages at level info, none at error, none without', async () => {
  const numbers = (await logged('log_burst', 'info', { count: 10 })).map((m) => m.data.n);
  equal(numbers, Array.from({ length: 10 }, (_, i) => i + (numbers[0] === 0 ? 0 : 1)), 'n');
  equal(await logged('log_burst', 'error', { count: 5 }), [], 'at error');
  equal(await logged('log_burst', undefined, { count: 5 }), [], 'without a level');
});

await check('raw: an unknown log level is refused', async () => {
  const meta = { [LOG_LEVEL_META_KEY]: 'loud' };
  equal((await refusal(await raw('tools/call', { name: 'echo', arguments: {} }, { meta })))[1], -32602, 'code');
});

// ---- subscriptions/listen

const short = (method) => method.replace('notifications/', '');

/** The notifications of one subscription that a client received, except repeated periodic updates. */
function heard(self, id) {
  const mine = self.notes.filter((n) => n.params._meta?.[SUBSCRIPTION_ID_META_KEY] === id);
  return { lists: mine.map((n) => short(n.method)).filter((m) => m !== 'resources/updated'), updated: mine.filter((n) => n.params.uri) };
}

const listens = () => exchanges((e) => e.rpc?.method === 'subscriptions/listen');

await check('subscriptions/listen: three streams, each gets exactly its own', async () => {
  const from = [main.notes.length, auto.notes.length];
  const tools = await client.listen({ toolsListChanged: true });
  const others = await client.listen({ promptsListChanged: true, resourceSubscriptions: [WATCHED] });
  const foreign = await auto.client.listen({ toolsListChanged: true, resourcesListChanged: true });
  equal(tools.honoredFilter, { toolsListChanged: true }, 'tools acknowledged');
  equal([others.honoredFilter.promptsListChanged, others.honoredFilter.resourceSubscriptions], [true, [WATCHED]], 'others acknowledged');
  const [a, b, c] = listens();
  const lists = (e) => answer(e).notes.slice(1).map((n) => short(n.method)).filter((m) => m !== 'resources/updated');
  const updates = (e) => answer(e).notes.filter((n) => n.method === 'notifications/resources/updated');
  const wanted = { a: [], b: [], c: [] };
  // One at a time, because a server may merge unread changes.
  const trigger = async (tool, args, change, ...streams) => {
    await call(tool, args);
    for (const name of streams) wanted[name].push(change);
    await until(() => lists(a).length >= wanted.a.length && lists(b).length >= wanted.b.length && lists(c).length >= wanted.c.length,
      5000, () => `${tool} ${JSON.stringify(args)}: got ${JSON.stringify([lists(a), lists(b), lists(c)])}`);
    await sleep(100);
    equal({ a: lists(a), b: lists(b), c: lists(c) }, wanted, `after ${tool} ${JSON.stringify(args)}`);
  };
  await trigger('test_trigger_tool_change', {}, 'tools/list_changed', 'a', 'c');
  await trigger('test_trigger_prompt_change', {}, 'prompts/list_changed', 'b');
  await trigger('notify_all', { kind: 'tools' }, 'tools/list_changed', 'a', 'c');
  await trigger('notify_all', { kind: 'prompts' }, 'prompts/list_changed', 'b');
  await trigger('notify_all', { kind: 'resources' }, 'resources/list_changed', 'c');
  await trigger('notify_all', {}, 'tools/list_changed', 'a', 'c');
  const before = updates(b).length;
  await call('notify_all', { kind: 'updated' });
  await until(() => updates(b).length > before, 1500, 'no resources/updated within 1.5 s');
  assert(updates(b).every((n) => n.params.uri === WATCHED), 'an update of another resource');
  equal([updates(a).length, updates(c).length], [0, 0], 'updates for streams that did not ask');
  for (const e of [a, b, c]) {
    const notes = answer(e).notes;
    equal(notes.filter((n) => n.method.endsWith('/acknowledged')).length, 1, 'acknowledgements');
    assert(notes[0].method === 'notifications/subscriptions/acknowledged', `first is ${notes[0].method}`);
    assert(notes.every((n) => n.params._meta[SUBSCRIPTION_ID_META_KEY] === e.rpc.id), 'a wrong subscription id');
  }
  // The same through the handlers of the clients.
  main.notes.splice(0, from[0]);
  auto.notes.splice(0, from[1]);
  equal([heard(main, a.rpc.id).lists, heard(main, b.rpc.id).lists, heard(auto, c.rpc.id).lists], [wanted.a, wanted.b, wanted.c], 'handlers');
  equal(heard(main, b.rpc.id).updated.length, updates(b).length, 'updates at the handler');
  equal(main.notes.filter((n) => !n.params._meta?.[SUBSCRIPTION_ID_META_KEY]), [], 'notes outside of a subscription');

  await tools.close();
  equal(await tools.closed, 'local', 'closed by');
  await trigger('notify_all', { kind: 'tools' }, 'tools/list_changed', 'c');
  await others.close();
  await foreign.close();
  const cancels = exchanges((e) => e.rpc?.method === 'notifications/cancelled');
  equal(cancels.map((e) => e.status), [202, 202, 202], 'answers to the notifications the client sends on close');
}, 40_000);

await check('raw: the subscription id keeps its JSON type', async () => {
  const stop = new AbortController();
  const streams = [];
  for (const id of [7, '7']) {
    const response = await raw('subscriptions/listen', { notifications: { toolsListChanged: true } }, { id, signal: stop.signal });
    assert((response.headers.get('content-type') ?? '').startsWith('text/event-stream'), `HTTP ${response.status}`);
    const stream = { id, sse: '' };
    streams.push(stream);
    (async () => {
      const decoder = new TextDecoder();
      for await (const chunk of response.body) stream.sse += decoder.decode(chunk, { stream: true });
    })().catch(() => {});
  }
  await call('notify_all', { kind: 'tools' });
  await until(() => streams.every((s) => events(s.sse).length >= 2), 5000, () => JSON.stringify(streams));
  stop.abort();
  for (const { id, sse } of streams) {
    const seen = events(sse).map((m) => [short(m.method), m.params._meta[SUBSCRIPTION_ID_META_KEY]]);
    equal(seen, [['subscriptions/acknowledged', id], ['tools/list_changed', id]], 'messages');
  }
});

await check('raw: listen without a filter is refused', async () =>
  equal((await refusal(await raw('subscriptions/listen')))[1], -32602, 'code'));

// ---- cancellation

/** The counters of `sleep`. Behind a balancer each node has its own: RETHREAD_NODES has their URLs. */
async function counters() {
  const nodes = process.env.RETHREAD_NODES?.split(',');
  if (!nodes) return JSON.parse(text(await call('counters')));
  const sum = { started: 0, finished: 0, cancelled: 0 };
  for (const node of nodes) {
    const response = await raw('tools/call', { name: 'counters', arguments: {} }, { to: node });
    const counted = JSON.parse(text((await response.json()).result));
    for (const name of Object.keys(sum)) sum[name] += counted[name];
  }
  return sum;
}

/** Starts a long sleep, ends it with `stop` after `ms`, and expects it in the cancel counter within a second. */
async function cancelled(ms, options, stop) {
  const start = await counters();
  const from = wire.exchanges.length;
  const running = call('sleep', { ms: 30_000 }, options).then(() => 'finished', (error) => error);
  await until(async () => (await counters()).started > start.started, 5000, 'sleep did not start');
  await sleep(ms);
  stop?.();
  assert((await running) !== 'finished', 'the call was not aborted');
  await until(async () => (await counters()).cancelled > start.cancelled, 1000, 'not counted as cancelled within 1 s');
  const end = await counters();
  counted(start, end, 0);
  equal(wire.exchanges.slice(from).filter((e) => e.rpc?.method === 'notifications/cancelled').length, 0, 'notifications/cancelled sent');
}

await check('cancellation by disconnect: sleep stops within 1 s', () => {
  const abort = new AbortController();
  return cancelled(0, { signal: abort.signal }, () => abort.abort('enough'));
});

await check('cancellation by disconnect after 1.5 s of silence', () => {
  const abort = new AbortController();
  return cancelled(1500, { signal: abort.signal }, () => abort.abort('enough'));
});

await check('a timeout of the client cancels too', () => cancelled(0, { timeout: 700 }));

await check('cancelling one call leaves the others alone', async () => {
  const start = await counters();
  const abort = new AbortController();
  const doomed = call('sleep', { ms: 30_000 }, { signal: abort.signal }).catch(() => 'aborted');
  const others = [1, 2, 3].map(() => call('sleep', { ms: 1200 }));
  await until(async () => (await counters()).started >= start.started + 4, 5000, 'sleeps did not start');
  abort.abort('enough');
  equal(await doomed, 'aborted', 'the aborted call');
  equal((await Promise.all(others)).map(text), ['slept 1200', 'slept 1200', 'slept 1200'], 'the others');
  const end = await counters();
  counted(start, end, 3);
});

await check('raw: notifications/cancelled from a stranger is ignored', async () => {
  const start = await counters();
  const running = call('sleep', { ms: 1200 });
  await until(async () => (await counters()).started > start.started, 5000, 'sleep did not start');
  const { id } = lastFor('sleep').rpc;
  const response = await raw('notifications/cancelled', { requestId: id }, { id: null });
  equal(response.status, 202, 'HTTP status');
  equal(text(await running), 'slept 1200', 'the call');
});

// ---- removed methods

await check('raw: removed and unknown methods are 404 with -32601', async () => {
  for (const method of ['initialize', 'ping', 'logging/setLevel', 'resources/subscribe', 'resources/unsubscribe', 'no/such/method']) {
    const params = { initialize: { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: 'x', version: '1' } },
      'logging/setLevel': { level: 'info' } }[method] ?? (method.startsWith('resources/') ? { uri: WATCHED } : {});
    equal(await refusal(await raw(method, params)), [404, -32601], method);
  }
});

await check('raw: headers that differ, unknown revisions, missing _meta', async () => {
  const params = { name: 'echo', arguments: {} };
  equal(await refusal(await raw('tools/call', params, { headers: { 'mcp-name': 'burst' } })), [400, -32020], 'Mcp-Name');
  equal(await refusal(await raw('tools/call', params, { headers: { 'mcp-method': 'tools/list' } })), [400, -32020], 'Mcp-Method');
  equal(await refusal(await raw('tools/call', params, { headers: { 'mcp-protocol-version': undefined } })), [400, -32020], 'no version header');
  const unknown = { headers: { 'mcp-protocol-version': '2099-01-01' }, meta: { [`${META}protocolVersion`]: '2099-01-01' } };
  equal(await refusal(await raw('tools/call', params, unknown)), [400, -32022], 'unknown revision');
  equal(await refusal(await raw('tools/call', params, { meta: { [`${META}clientCapabilities`]: undefined } })), [400, -32602], 'no capabilities');
});

await check('raw: GET and DELETE are 405', async () => {
  for (const method of ['GET', 'DELETE']) {
    const response = await fetch(url, { method, headers: { accept: 'text/event-stream', 'mcp-protocol-version': VERSION } });
    await response.body?.cancel();
    equal(response.status, 405, method);
  }
});

// ---- the whole run on the wire

/** A call that this script abandoned: its stream, if any, has no response. */
const aborted = (e) => e.rpc.tool === 'sleep' && !answer(e).response;

await check('no session: no session id, no GET, no DELETE, no cursor', async () => {
  equal([...new Set(exchanges(() => true).map((e) => e.method))], ['POST'], 'HTTP methods');
  assert(exchanges((e) => e.session || e.lastEventId).length === 0, 'a request carried a session id or a cursor');
  assert(exchanges((e) => e.answered?.get('mcp-session-id')).length === 0, 'an answer carried a session id');
  equal([...new Set(exchanges(() => true).map((e) => e.headers.get('mcp-protocol-version')))], [VERSION], 'revisions');
  equal(exchanges((e) => e.rpc.method === 'initialize').length, 0, 'initialize requests');
});

await check('streams: no id, no retry, no server requests, one response at the end', async () => {
  const streams = exchanges((e) => e.sse);
  for (const e of streams) {
    const field = /^(id|retry|event:(?! ?message$)).*/m.exec(e.sse)?.[0];
    assert(field === undefined, `${e.rpc.tool ?? e.rpc.method}: ${field}`);
    assert(events(e.sse).every((m) => !(m.method && 'id' in m)), 'a request from the server');
    const all = events(e.sse);
    if (e.rpc.method === 'subscriptions/listen' || aborted(e)) continue;
    assert(all.filter((m) => !m.method).length === 1 && !all.at(-1).method, `${e.rpc.tool}: not one response at the end`);
    const allowed = new Set(['notifications/progress', 'notifications/message']);
    assert(all.slice(0, -1).every((m) => allowed.has(m.method)), `${e.rpc.tool}: ${all.map((m) => m.method)}`);
  }
});

await check('every result has a resultType, every answer the id of its request', async () => {
  for (const e of exchanges((x) => x.status === 200 && (x.sse || x.json) && x.rpc.method !== 'subscriptions/listen' && !aborted(x))) {
    const { response } = answer(e);
    equal(response.id, e.rpc.id, `id of ${e.rpc.method}`);
    if (response.result) assert(['complete', 'input_required'].includes(response.result.resultType), `${e.rpc.method} ${e.rpc.tool}`);
  }
});

await check('caching hints on discover, lists and reads', async () => {
  const methods = ['server/discover', 'tools/list', 'prompts/list', 'resources/list', 'resources/templates/list', 'resources/read'];
  for (const method of methods) {
    const results = exchanges((e) => e.rpc.method === method).map((e) => answer(e).response?.result).filter(Boolean);
    assert(results.length > 0, `no result of ${method}`);
    for (const r of results) {
      assert(Number.isInteger(r.ttlMs) && r.ttlMs >= 0 && ['public', 'private'].includes(r.cacheScope), `${method}: ${r.ttlMs} ${r.cacheScope}`);
    }
  }
});

await check('no unexpected client errors', async () => {
  const strange = [...main.errors, ...auto.errors].filter((e) => /unknown message ID|JSON|parse|invalid/i.test(e));
  equal(strange, [], 'errors');
});

await check('close', async () => {
  await client.close();
  await auto.client.close();
});
report.finish();
