// The official conformance suite against one server, one line per scenario.
//   node conformance.mjs <url> <revision> <outdir> [--except=<scenario>=<reason> ...] [scenario ...]
//
// An excepted scenario must not pass: otherwise the exception is not needed.
// Fails on every failed scenario, scored or not, on a scenario that ran but checked nothing, on a scenario of the
// revision that did not run, and on warnings where the suite only warns about resumption and sessions.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { Report } from './common.mjs';

const given = process.argv.slice(2);
const [url, revision, outdir, ...only] = given.filter((word) => !word.startsWith('--except='));
/** The reason of each excepted scenario. */
const excepted = new Map(given.filter((word) => word.startsWith('--except=')).map((word) => word.slice('--except='.length).split('=')));
if (!url || !revision || !outdir) {
  console.error('usage: node conformance.mjs <url> <revision> <outdir> [--except=<scenario>=<reason> ...] [scenario ...]');
  process.exit(2);
}

/** Protocol extensions that are not supported. The suite omits them when a revision is given. */
const EXCLUDED = [
  [/^tasks-/, 'the tasks extension is not offered and never scored'],
  [/^sep-2640-skills-/, 'the skills extension is not offered and never scored'],
];

/** Warnings in these scenarios mean data loss or a security problem, so they count as failures. */
const STRICT = new Set(['server-sse-polling', 'server-sse-multiple-streams', 'server-session-lifecycle', 'server-stateless',
  'http-header-validation', 'http-custom-header-server-validation']);

/** Not scored by the suite, so a release may drop them unnoticed. They must still run and pass. */
const UNSCORED = {
  '2025-11-25': ['server-sse-polling', 'server-session-lifecycle', 'json-schema-2020-12'],
  '2026-07-28': ['http-header-validation', 'http-custom-header-server-validation', 'json-schema-2020-12'],
};

/** Timeout of the whole suite. */
const LIMIT_MS = 10 * 60_000;

const here = path.dirname(fileURLToPath(import.meta.url));
const report = new Report();

/** The suite needs Node 22. The pinned packages include one for older systems. */
function node22() {
  const bundled = [`node-linux-${process.arch}`]
    .map((name) => path.join(here, 'node_modules', name, 'bin', 'node'))
    .find((file) => existsSync(file));
  if (bundled) return bundled;
  if (Number(process.versions.node.split('.')[0]) >= 22) return process.execPath;
  throw new Error('the conformance suite needs Node 22 or newer: run setup.sh, or start this script with one');
}

function suite() {
  const require = createRequire(import.meta.url);
  return path.join(path.dirname(require.resolve('@modelcontextprotocol/conformance/package.json')), 'dist', 'index.js');
}

/** Names of the scenarios the suite has for this revision. */
function scenarios(node, main) {
  const { stdout } = spawnSync(node, [main, 'list', '--server', '--spec-version', revision], { encoding: 'utf8', timeout: 60_000 });
  return [...(stdout ?? '').matchAll(/^\s*- (\S+)/gm)].map((m) => m[1]);
}

/** Runs the suite and returns the result folder of each scenario. */
function run(node, main, scenario) {
  const args = [main, 'server', '--url', url, '--spec-version', revision, '-o', outdir];
  args.push(...(scenario ? ['--scenario', scenario] : ['--suite', 'all']));
  return new Promise((resolve, reject) => {
    const child = spawn(node, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    child.stdout.on('data', (d) => (output += d));
    child.stderr.on('data', (d) => (output += d));
    const timer = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS);
    child.on('error', reject);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      resolve({ output, code, signal });
    });
  });
}

function savedResults(output) {
  const results = new Map();
  let current;
  for (const line of output.split('\n')) {
    const running = /Running client scenario '([^']+)'|Running scenario: (\S+)/.exec(line);
    if (running) current = running[1] ?? running[2];
    const saved = /^Results saved to (.+)$/.exec(line.trim());
    if (saved && current) results.set(current, path.join(saved[1], 'checks.json'));
  }
  return results;
}

const message = (check) => `${check.id}: ${check.errorMessage ?? check.description}`;

function judge(name, file) {
  let checks;
  try {
    checks = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    report.fail(name, `no readable results: ${error.message}`);
    return;
  }
  const of = (status) => checks.filter((c) => c.status === status);
  const [good, bad, warned, skipped] = ['SUCCESS', 'FAILURE', 'WARNING', 'SKIPPED'].map(of);
  const detail = [...warned, ...skipped].map(message);
  if (excepted.has(name)) {
    const unmet = [...bad, ...warned, ...skipped];
    if (unmet.length === 0) report.fail(name, `passes, and need not be excepted: ${excepted.get(name)}`);
    else console.log(`info ${name} is excepted: ${excepted.get(name)}: ${unmet.map((check) => check.id).join(', ')}`);
    return;
  }
  if (bad.length > 0) {
    report.fail(name, bad.map(message).join(' | '));
  } else if (STRICT.has(name) && detail.length > 0) {
    report.fail(name, `warnings count here: ${detail.join(' | ')}`);
  } else if (good.every((c) => c.id === 'wire-schema-valid')) {
    report.fail(name, `nothing was checked with success${detail.length ? `: ${detail.join(' | ')}` : ''}`);
  } else {
    report.ok(`${name} (${good.length} checks)`);
    if (warned.length > 0) console.log(`WARN ${name}: ${warned.map(message).join(' | ')}`);
    if (skipped.length > 0) console.log(`WARN ${name} skipped: ${skipped.map(message).join(' | ')}`);
  }
}

try {
  mkdirSync(outdir, { recursive: true });
  const node = node22();
  const main = suite();
  const results = new Map();
  let tail = '';
  for (const scenario of only.length > 0 ? only : [undefined]) {
    const { output, code, signal } = await run(node, main, scenario);
    if (signal) report.fail('suite', `ended by ${signal} (limit ${LIMIT_MS} ms)`);
    const saved = savedResults(output);
    if (saved.size === 0) report.fail(scenario ?? 'suite', `exit ${code}, no results: ${output.slice(-500)}`);
    for (const [name, file] of saved) results.set(name, file);
    tail = output.slice(-500);
  }
  for (const [name, file] of results) {
    const excluded = EXCLUDED.find(([pattern]) => pattern.test(name));
    if (excluded) console.log(`info ${name} is left out: ${excluded[1]}`);
    else judge(name, file);
  }
  if (only.length === 0) {
    const known = scenarios(node, main);
    if (known.length === 0) report.fail('suite', `no scenarios are known for ${revision}: ${tail}`);
    for (const name of new Set([...known, ...(UNSCORED[revision] ?? [])])) {
      if (!results.has(name) && !EXCLUDED.some(([pattern]) => pattern.test(name))) report.fail(name, 'did not run');
    }
  }
} catch (error) {
  report.fail('suite', error);
}
report.finish();
