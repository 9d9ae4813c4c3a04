// The fixture server without Streamable HTTP: over HTTP+SSE of 2024-11-05, and over stdin and stdout.
//   node old.mjs sse <url> [sdk1|client2]
//   node old.mjs stdio <program> [sdk1|client2]
//   node old.mjs stdio-modern <program>            revision 2026-07-28, client2
//
// `stdio` starts `<program> --stdio`.

import { Report, Wire, assert, connect, equal, sequence, sleep, text, until, watchdog } from './common.mjs';

const [how, where, which = how === 'stdio-modern' ? 'client2' : 'sdk1'] = process.argv.slice(2);
if (!['sse', 'stdio', 'stdio-modern'].includes(how) || !where) {
  console.error('usage: node old.mjs <sse|stdio|stdio-modern> <url|program> [sdk1|client2]');
  process.exit(2);
}

const VERSION = '2026-07-28';
const WATCHED = 'test://watched-resource';
const ROOTS = [{ uri: 'file:///outside/root', name: 'outside root' }];
const PERSON = { username: 'ada', email: 'ada@example.org' };

const report = new Report();
watchdog(report, 120_000);
const check = (...args) => report.check(...args);

/** The transport of this run. It records every message in `log`, in order. */
async function open(log, wire) {
  const from = which === 'sdk1' ? '@modelcontextprotocol/sdk/client' : '@modelcontextprotocol/client';
  let transport;
  if (how === 'sse') {
    const { SSEClientTransport } = await import(which === 'sdk1' ? `${from}/sse.js` : from);
    transport = new SSEClientTransport(new URL(where), { fetch: wire.fetch });
  } else {
    const { StdioClientTransport } = await import(which === 'sdk1' ? `${from}/stdio.js` : `${from}/stdio`);
    transport = new StdioClientTransport({ command: where, args: ['--stdio'] });
  }
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    log.push({ sent: message });
    return send(message, options);
  };
  // The client calls an existing handler before its own.
  transport.onmessage = (message) => log.push({ got: message });
  return transport;
}

/** Invariants of every run, checked in the recorded messages. */
async function checkLog(log) {
  await check('every request was answered once, and nothing else was', async () => {
    const cancelled = new Set(log.filter((e) => e.sent?.method === 'notifications/cancelled').map((e) => e.sent.params.requestId));
    const asked = log.filter((e) => e.sent?.method && e.sent.id !== undefined).map((e) => e.sent.id);
    const answered = log.filter((e) => e.got && !e.got.method).map((e) => e.got.id);
    equal(new Set(answered).size, answered.length, 'answers and different ids in them');
    equal(answered.filter((id) => !asked.includes(id)), [], 'answers to nothing');
    equal(asked.filter((id) => !answered.includes(id) && !cancelled.has(id)), [], 'unanswered');
  });
  await check('progress comes between its request and its response, to the right token', async () => {
    const tokens = new Map();
    let seen = 0;
    for (const { sent, got } of log) {
      const token = sent?.params?._meta?.progressToken;
      if (token !== undefined && sent.id !== undefined) tokens.set(token, sent.id);
      if (got && !got.method) for (const [key, id] of tokens) if (id === got.id) tokens.delete(key);
      if (got?.method !== 'notifications/progress') continue;
      seen += 1;
      assert(tokens.has(got.params.progressToken), `progress for a call that does not run: ${JSON.stringify(got)}`);
    }
    assert(seen >= 100, `only ${seen} progress notifications`);
    console.log(`info the client kept ${dropped} of ${seen} progress notifications to itself`);
  });
}

let dropped = 0;

/**
 * Runs `count` of burst and checks its progress exactly in the recorded messages. The client drops progress that arrives
 * with the response (FINDINGS.md, O1), so its callback must only have received a prefix.
 */
