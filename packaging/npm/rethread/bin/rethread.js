#!/usr/bin/env node
// Runs the program `rethread` of the package for this platform.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

// The gateway gets each of these once. SIGHUP makes it read its configuration again.
const FORWARDED = ["SIGTERM", "SIGINT", "SIGHUP"];

const packageName = `@rethread/${process.platform}-${process.arch}`;

main();

function main() {
  const program = findProgram();
  const args = process.argv.slice(2);
  if (canReplaceProcess()) {
    // The gateway gets this process, with its id: no process stands between it and its parent.
    process.execve(program, ["rethread", ...args], process.env);
  }
  startProgram(program, args);
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

// Node has `process.execve` from 22.15 on. Worker threads do not have it.
function canReplaceProcess() {
  return typeof process.execve === "function";
}

function startProgram(program, args) {
  const child = spawn(program, args, {
    stdio: "inherit",
    // Ctrl-C in a terminal reaches a whole process group. In the group of this process the gateway would get it twice, and
    // the second one ends it without a drain.
    detached: true,
    // The gateway ends when this process is killed and cannot forward anything.
    env: { ...process.env, RETHREAD_LAUNCHER_PID: String(process.pid) },
  });
  for (const signal of FORWARDED) {
    process.on(signal, () => child.kill(signal));
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
