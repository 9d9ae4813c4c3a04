// Not a client: a server on stdin and stdout, made with @modelcontextprotocol/server 2.x, that speaks 2026-07-28 only.
//   node stateless_server.mjs
//
// It has the tools of @modelcontextprotocol/server-everything that `behind` and `crash` use, with the same results, and those
// of `bridge`. Its tools ask with input-required results.

import { McpServer, ResourceTemplate, completable, inputRequired, inputResponse } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const reply = (...texts) => ({ content: texts.map((text) => ({ type: 'text', text })) });
const WATCHED = 'demo://resource/dynamic/text/7';
const DEPARTMENTS = ['Engineering', 'Sales', 'Marketing', 'Support'];
const cancelled = new Set();
let added = 0;

const form = (message) =>
  inputRequired.elicit({
    message,
    requestedSchema: {
      type: 'object',
      properties: { name: { type: 'string' }, integer: { type: 'integer' } },
      required: ['name'],
    },
  });
const sampling = (text, maxTokens = 20) =>
  inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text } }], maxTokens });

serveStdio(
  () => {
    const capabilities = {
      tools: { listChanged: true },
      prompts: { listChanged: true },
      resources: { listChanged: true, subscribe: true },
      logging: {},
      completions: {},
    };
    const server = new McpServer({ name: 'outside-stateless', version: '1.0.0' }, { capabilities });
    const tool = (name, shape, body) => server.registerTool(name, { description: name, inputSchema: z.object(shape) }, body);

    tool('echo', { message: z.string() }, async ({ message }) => reply(`Echo: ${message}`));
    tool('get-sum', { a: z.number(), b: z.number() }, async ({ a, b }) => reply(`The sum of ${a} and ${b} is ${a + b}.`));

    tool('trigger-long-running-operation', { duration: z.number(), steps: z.number() }, async ({ duration, steps }, ctx) => {
      const progressToken = ctx.mcpReq._meta?.progressToken;
      for (let step = 1; step <= steps; step += 1) {
        await sleep((duration * 1000) / steps);
        if (progressToken === undefined) continue;
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: step, total: steps } });
      }
      return reply(`Long running operation completed. Duration: ${duration} seconds, Steps: ${steps}.`);
    });

    tool('trigger-sampling-request', { prompt: z.string(), maxTokens: z.number().default(100) }, async ({ prompt, maxTokens }, ctx) => {
      const answer = ctx.mcpReq.inputResponses?.sampled;
      if (!answer) {
        const text = `Resource trigger-sampling-request context: ${prompt}`;
        return inputRequired({ inputRequests: { sampled: sampling(text, maxTokens) } });
      }
      return reply(`LLM sampling result: \n${JSON.stringify(answer, null, 2)}`);
    });

    tool('trigger-elicitation-request', {}, async (_args, ctx) => {
      const answer = ctx.mcpReq.inputResponses?.inputs;
      if (!answer) return inputRequired({ inputRequests: { inputs: form('Please provide inputs for the following fields:') } });
      if (answer.action !== 'accept') return reply(`User did not provide the requested information: ${answer.action}`);
      const { name, integer } = answer.content;
      return reply('User provided the requested information!', `User inputs:\n- Name: ${name}\n- Integer: ${integer}`);
    });

    tool('get-roots-list', {}, async (_args, ctx) => {
      const answer = ctx.mcpReq.inputResponses?.roots;
      if (!answer) return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
      const lines = answer.roots.map((root) => `${root.name}\n   URI: ${root.uri}`);
      return reply(`Current MCP Roots (${answer.roots.length} total):\n\n${lines.join('\n')}`);
    });

    // Clients share the process, so it does not toggle.
    tool('toggle-subscriber-updates', {}, async () => {
      await server.server.sendResourceUpdated({ uri: WATCHED });
      return reply('Started simulated resource updated notifications');
    });

    // ---- the tools of `bridge`

    tool('ask-together', { label: z.string() }, async ({ label }, ctx) => {
      const { form: filled, sampled, roots } = ctx.mcpReq.inputResponses ?? {};
      if (!filled || !sampled || !roots) {
        const inputRequests = { form: form(`form ${label}`), sampled: sampling(`sampling ${label}`), roots: inputRequired.listRoots() };
        return inputRequired({ inputRequests });
      }
      return reply(`${filled.content.name}, ${sampled.content.text}, ${roots.roots[0].uri}`);
    });

    tool('ask-in-rounds', { label: z.string() }, async ({ label }, ctx) => {
      const state = ctx.mcpReq.requestState();
      const answer = ctx.mcpReq.inputResponses?.round;
      if (!state || !answer) return inputRequired({ inputRequests: { round: sampling(`round 1 ${label}`) }, requestState: 'round 1' });
      if (state === 'round 1') {
        const requestState = `round 2 ${answer.content.text}`;
        return inputRequired({ inputRequests: { round: sampling(`round 2 ${label}`) }, requestState });
      }
      return reply(`${state.slice('round 2 '.length)}, ${answer.content.text}`);
    });

    tool('ask-url', { url: z.string() }, async ({ url }, ctx) => {
      const answer = inputResponse(ctx.mcpReq.inputResponses, 'open');
      if (answer.kind === 'missing') {
        return inputRequired({ inputRequests: { open: inputRequired.elicitUrl({ url, message: 'Please open this page' }) } });
      }
      return reply(`${ctx.mcpReq.inputResponses.open.action} ${url}`);
    });

    tool('write-log', { level: z.string(), text: z.string() }, async ({ level, text }, ctx) => {
      await ctx.mcpReq.log(level, text);
      return reply('logged');
    });

    tool('touch', { uri: z.string() }, async ({ uri }) => {
      await server.server.sendResourceUpdated({ uri });
      return reply('touched');
    });

    tool('change-lists', {}, async () => {
      added += 1;
      tool(`added-${added}`, {}, async () => reply('added'));
      await server.server.sendPromptListChanged();
      return reply('changed');
    });

    tool('wait', { label: z.string() }, async ({ label }, ctx) => {
      await new Promise((resolve) => ctx.mcpReq.signal.addEventListener('abort', resolve));
      cancelled.add(label);
      return reply('cancelled');
    });
    tool('was-cancelled', { label: z.string() }, async ({ label }) => reply(String(cancelled.has(label))));

    server.registerResource('document', 'demo://resource/static/document/server.md', { mimeType: 'text/markdown' }, async (uri) => ({
      contents: [{ uri: uri.href, mimeType: 'text/markdown', text: '# A document' }],
    }));
    const template = new ResourceTemplate('demo://resource/dynamic/text/{resourceId}', { list: undefined });
    server.registerResource('dynamic', template, { mimeType: 'text/plain' }, async (uri, { resourceId }) => ({
      contents: [{ uri: uri.href, mimeType: 'text/plain', text: `Resource ${resourceId}: This is a plaintext resource` }],
    }));

    const user = (text) => ({ messages: [{ role: 'user', content: { type: 'text', text } }] });
    server.registerPrompt('simple-prompt', {}, async () => user('This is a simple prompt without arguments.'));
    server.registerPrompt(
      'completable-prompt',
      {
        argsSchema: z.object({
          department: completable(z.string(), (value) => DEPARTMENTS.filter((d) => d.startsWith(value))),
          name: completable(z.string(), (value, context) =>
            context?.arguments?.department === 'Sales' ? ['David', 'Eve', 'Frank'].filter((n) => n.startsWith(value)) : []),
        }),
      },
      async ({ department, name }) => user(`Please promote ${name} to the head of the ${department} team.`),
    );
    return server;
  },
  { legacy: 'reject' },
);