async function burst({ call, log }, count, extra = {}) {
  const from = log.length;
  const heard = [];
  const result = await call('burst', { events: count, bytes: 48, ...extra }, { onprogress: (p) => heard.push(p.progress) });
  await sleep(0);
  equal(text(result), `burst ${count} done`, 'result');
  const mine = log.slice(from);
  const token = mine.find((e) => e.sent?.params?.arguments?.events === count).sent.params._meta.progressToken;
  const seen = mine.filter((e) => e.got?.params?.progressToken === token).map((e) => e.got.params);
  sequence(seen.map((p) => p.progress), count, 'progress');
  assert(seen.every((p) => p.total === count), `a total is not ${count}`);
  sequence(heard, heard.length, 'progress at the callback');
  dropped += count - heard.length;
}

const bursts = (session) => Promise.all(Array.from({ length: 20 }, (_, i) => burst(session, 10 + i, { delay_us: 2000 })));

const counters = async (call) => JSON.parse(text(await call('counters', {})));

/**
 * Starts `count` of sleep and cancels each after `pause`. The server may never start a call that is cancelled early. It must
 * cancel every started call, and none may start later.
 */
async function cancel({ call }, count, pause) {
  const start = await counters(call);
  for (let i = 0; i < count; i += 1) {
    const abort = new AbortController();
    const running = call('sleep', { ms: 30_000 }, { signal: abort.signal }).then(() => 'finished', (error) => error);
    await pause(start.started + i);
    abort.abort('enough');
    assert((await running) !== 'finished', 'the call was not aborted');
  }
  const since = async () => {
    const now = await counters(call);
    return { started: now.started - start.started, cancelled: now.cancelled - start.cancelled, finished: now.finished - start.finished };
  };
  let seen;
  const stopped = async () => {
    seen = await since();
    return seen.started >= Math.ceil(count / 10) && seen.cancelled === seen.started;
  };
  await until(stopped, 5000, () => `counters show too few cancellations: ${JSON.stringify(seen)}`);
  await sleep(200);
  equal(await since(), { ...seen, finished: 0 }, 'counters a moment later');
}

async function cancellation(session) {
  await check('cancellation: sleep stops', () => cancel(session, 1, (before) =>
    until(async () => (await counters(session.call)).started > before, 5000, 'sleep did not start')));
  await check('cancellation: 30 more, none is answered', async () => {
    const { log } = session;
    const from = log.length;
    // Over HTTP+SSE each message is a separate POST, and the client does not wait for the response. A cancellation that
    // overtakes its call has no effect. So wait until the call is accepted.
    const posts = () => (session.wire?.exchanges ?? []).filter((e) => e.rpc?.tool === 'sleep');
    const before = posts().length;
    let calls = 0;
    await cancel(session, 30, async () => {
      await sleep(3);
      if (how !== 'sse') return;
      calls += 1;
      await until(() => posts().length === before + calls && posts().at(-1).status === 202, 5000, 'the call was not accepted');
    });
    await sleep(100);
    const ids = log.filter((e) => e.sent?.params?.name === 'sleep').map((e) => e.sent.id);
    const answers = log.slice(from).filter((e) => e.got && !e.got.method && ids.includes(e.got.id)).map((e) => e.got);
    equal(answers.length, 0, `answers to cancelled calls, such as ${JSON.stringify(answers[0])}`);
  });
}

/** Closes `client`. Its server must exit at the end of stdin, before the client sends a signal (2 s). */
async function endsWithStdin(client, transport) {
  const child = transport._process; // the only way to learn how it ended
  const ended = new Promise((resolve) => child.once('exit', (code, signal) => resolve([code, signal])));
  const start = Date.now();
  await client.close();
  equal(await ended, [0, null], 'exit code and signal');
  assert(Date.now() - start < 1500, `${Date.now() - start} ms`);
}

const failed = async (error) => {
  report.fail('connect', error);
  report.finish();
  await sleep(1000);
};

