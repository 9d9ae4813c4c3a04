// The OAuth flow of an official client against the gateway, without a person: discovery, 401, registration, code, token,
// retry, and the step-up after 403 `insufficient_scope`.
//   node oauth.mjs <sdk1|client2> <url> [2026-07-28]
//
// The authorization server of the test kit answers an authorization request with a redirect. This script follows it.

import { Report, assert, equal, text, watchdog } from './common.mjs';

const [sdk, url, version] = process.argv.slice(2);
if (!url) {
  console.error('usage: node oauth.mjs <sdk1|client2> <url> [2026-07-28]');
  process.exit(2);
}
const report = new Report();
watchdog(report, 120_000);

async function library() {
  if (sdk === 'client2') return import('@modelcontextprotocol/client');
  const [{ Client }, { StreamableHTTPClientTransport }, { UnauthorizedError }] = await Promise.all([
    import('@modelcontextprotocol/sdk/client/index.js'),
    import('@modelcontextprotocol/sdk/client/streamableHttp.js'),
    import('@modelcontextprotocol/sdk/client/auth.js'),
  ]);
  return { Client, StreamableHTTPClientTransport, UnauthorizedError };
}
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = await library();

/** Keeps everything in memory, and follows the redirect in place of a browser. */
class Provider {
  redirects = [];
  get redirectUrl() {
    return 'http://127.0.0.1:9/callback';
  }
  get clientMetadata() {
    return {
      client_name: 'outside', redirect_uris: [this.redirectUrl], token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
    };
  }
  state() {
    return 'state-of-the-test';
  }
  clientInformation() {
    return this.client;
  }
  saveClientInformation(client) {
    this.client = client;
  }
  tokens() {
    return this.saved;
  }
  saveTokens(tokens) {
    // sdk1 answers 403 with a refresh, whose token has the same scopes (FINDINGS.md). Without a refresh token it asks again.
    const { refresh_token, ...rest } = tokens;
    this.saved = sdk === 'sdk1' ? rest : tokens;
  }
  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }
  codeVerifier() {
    return this.verifier;
  }
  async redirectToAuthorization(to) {
    const response = await fetch(to, { redirect: 'manual' });
    equal(response.status, 302, `the redirect of ${to}: ${await response.text()}`);
    this.callback = new URL(response.headers.get('location')).searchParams;
    equal(this.callback.get('state'), 'state-of-the-test', 'state');
    this.redirects.push(new URL(to).searchParams);
  }
}

const provider = new Provider();
const options = version ? { versionNegotiation: { mode: { pin: version } } } : {};
let client;
let transport;

async function connect() {
  client = new Client({ name: 'outside-oauth', version: '1.0.0' }, { capabilities: {}, ...options });
  transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  await client.connect(transport);
}

const finish = () =>
  sdk === 'client2' ? transport.finishAuth(provider.callback) : transport.finishAuth(provider.callback.get('code'));

/** Runs `body`; if the client needs authorization first, finishes that and runs `again`. */
async function authorized(body, again) {
  try {
    return await body();
  } catch (error) {
    const reason = error?.cause ?? error;
    assert(error instanceof UnauthorizedError || reason instanceof UnauthorizedError, `unexpected: ${error?.stack ?? error}`);
    await finish();
    return again();
  }
}

await report.check('401 leads to the authorization server and back', async () => {
  await authorized(connect, connect);
  equal(provider.redirects.length, 1, 'authorizations');
  const [asked] = provider.redirects;
  equal(asked.get('resource'), url, 'resource');
  equal(asked.get('scope'), 'mcp', 'scope of the challenge');
  equal(asked.get('code_challenge_method'), 'S256', 'PKCE');
  assert(provider.saved.access_token, 'a token');
});

await report.check('calls work with the token', async () => {
  const { tools } = await client.listTools();
  assert(tools.some((tool) => tool.name === 'echo'), JSON.stringify(tools));
  const result = await client.callTool({ name: 'echo', arguments: { text: 'hi' } });
  assert(text(result).includes('hi'), JSON.stringify(result));
});

await report.check('403 insufficient_scope asks for all scopes at once', async () => {
  const call = () => client.callTool({ name: 'counter', arguments: {} });
  const result = await authorized(call, call);
  equal(text(result), '1', 'the refused call has not run');
  equal(provider.redirects.length, 2, 'authorizations');
  equal(provider.redirects[1].get('scope').split(' ').sort(), ['count', 'mcp'], 'scopes');
});

await report.check('the first calls still work after the step-up', async () => {
  const result = await client.callTool({ name: 'echo', arguments: { text: 'again' } });
  assert(text(result).includes('again'), JSON.stringify(result));
});

await client?.close().catch(() => {});
report.finish();
