// Calls through a proxy that cuts every SSE response. The client has to resume by itself.
//   node cuts.mjs <sdk1|client2> <url> <calls> [seed] [--no-cut]
// With --no-cut the run may see no resumption at all (to try the script without a proxy).

import { Report, Wire, assert, connect, equal, random, sequence, sleep, text, until, watchdog } from './common.mjs';

const args = process.argv.slice(2).filter((a) => a !== '--no-cut');
const cutting = !process.argv.includes('--no-cut');
const [which, url, callsArg, seedArg] = args;
const calls = Number(callsArg);
if (!which || !url || !Number.isInteger(calls) || calls < 1) {
  console.error('usage: node cuts.mjs <sdk1|client2> <url> <calls> [seed] [--no-cut]');
  process.exit(2);
}
const seed = Number(seedArg ?? 1);
const CONCURRENCY = 6;
const CALL_TIMEOUT = 60_000;

const report = new Report();
watchdog(report, 120_000 + calls * 2000);

const rnd = random(seed);
const between = (low, high) => low + Math.floor(rnd() * (high - low + 1));
const wire = new Wire({ bodies: false });
const logs = [];
let elicited = 0;
let expectedElicited = 0;

const { client, transport, call, errors } = await connect(which, url, {
  wire,
  maxRetries: 1000,
  timeout: CALL_TIMEOUT,
  on: {
    notification: (method, params) => method === 'notifications/message' && logs.push(params),
    sampling: () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 'x' } }),
    elicitation: () => {
      elicited += 1;
      return { action: 'accept', content: { username: 'ada', email: 'ada@example.org' } };
    },
    roots: () => ({ roots: [] }),
  },
}).catch((error) => {
  report.fail('connect', error);
  report.finish();
  return sleep(2000);
});

/** The plan is drawn before the run, so that it depends on the seed alone. */
const plan = Array.from({ length: calls }, (_, i) => {
  const die = rnd();
  if (die < 0.7) return { kind: 'burst', events: between(12, 40), delay_us: between(3000, 8000) };
  // The pad length distinguishes the log messages of different calls.
  if (die < 0.8) return { kind: 'log_burst', count: between(5, 15), bytes: 100 + i };
  if (die < 0.9) return { kind: 'ask_many', rounds: 2 };
  return { kind: 'sleep', ms: 300 };
});

async function one(step) {
  switch (step.kind) {
    case 'burst': {
      const seen = [];
      const result = await call('burst', { events: step.events, bytes: 64, delay_us: step.delay_us }, {
        onprogress: (p) => seen.push(p.progress),
      });
      await sleep(0);
      equal(text(result), `burst ${step.events} done`, 'result');
      sequence(seen, step.events, 'progress');
      break;
    }
    case 'log_burst':
      equal(text(await call('log_burst', { count: step.count, bytes: step.bytes })), `logged ${step.count}`, 'result');
      step.done = true;
      break;
    case 'ask_many': {
      expectedElicited += step.rounds;
      const answers = JSON.parse(text(await call('ask_many', { rounds: step.rounds })));
      equal(answers.map((a) => a.action), Array(step.rounds).fill('accept'), 'answers');
      break;
    }
    case 'sleep':
      equal(text(await call('sleep', { ms: step.ms })), `slept ${step.ms}`, 'result');
      break;
  }
}

// The calls.
const started = Date.now();
const tally = {};
let next = 0;
let running = true;
async function worker() {
  while (next < plan.length) {
    const index = next++;
    const step = plan[index];
    const entry = (tally[step.kind] ??= { right: 0, wrong: [] });
    try {
      await one(step);
      entry.right += 1;
    } catch (error) {
      entry.wrong.push(`call ${index} ${JSON.stringify(step)}: ${error.message}`);
    }
  }
}

// Unsolicited messages during the run, one batch after another.
const EVENTS = 3;
const batches = [];
const batchTrouble = [];
async function notifier() {
  while (running) {
    const tag = `cut${seed}-${batches.length}`;
    batches.push(tag);
    try {
      equal(text(await call('notify_self', { events: EVENTS, tag })), `notified ${EVENTS}`, 'result');
    } catch (error) {
      batchTrouble.push(`${tag}: ${error.message}`);
    }
    await sleep(200);
  }
}
const notifying = notifier();
await Promise.all(Array.from({ length: Math.min(CONCURRENCY, calls) }, worker));
running = false;
await notifying;
const elapsed = Date.now() - started;

for (const [kind, { right, wrong }] of Object.entries(tally)) {
  if (right > 0) report.ok(`${right} ${kind} calls, result right${kind === 'burst' ? ', progress 1..N once and in order' : ''}`);
  for (const line of wrong.slice(0, 20)) report.fail(kind, line);
  if (wrong.length > 20) report.fail(kind, `and ${wrong.length - 20} more`);
}

const arrived = () => logs
  .filter((m) => typeof m.data === 'string' && m.data.startsWith(`cut${seed}-`))
  .map((m) => m.data.split(' ').slice(0, 2).join(' '));

await report.check('notify_self calls return', async () => equal(batchTrouble, [], 'trouble'));

await report.check(`${batches.length * EVENTS} unsolicited messages: each once, in order, on a GET stream that is cut`, async () => {
  const expected = batches.flatMap((tag) => Array.from({ length: EVENTS }, (_, i) => `${tag} ${i + 1}`));
  const missing = () => {
    const have = new Set(arrived());
    return expected.filter((e) => !have.has(e));
  };
  await until(() => missing().length === 0, 15_000, () => `missing ${missing().length}: ${missing().slice(0, 10)}`);
  await sleep(300);
  const got = arrived();
  const twice = got.filter((e, i) => got.indexOf(e) !== i);
  equal(twice, [], 'received twice');
  equal(got, expected, 'order');
}, 20_000);

await report.check('log messages of every log_burst: once, in order', async () => {
  const steps = plan.filter((s) => s.kind === 'log_burst' && s.done);
  const groups = new Map();
  for (const m of logs) {
    if (m.data?.pad === undefined) continue;
    const key = m.data.pad.length;
    groups.set(key, [...(groups.get(key) ?? []), m.data.n]);
  }
  equal(groups.size, steps.length, 'calls whose messages were seen');
  const offset = [...groups.keys()].some((k) => groups.get(k)[0] === 0) ? 0 : 1;
  const seen = [...groups.entries()].sort((a, b) => a[0] - b[0]).map(([, n]) => n);
  equal(seen, steps.map((s) => Array.from({ length: s.count }, (_, i) => i + offset)), 'n');
});

await report.check('elicitation questions: each once', async () => equal(elicited, expectedElicited, 'questions'));

await report.check('no response came twice, nothing unreadable', async () => {
  equal(errors.filter((e) => /unknown message ID|Maximum reconnection|JSON|parse|invalid/i.test(e)).slice(0, 5), [], 'client errors');
});

await report.check('the client never lost its cursor', async () => {
  equal(wire.freshGets(), 1, 'GETs without Last-Event-ID');
});

if (cutting) {
  await report.check('streams were cut and resumed', async () => {
    assert(wire.resumes() >= calls / 4, `only ${wire.resumes()} resumptions in ${calls} calls: is the proxy cutting?`);
  });
}
console.log(`info ${calls} calls in ${elapsed} ms, ${wire.resumes()} resumptions, ${wire.exchanges.length} HTTP requests, seed ${seed}`);

// The session ends even if the response to DELETE is lost.
await transport.terminateSession().catch(() => {});
await client.close().catch(() => {});
report.finish();