async function sessions() {
  const log = [];
  const wire = new Wire({ bodies: false });
  const notes = [];
  const asked = { sampling: 0, elicitation: 0, roots: 0 };
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
  const fresh = async (into) => connect(which, undefined, { on, transport: await open(into, wire) });
  const session = await fresh(log).catch(failed);
  Object.assign(session, { log, wire });
  const { client, transport, call, errors } = session;
  const messages = () => notes.filter((n) => n.method === 'notifications/message').map((n) => n.params);

  await check('initialize', async () => {
    const { protocolVersion } = log.find((e) => e.got?.result?.protocolVersion).got.result;
    const wanted = log.find((e) => e.sent?.method === 'initialize').sent.params.protocolVersion;
    console.log(`info asked for ${wanted}, got ${protocolVersion}`);
    assert(/^202[45]-\d\d-\d\d$/.test(protocolVersion), protocolVersion);
    assert(client.getServerVersion()?.name, 'no server name');
    const caps = client.getServerCapabilities();
    assert(caps.tools && caps.resources?.subscribe && caps.prompts && caps.logging, JSON.stringify(caps));
  });

  await check('ping', () => client.ping());

  await check('tools/list', async () => {
    const names = (await client.listTools()).tools.map((t) => t.name);
    const wanted = ['echo', 'burst', 'sleep', 'log_burst', 'push', 'notify_self', 'ask', 'ask_many', 'counters', 'test_sampling', 'test_elicitation'];
    equal(wanted.filter((n) => !names.includes(n)), [], 'missing');
  });

  await check('call echo', async () => {
    const message = 'héllo "wörld"\nsecond line \u{1F980} \u2028 end';
    equal(text(await call('echo', { message })), message, 'echo');
  });

  await check('call echo, 200 kB', async () => {
    const message = 'x'.repeat(200_000);
    assert(text(await call('echo', { message })) === message, 'differs');
  });

  await check('burst: 20 progress notifications, once and in order', () => burst(session, 20));
  await check('burst: paced progress notifications', () => burst(session, 20, { delay_us: 5000 }));

  await check('log_burst: 10 log messages', async () => {
    const before = messages().length;
    equal(text(await call('log_burst', { count: 10 })), 'logged 10', 'result');
    await sleep(50);
    const numbers = messages().slice(before).filter((m) => m.logger === 'fixture').map((m) => m.data.n);
    equal(numbers, Array.from({ length: 10 }, (_, i) => i + (numbers[0] === 0 ? 0 : 1)), 'n');
  });

  await check('logging/setLevel filters', async () => {
    await client.setLoggingLevel('error');
    const before = messages().length;
    await call('log_burst', { count: 5 });
    await sleep(200);
    const count = messages().length - before;
    await client.setLoggingLevel('debug');
    equal(count, 0, 'info messages at level error');
  });

  await check('sampling: test_sampling', async () => {
    equal(text(await call('test_sampling', { prompt: 'two plus two' })), 'LLM response: heard two plus two', 'text');
    equal(asked.sampling, 1, 'questions');
  });

  await check('elicitation: test_elicitation', async () => {
    const answer = text(await call('test_elicitation', { message: 'who are you' }));
    for (const part of ['accept', 'ada', 'ada@example.org']) assert(answer.includes(part), answer);
    equal(asked.elicitation, 1, 'questions');
  });

  await check('roots: ask', async () => {
    const answer = JSON.parse(text(await call('ask', { what: 'roots' })));
    equal(answer.roots?.[0]?.uri, ROOTS[0].uri, 'root');
    equal(asked.roots, 1, 'questions');
  });

  await check('ask_many: 3 rounds', async () => {
    const before = asked.elicitation;
    const answers = JSON.parse(text(await call('ask_many', { rounds: 3 })));
    equal(answers.map((a) => a.action), ['accept', 'accept', 'accept'], 'answers');
    equal(asked.elicitation - before, 3, 'questions');
  });

  await check('resources/subscribe, updated, unsubscribe', async () => {
    const updates = () => notes.filter((n) => n.method === 'notifications/resources/updated' && n.params.uri === WATCHED).length;
    await client.subscribeResource({ uri: WATCHED });
    await until(() => updates() >= 1, 10_000, 'no notifications/resources/updated within 10 s');
    await client.unsubscribeResource({ uri: WATCHED });
    await sleep(100);
    const before = updates();
    await sleep(3500);
    equal(updates(), before, 'updates after unsubscribe');
  }, 30_000);

  /** Waits for `count` values and a short time for repeats, then checks their order. */
  const arrivesOnce = async (read, count, what) => {
    await until(() => read().length >= count, 8000, () => `${what}: got ${JSON.stringify(read())}`);
    await sleep(200);
    const seen = read();
    equal(seen, Array.from({ length: count }, (_, i) => i + (seen[0] === 0 ? 0 : 1)), what);
  };

  await check('push: 5 messages, once, in order', async () => {
    equal(text(await call('push', { count: 5, tag: 'x' })), 'pushed 5', 'result');
    await arrivesOnce(() => messages().filter((m) => m.data?.push === 'x').map((m) => m.data.n), 5, 'n');
  });

  await check('notify_self: 5 messages, once, in order', async () => {
    equal(text(await call('notify_self', { events: 5, tag: 'y' })), 'notified 5', 'result');
    const mine = () => messages().map((m) => m.data).filter((d) => typeof d === 'string' && d.startsWith('y '));
    await arrivesOnce(() => mine().map((d) => Number(d.split(' ')[1])), 5, 'i');
  });

  await check('notify_all tools: list_changed, once', async () => {
    const changes = () => notes.filter((n) => n.method === 'notifications/tools/list_changed').length;
    await call('notify_all', { kind: 'tools' });
    await until(() => changes() > 0, 5000, 'no tools/list_changed');
    await sleep(200);
    equal(changes(), 1, 'changes');
  });

  await check('error response: unknown resource', async () => {
    const failure = await client.readResource({ uri: 'test://no-such-resource' }).catch((error) => error);
    assert(failure?.code < -32000, `no JSON-RPC error: ${failure}`);
  });

  await cancellation(session);

  await check('20 bursts at once: progress stays with its call', () => bursts(session), 40_000);

  await check('ping at the end', () => client.ping());
  await checkLog(log);

  if (how === 'sse') {
    await check('one GET, every POST 202, to one endpoint', async () => {
      const gets = wire.exchanges.filter((e) => e.method === 'GET').map((e) => e.status);
      const posts = wire.exchanges.filter((e) => e.method === 'POST');
      equal(gets, [200], 'GETs');
      equal([...new Set(posts.map((e) => e.status))], [202], 'statuses of POSTs');
      equal(new Set(posts.map((e) => e.url)).size, 1, 'endpoints');
    });
    await check('two sessions at once: each hears its own', async () => {
      const before = messages().length;
      const second = await fresh([]);
      const [one, two] = await Promise.all([call('push', { count: 3, tag: 'p' }), second.call('push', { count: 3, tag: 'q' })]);
      equal([text(one), text(two)], ['pushed 3', 'pushed 3'], 'results');
      const heard = (tag) => messages().slice(before).filter((m) => m.data?.push === tag).length;
      await until(() => heard('p') >= 3 && heard('q') >= 3, 5000, () => `heard ${heard('p')} and ${heard('q')}`);
      await sleep(200);
      equal([heard('p'), heard('q')], [3, 3], 'messages at both together');
      await second.client.close();
      equal(text(await call('echo', { message: 'still here' })), 'still here', 'the first session');
    });
    await check('raw: after close the endpoint is gone', async () => {
      const { url } = wire.exchanges.find((e) => e.method === 'POST');
      await client.close();
      const post = () => fetch(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 'late', method: 'ping' }),
      });
      let status;
      await until(async () => {
        const response = await post();
        await response.body?.cancel();
        status = response.status;
        return status === 404;
      }, 5000, () => `POST after close is answered ${status}`);
    });
  } else {
    await check('close: the process ends by itself', () => endsWithStdin(client, transport));
    await check('close while a call runs: the process ends by itself', async () => {
      const second = await fresh([]);
      const running = second.call('sleep', { ms: 30_000 }).catch((error) => error);
      await sleep(300);
      await endsWithStdin(second.client, second.transport);
      assert((await running) instanceof Error, 'the call was answered with success');
    });
  }

  await check('no unexpected client errors', async () => {
    equal(errors.filter((e) => /unknown message ID|Unexpected token|not valid JSON|parse|invalid/i.test(e)), [], 'errors');
  });
}

