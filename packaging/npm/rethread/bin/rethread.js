#!/usr/bin/env node
// Runs the program `rethread` of the package for this platform.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

// The gateway gets each of these once. SIGHUP makes it read its configuration again.
const FORWARDED = ["SIGTERM", "SIGINT", "SIGHUP"];

// How often to look whether the shell of npx has ended.
const PARENT_POLL_MS = 500;

const packageName = `@rethread/${process.platform}-${process.arch}`;

// npx starts the launcher in a shell. SIGTERM for npx ends that shell, which forwards nothing.
const followsShell = process.env.npm_command === "exec";

main();

function main() {
  const program = findProgram();
  const args = process.argv.slice(2);
  if (typeof process.execve === "function") {
    // The gateway gets this process with its id: no process stands between it and its parent. Node has this from 22.15 on.
    process.execve(program, ["rethread", ...args], followsShell ? environment(process.ppid) : process.env);
  }
  startProgram(program, args);
}

// The gateway ends when this parent ends and cannot forward anything.
function environment(parent) {
  return { ...process.env, RETHREAD_PARENT_PID: String(parent) };
}

function findProgram() {
  try {
    return require.resolve(`${packageName}/bin/rethread`);
  } catch (error) {
    if (error.code !== "MODULE_NOT_FOUND") throw error;
  }
  const made = Object.keys(require("../package.json").optionalDependencies);
  if (made.includes(packageName)) {
    fail(
      `the package ${packageName} is not installed`,
      "install again without --omit=optional (--no-optional), on the platform that runs it",
    );
  }
  fail(
    `there is no package ${packageName}, only ${made.join(", ")}`,
    "install Rust and build the program: cargo install --path crates/gateway",
  );
}

function startProgram(program, args) {
  const child = spawn(program, args, {
    stdio: "inherit",
    // Ctrl-C in a terminal reaches a whole process group. In the group of this process the gateway would get it twice, and
    // the second one ends it without a drain.
    detached: true,
    env: environment(process.pid),
  });
  for (const signal of FORWARDED) {
    process.on(signal, () => child.kill(signal));
  }
  if (followsShell) {
    const shell = process.ppid;
    const timer = setInterval(() => {
      if (process.ppid === shell) return;
      clearInterval(timer);
      child.kill("SIGTERM");
    }, PARENT_POLL_MS);
  }
  child.on("error", (error) => fail(`cannot start ${program}: ${error.message}`, "install the package again"));
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    // This process ends by the same signal, so that its parent sees how the gateway ended.
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    // Node ignores a few signals.
    process.exitCode = 128 + constants.signals[signal];
  });
}

function fail(message, hint) {
  process.stderr.write(`error: ${message}\n  hint: ${hint}\n`);
  process.exit(1);
}
