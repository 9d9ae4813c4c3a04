// A third-party server behind the gateway: @modelcontextprotocol/server-everything, or py/server.py with the same features.
//   node behind.mjs <sdk1|client2> <url>                   every feature once; a URL that ends in /sse uses HTTP+SSE
//   node behind.mjs <sdk1|client2> <url> <calls> [seed]    calls through a proxy that cuts every SSE response

import { Report, Wire, assert, connect, equal, random, sequence, sleep, text, until, watchdog } from './common.mjs';

const [which, url, callsArg, seedArg] = process.argv.slice(2);
const calls = Number(callsArg ?? 0);
if (!which || !url || !Number.isInteger(calls)) {
  console.error('usage: node behind.mjs <sdk1|client2> <url> [<calls> [seed]]');
  process.exit(2);
}
const seed = Number(seedArg ?? 1);
const old = url.endsWith('/sse');
const CONCURRENCY = 6;
const WATCHED = 'demo://resource/dynamic/text/7';
const ROOT = { uri: 'file:///outside/root', name: 'outside root' };

const report = new Report();
watchdog(report, 120_000);
const check = (...args) => report.check(...args);

const wire = new Wire({ bodies: calls === 0 });
const notes = [];
const prompts = [];
const asked = { elicitation: 0, roots: 0 };
const on = {
  notification: (method, params) => notes.push({ method, params }),
  sampling: (params) => {
    const prompt = params.messages[0].content.text;
    prompts.push(prompt);
    return { role: 'assistant', model: 'outside-model', stopReason: 'endTurn', content: { type: 'text', text: `heard ${prompt}` } };
  },
  elicitation: () => {
    asked.elicitation += 1;
    return { action: 'accept', content: { name: 'Ada Lovelace', integer: 37 } };
  },
  roots: () => {
    asked.roots += 1;
    return { roots: [ROOT] };
  },
};

/** A transport for HTTP+SSE that records every message in `log`, in order. */
const log = [];
async function oldTransport() {
  const from = which === 'sdk1' ? '@modelcontextprotocol/sdk/client/sse.js' : '@modelcontextprotocol/client';
  const { SSEClientTransport } = await import(from);
  const transport = new SSEClientTransport(new URL(url), { fetch: wire.fetch });
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    log.push({ sent: message });
    return send(message, options);
  };
  // The client calls an existing handler before its own.
  transport.onmessage = (message) => log.push({ got: message });
  return transport;
}

let session;
try {
  const transport = old ? await oldTransport() : undefined;
  session = await connect(which, url, { wire, on, maxRetries: calls ? 1000 : 3, transport });
} catch (error) {
  report.fail('connect', error);
  report.finish();
  await sleep(1000);
}
const { client, transport, call, errors } = session;
const logs = (part) => notes.filter((n) => n.method === 'notifications/message' && String(n.params.data).includes(part));
const all = (result) => result.content.map((block) => block.text).join('\n');

let operations = 0;
/** A call of several seconds that reports each step. */
async function operate(duration, steps) {
  let seen = [];
  const tag = `o${(operations += 1)}`; // no server knows it
  const onprogress = (p) => seen.push(p);
  const result = await call('trigger-long-running-operation', { duration, steps, tag }, { onprogress });
  await sleep(0);
  equal(text(result), `Long running operation completed. Duration: ${duration} seconds, Steps: ${steps}.`, 'result');
  if (old) {
    // The client drops progress that arrives with the response (FINDINGS.md, O1). The recorded messages have it.
    const token = log.find((e) => e.sent?.params?.arguments?.tag === tag).sent.params._meta.progressToken;
    seen = log.filter((e) => e.got?.params?.progressToken === token).map((e) => e.got.params);
  }
  sequence(seen.map((p) => p.progress), steps, 'progress');
  assert(seen.every((p) => p.total === steps), `a total is not ${steps}`);
}

async function sample(prompt) {
  const before = prompts.length;
  const answer = all(await call('trigger-sampling-request', { prompt, maxTokens: 20 }));
  assert(answer.includes(`heard Resource trigger-sampling-request context: ${prompt}"`), answer);
  equal(prompts.slice(before).filter((p) => p.endsWith(` ${prompt}`)).length, 1, 'questions');
}

async function elicit() {
  const answer = all(await call('trigger-elicitation-request', {}));
  for (const part of ['Ada Lovelace', '37']) assert(answer.includes(part), answer);
}