async function modern() {
  const { Client, LOG_LEVEL_META_KEY, SUBSCRIPTION_ID_META_KEY } = await import('@modelcontextprotocol/client');
  const notes = [];
  const errors = [];
  let asked = 0;

  const fresh = async (mode) => {
    const client = new Client(
      { name: 'outside-old', version: '1.0.0' },
      { capabilities: { sampling: {}, elicitation: { form: {} }, roots: {} }, versionNegotiation: { mode } },
    );
    client.setRequestHandler('elicitation/create', ({ params }) => {
      asked += 1;
      const names = Object.keys(params.requestedSchema.properties);
      return { action: 'accept', content: Object.fromEntries(names.map((n) => [n, PERSON[n] ?? `a ${n}`])) };
    });
    client.setRequestHandler('sampling/createMessage', () => { throw new Error('nobody asked for that'); });
    client.setRequestHandler('roots/list', () => ({ roots: ROOTS }));
    for (const method of ['message', 'tools/list_changed', 'resources/updated'].map((m) => `notifications/${m}`)) {
      client.setNotificationHandler(method, (note) => notes.push({ method: note.method, params: note.params ?? {} }));
    }
    client.onerror = (error) => errors.push(String(error?.message ?? error));
    const mine = [];
    const transport = await open(mine, undefined);
    await client.connect(transport);
    const call = (name, args = {}, options = {}, meta = undefined) =>
      client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, { timeout: 30_000, ...options });
    return { client, transport, call, log: mine };
  };
  const session = await fresh({ pin: VERSION }).catch(failed);
  const { client, transport, call } = session;
  const of = (method, from = 0) => session.log.slice(from).filter((e) => e.got?.method === `notifications/${method}`).map((e) => e.got.params);

  await check('connect pinned: discover, revision, capabilities', async () => {
    equal([client.getProtocolEra(), client.getNegotiatedProtocolVersion()], ['modern', VERSION], 'negotiated');
    // The client sent the probe to a separate process. This process has received nothing yet.
    equal(session.log, [], 'messages so far');
    assert(client.getDiscoverResult().supportedVersions.includes(VERSION), 'discover does not list the revision');
    assert(client.getServerCapabilities().tools?.listChanged, JSON.stringify(client.getServerCapabilities()));
  });

  await check('connect auto: the client chooses the modern era by itself', async () => {
    const auto = await fresh('auto');
    equal([auto.client.getProtocolEra(), auto.client.getNegotiatedProtocolVersion()], ['modern', VERSION], 'negotiated');
    equal(text(await auto.call('echo', { message: 'x' })), 'x', 'echo');
    equal(auto.log.some((e) => e.sent?.method === 'initialize'), false, 'initialize sent');
    await auto.client.close();
  });

  await check('server/discover again', async () => {
    const { supportedVersions } = await client.discover();
    assert(supportedVersions.includes(VERSION), String(supportedVersions));
  });

  await check('tools/list', async () => {
    const names = (await client.listTools()).tools.map((t) => t.name);
    equal(['echo', 'burst', 'ask', 'ask_many', 'sleep', 'notify_all'].filter((n) => !names.includes(n)), [], 'missing');
  });

  await check('call echo', async () => {
    const message = 'héllo "wörld"\nsecond line \u{1F980} \u2028 end';
    equal(text(await call('echo', { message })), message, 'echo');
  });

  await check('burst: 20 progress notifications, once and in order', () => burst(session, 20));

  await check('20 bursts at once: progress stays with its call', () => bursts(session), 40_000);

  await check('log_burst: 10 messages at level info, none without', async () => {
    let from = session.log.length;
    await call('log_burst', { count: 10 }, {}, { [LOG_LEVEL_META_KEY]: 'info' });
    const numbers = of('message', from).map((m) => m.data.n);
    equal(numbers, Array.from({ length: 10 }, (_, i) => i + (numbers[0] === 0 ? 0 : 1)), 'n');
    from = session.log.length;
    await call('log_burst', { count: 5 });
    await sleep(100);
    equal(of('message', from), [], 'without a level');
  });

  /** Calls `tool` and checks for `rounds` questions, each a new request with the echoed state. */
  const rounds = async (tool, args, count) => {
    const [before, from] = [asked, session.log.length];
    const said = JSON.parse(text(await call(tool, args)));
    equal(asked - before, count, 'questions');
    const legs = session.log.slice(from).filter((e) => e.sent?.params?.name === tool).map((e) => e.sent);
    equal(legs.length, count + 1, 'requests');
    for (const [i, leg] of legs.entries()) {
      const { result } = session.log.find((e) => e.got && !e.got.method && e.got.id === leg.id).got;
      equal(result.resultType, i === count ? 'complete' : 'input_required', `result type of request ${i + 1}`);
      if (i < count) equal(legs[i + 1].params.requestState, result.requestState, 'state');
    }
    return said;
  };

  await check('ask elicitation: one round', async () =>
    equal((await rounds('ask', { what: 'elicitation' }, 1)).action, 'accept', 'action'));

  await check('ask_many: 3 rounds', async () =>
    equal((await rounds('ask_many', { rounds: 3 }, 3)).map((a) => a.action), ['accept', 'accept', 'accept'], 'answers'));

  await check('subscriptions/listen: acknowledged, its own changes once, silent after close', async () => {
    const from = session.log.length;
    const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [WATCHED] });
    equal(subscription.honoredFilter, { toolsListChanged: true, resourceSubscriptions: [WATCHED] }, 'acknowledged');
    const { id } = session.log.slice(from).find((e) => e.sent?.method === 'subscriptions/listen').sent;
    const lists = () => of('tools/list_changed', from);
    for (const count of [1, 2]) {
      await call('notify_all', { kind: 'tools' });
      await until(() => lists().length >= count, 5000, 'no tools/list_changed');
      await sleep(100);
      equal(lists().length, count, 'changes');
    }
    await call('notify_all', { kind: 'prompts' });
    await call('notify_all', { kind: 'updated' });
    await until(() => of('resources/updated', from).length > 0, 10_000, 'no resources/updated');
    const all = session.log.slice(from).filter((e) => e.got?.method).map((e) => e.got);
    equal(all[0].method, 'notifications/subscriptions/acknowledged', 'first');
    assert(all.every((m) => m.params._meta?.[SUBSCRIPTION_ID_META_KEY] === id), `a wrong subscription id: ${JSON.stringify(all)}`);
    equal(all.filter((m) => m.method.includes('prompts')), [], 'changes nobody asked for');
    equal(notes.filter((n) => n.method === 'notifications/tools/list_changed').length, 2, 'changes at the handler');
    await subscription.close();
    await sleep(100);
    const before = lists().length;
    await call('notify_all', { kind: 'tools' });
    await sleep(300);
    equal(lists().length, before, 'changes after close');
  }, 30_000);

  await cancellation(session);

  await check('no requests from the server, a resultType in every result', async () => {
    equal(session.log.filter((e) => e.got?.method && e.got.id !== undefined), [], 'requests');
    const results = session.log.filter((e) => e.got?.result).map((e) => e.got.result.resultType);
    equal([...new Set(results)].sort(), ['complete', 'input_required'], 'result types');
  });

  await checkLog(session.log);
  await check('close: the process ends by itself', () => endsWithStdin(client, transport));
  await check('no unexpected client errors', async () =>
    equal(errors.filter((e) => /unknown message ID|Unexpected token|not valid JSON|parse|invalid/i.test(e)), [], 'errors'));
}

await (how === 'stdio-modern' ? modern() : sessions());
report.finish();