async function features() {
  await check('connect: server info, capabilities', async () => {
    assert(client.getServerVersion()?.name, 'no server name');
    const caps = client.getServerCapabilities();
    assert(caps.tools && caps.resources && caps.prompts && caps.logging && caps.completions, JSON.stringify(caps));
    if (!old) assert(transport.sessionId, 'no session id');
  });

  await check('ping', () => client.ping());

  await check('tools/list: also those that depend on what the client can do', async () => {
    const tools = (await client.listTools()).tools;
    const wanted = ['echo', 'get-sum', 'trigger-long-running-operation', 'trigger-sampling-request',
      'trigger-elicitation-request', 'get-roots-list', 'toggle-subscriber-updates', 'toggle-simulated-logging'];
    equal(wanted.filter((name) => !tools.some((tool) => tool.name === name)), [], 'missing');
    assert(tools.every((tool) => tool.inputSchema?.type === 'object'), 'a tool without a schema');
  });

  await check('call echo, get-sum', async () => {
    const message = 'héllo "wörld"\nsecond line \u{1F980} \u2028 end';
    equal(text(await call('echo', { message })), `Echo: ${message}`, 'echo');
    const large = 'x'.repeat(200_000);
    assert(text(await call('echo', { message: large })) === `Echo: ${large}`, '200 kB differ');
    equal(text(await call('get-sum', { a: 19, b: 23 })), 'The sum of 19 and 23 is 42.', 'sum');
  });

  await check('call with wrong arguments: an error', async () => {
    const result = await call('get-sum', { a: 'x' }).catch(() => ({ isError: true }));
    equal(result.isError, true, 'isError');
  });

  await check('progress: 8 of 8, once and in order', () => operate(0.4, 8));

  await check('progress: 10 calls at once, each its own', async () => {
    await Promise.all(Array.from({ length: 10 }, (_, i) => operate(0.3, 3 + i)));
  });

  await check('sampling', () => sample('two plus two'));

  await check('elicitation', async () => {
    await elicit();
    equal(asked.elicitation, 1, 'questions');
  });

  await check('roots', async () => {
    const answer = all(await call('get-roots-list', {}));
    assert(answer.includes(ROOT.uri) && answer.includes(ROOT.name), answer);
    assert(asked.roots >= 1, 'the client was not asked');
  });

  await check('questions while other calls run', async () => {
    const other = operate(1, 10);
    const before = asked.elicitation;
    await Promise.all([sample('first'), elicit(), sample('second'), elicit(), ...Array.from({ length: 10 }, () => call('echo', { message: 'x' }))]);
    await other;
    equal(asked.elicitation - before, 2, 'elicitations');
  });

  await check('resources: list, templates, read', async () => {
    const [first] = (await client.listResources()).resources;
    const read = await client.readResource({ uri: first.uri });
    equal(read.contents[0].uri, first.uri, 'uri');
    assert(read.contents[0].text.length > 0, 'no text');
    const templates = (await client.listResourceTemplates()).resourceTemplates.map((t) => t.uriTemplate);
    assert(templates.includes('demo://resource/dynamic/text/{resourceId}'), JSON.stringify(templates));
    const { contents } = await client.readResource({ uri: WATCHED });
    assert(contents[0].text.startsWith('Resource 7: This is a plaintext resource'), contents[0].text);
  });

  await check('resources/read of what is not there: a JSON-RPC error', async () => {
    const failure = await client.readResource({ uri: 'demo://no/such/resource' }).then(() => undefined, (error) => error);
    assert(typeof failure?.code === 'number', `no JSON-RPC error: ${failure}`);
  });

  await check('logging: a message at level debug, none at level error', async () => {
    await client.setLoggingLevel('debug');
    await client.subscribeResource({ uri: WATCHED });
    await until(() => logs(`Subscribe Resource request for URI: ${WATCHED}`).length === 1, 5000, 'no message');
    await client.setLoggingLevel('error');
    await client.subscribeResource({ uri: 'demo://resource/dynamic/text/8' });
    await sleep(200);
    equal(logs('text/8').length, 0, 'messages at level info');
    await client.setLoggingLevel('debug');
  });

  await check('logging: unasked, from a call that has ended or not', async () => {
    const before = logs('message').length;
    await call('toggle-simulated-logging', {});
    await until(() => logs('message').length > before, 5000, 'no message');
    await call('toggle-simulated-logging', {});
  });

  await check('subscriptions: updated once, of what is subscribed to, and not after unsubscribe', async () => {
    const updated = () => notes.filter((n) => n.method === 'notifications/resources/updated').map((n) => n.params.uri);
    await client.unsubscribeResource({ uri: 'demo://resource/dynamic/text/8' });
    await call('toggle-subscriber-updates', {});
    await until(() => updated().length > 0, 5000, 'no notifications/resources/updated');
    await sleep(200);
    equal(updated(), [WATCHED], 'updated');
    if (!old) {
      const carriers = wire.exchanges.filter((e) => e.sse.includes('notifications/resources/updated'));
      equal(carriers.map((e) => e.method), ['GET'], 'carried by');
    }
    await call('toggle-subscriber-updates', {});
    await client.unsubscribeResource({ uri: WATCHED });
    await call('toggle-subscriber-updates', {});
    await sleep(300);
    equal(updated(), [WATCHED], 'updated after unsubscribe');
    await call('toggle-subscriber-updates', {});
  });

  await check('prompts: list, get', async () => {
    const names = (await client.listPrompts()).prompts.map((p) => p.name);
    equal(['simple-prompt', 'args-prompt', 'completable-prompt'].filter((name) => !names.includes(name)), [], 'missing');
    const { messages } = await client.getPrompt({ name: 'args-prompt', arguments: { city: 'Oslo', state: 'Norway' } });
    equal(messages[0].content.text, "What's weather in Oslo, Norway?", 'text');
  });

  await check('completion, also with what is known already', async () => {
    const ref = { type: 'ref/prompt', name: 'completable-prompt' };
    const departments = await client.complete({ ref, argument: { name: 'department', value: 'S' } });
    equal(departments.completion.values, ['Sales', 'Support'], 'departments');
    const context = { arguments: { department: 'Sales' } };
    const names = await client.complete({ ref, argument: { name: 'name', value: '' }, context });
    equal(names.completion.values, ['David', 'Eve', 'Frank'], 'names');
  });

  await check('cancellation: nothing more is heard of the call, and the session goes on', async () => {
    const abort = new AbortController();
    const seen = [];
    const running = call('trigger-long-running-operation', { duration: 20, steps: 200 }, {
      signal: abort.signal,
      onprogress: (p) => seen.push(p.progress),
    }).then(() => 'finished', () => 'failed');
    await until(() => seen.length > 1, 5000, 'no progress');
    abort.abort('enough');
    equal(await running, 'failed', 'the call');
    const count = seen.length;
    await sleep(400);
    equal(seen.length, count, 'progress');
    equal(text(await call('echo', { message: 'on' })), 'Echo: on', 'echo');
  });

  if (!old) {
    await check('each progress token on one stream only, no response on the standalone GET stream', async () => {
      for (const e of wire.exchanges) {
        const tokens = new Set([...e.sse.matchAll(/"progressToken":("?[^",}]*"?)/g)].map((m) => m[1]));
        assert(tokens.size <= 1, `one stream carried tokens ${[...tokens]}`);
        const standalone = e.method === 'GET' && !e.lastEventId;
        assert(!standalone || !/^data: .*"(result|error)":/m.test(e.sse), 'a response on the standalone stream');
      }
    });
  }
}

async function cuts() {
  const rnd = random(seed);
  const between = (low, high) => low + Math.floor(rnd() * (high - low + 1));
  const plan = Array.from({ length: calls }, (_, i) => {
    const die = rnd();
    const steps = between(8, 30);
    if (die < 0.6) return { operate: [between(10, 30) * steps / 1000, steps] };
    if (die < 0.8) return { sample: `${seed}-${i}.` };
    return { elicit: true };
  });
  const expected = plan.filter((step) => step.elicit).length;
  const wrong = [];
  let next = 0;
  async function worker() {
    while (next < plan.length) {
      const step = plan[next++];
      try {
        if (step.operate) await operate(...step.operate);
        else if (step.sample) await sample(step.sample);
        else await elicit();
      } catch (error) {
        wrong.push(`${JSON.stringify(step)}: ${error.message}`);
      }
    }
  }
  const started = Date.now();
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  const elapsed = Date.now() - started;
  for (const line of wrong.slice(0, 20)) report.fail('call', line);
  await check(`${calls} calls: results right, progress 1..N once and in order`, async () => equal(wrong.length, 0, 'wrong'));
  await check('elicitations: each asked once', async () => equal(asked.elicitation, expected, 'questions'));
  await check('samplings: each asked once', async () => {
    equal(prompts.length, plan.filter((step) => step.sample).length, 'questions');
    equal(new Set(prompts).size, prompts.length, 'different ones');
  });
  await check('the client never lost its cursor', async () => equal(wire.freshGets(), 1, 'GETs without Last-Event-ID'));
  await check('streams were cut and resumed', async () =>
    assert(wire.resumes() >= calls / 4, `only ${wire.resumes()} resumptions in ${calls} calls: is the proxy cutting?`));
  console.log(`info ${calls} calls in ${elapsed} ms, ${wire.resumes()} resumptions, seed ${seed}`);
}

await (calls ? cuts() : features());
await check('no unexpected client errors', async () => {
  const strange = errors.filter((e) => /unknown message ID|JSON|parse|invalid/i.test(e));
  equal(strange.slice(0, 5), [], 'errors');
});
await transport.terminateSession?.().catch(() => {});
await client.close().catch(() => {});
report.finish();
