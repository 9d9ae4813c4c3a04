"""Calls through a proxy that cuts every SSE response. The official Python client has to resume by itself.

usage: python cuts.py <url> <calls> [seed] [--no-cut] [--bare]

--no-cut  the run may see no resumption at all (to try the script without a proxy)
--bare    hand broken connections to the client as they are. It then repeats events and gives up (FINDINGS.md,
          Python); the script raises its attempt limit and only asks that nothing is lost.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import anyio

import common
from common import Handlers, Report, Wire, connect, describe, equal, expect, run, sequence, text, until

FLAGS = {a for a in sys.argv[1:] if a.startswith("--")}
ARGS = [a for a in sys.argv[1:] if not a.startswith("--")]
if len(ARGS) not in (2, 3) or not ARGS[1].isdigit() or FLAGS - {"--no-cut", "--bare"}:
    sys.exit("usage: python cuts.py <url> <calls> [seed] [--no-cut] [--bare]")
URL = ARGS[0]
CALLS = int(ARGS[1])
SEED = int(ARGS[2]) if len(ARGS) == 3 else 1
CUTTING = "--no-cut" not in FLAGS
BARE = "--bare" in FLAGS
CONCURRENCY = 6
CALL_TIMEOUT = 60.0
EVENTS = 3

report = Report()


def drawn() -> list[dict[str, Any]]:
    """The plan depends on the seed alone."""
    dice = random.Random(SEED)
    steps: list[dict[str, Any]] = []
    for index in range(CALLS):
        die = dice.random()
        if die < 0.7:
            steps.append({"kind": "burst", "events": dice.randint(12, 40), "delay_us": dice.randint(3000, 8000)})
        elif die < 0.8:
            # The pad length distinguishes the log messages of different calls.
            steps.append({"kind": "log_burst", "count": dice.randint(5, 15), "bytes": 100 + index})
        elif die < 0.9:
            steps.append({"kind": "ask_many", "rounds": 2})
        else:
            steps.append({"kind": "sleep", "ms": 300})
    return steps


def first_seen(values: list[Any]) -> list[Any]:
    """Without repeats, in the order of first arrival. Only --bare reads its values through this."""
    return list(dict.fromkeys(values)) if BARE else values


async def main() -> None:
    if BARE:
        common.streamable.MAX_RECONNECTION_ATTEMPTS = 1000
    wire = Wire(record=False, soften=not BARE)
    handlers = Handlers()
    async with connect(URL, wire, handlers, CALL_TIMEOUT) as session:
        await drive(session, wire, handlers)


async def drive(session: Any, wire: Wire, handlers: Handlers) -> None:
    call = session.call
    steps = drawn()
    asked = 0
    repeats = 0

    async def one(step: dict[str, Any]) -> None:
        nonlocal asked, repeats
        if step["kind"] == "burst":
            seen: list[float] = []

            async def progress(value: float, _total: float | None, _message: str | None) -> None:
                seen.append(value)

            result = await call("burst", {"events": step["events"], "bytes": 64, "delay_us": step["delay_us"]}, progress)
            await anyio.sleep(0.01)
            equal(text(result), f"burst {step['events']} done", "result")
            repeats += len(seen) - len(set(seen))
            sequence(first_seen(seen), step["events"], "progress")
        elif step["kind"] == "log_burst":
            result = await call("log_burst", {"count": step["count"], "bytes": step["bytes"]})
            equal(text(result), f"logged {step['count']}", "result")
            step["done"] = True
        elif step["kind"] == "ask_many":
            asked += step["rounds"]
            answers = json.loads(text(await call("ask_many", {"rounds": step["rounds"]})))
            equal([a["action"] for a in answers], ["accept"] * step["rounds"], "answers")
        else:
            equal(text(await call("sleep", {"ms": step["ms"]})), f"slept {step['ms']}", "result")

    tally: dict[str, tuple[list[int], list[str]]] = {}
    queue = iter(enumerate(steps))

    async def worker() -> None:
        for index, step in queue:
            right, wrong = tally.setdefault(step["kind"], ([], []))
            try:
                await one(step)
                right.append(index)
            except Exception as error:
                wrong.append(f"call {index} {step}: {describe(error)}")

    batches: list[str] = []
    trouble: list[str] = []
    running = True

    async def notifier() -> None:
        while running:
            tag = f"cut{SEED}-{len(batches)}"
            batches.append(tag)
            try:
                equal(text(await call("notify_self", {"events": EVENTS, "tag": tag})), f"notified {EVENTS}", "result")
            except Exception as error:
                trouble.append(f"{tag}: {describe(error)}")
            await anyio.sleep(0.2)

    started = time.monotonic()
    async with anyio.create_task_group() as outer:
        outer.start_soon(notifier)
        async with anyio.create_task_group() as group:
            for _ in range(min(CONCURRENCY, CALLS)):
                group.start_soon(worker)
        running = False
    elapsed = int((time.monotonic() - started) * 1000)

    for kind, (right, wrong) in tally.items():
        if right:
            more = ", progress 1..N once and in order" if kind == "burst" and not BARE else ""
            report.ok(f"{len(right)} {kind} calls, result right{more}")
        for line in wrong[:20]:
            report.fail(kind, line)
        if len(wrong) > 20:
            report.fail(kind, f"and {len(wrong) - 20} more")

    def arrived() -> list[str]:
        prefix = f"cut{SEED}-"
        found = [m["data"] for m in handlers.messages() if isinstance(m["data"], str) and m["data"].startswith(prefix)]
        return first_seen([" ".join(data.split(" ")[:2]) for data in found])

    async def notify_calls() -> None:
        equal(trouble, [], "trouble")

    async def unsolicited() -> None:
        expected = [f"{tag} {i + 1}" for tag in batches for i in range(EVENTS)]

        def missing() -> list[str]:
            have = set(arrived())
            return [e for e in expected if e not in have]

        await until(lambda: not missing(), 15, lambda: f"missing {len(missing())}: {missing()[:10]}")
        await anyio.sleep(0.3)
        got = arrived()
        equal([e for i, e in enumerate(got) if e in got[:i]], [], "received twice")
        equal(got, expected, "order")

    async def logged() -> None:
        done = [s for s in steps if s.get("done")]
        groups: dict[int, list[int]] = {}
        for m in handlers.messages():
            if isinstance(m["data"], dict) and "pad" in m["data"]:
                groups.setdefault(len(m["data"]["pad"]), []).append(m["data"]["n"])
        equal(len(groups), len(done), "calls whose messages were seen")
        offset = 0 if any(g[0] == 0 for g in groups.values()) else 1
        seen = [first_seen(groups[key]) for key in sorted(groups)]
        equal(seen, [list(range(offset, offset + s["count"])) for s in done], "n")

    async def questions() -> None:
        if BARE:
            expect(handlers.elicited >= asked, f"{handlers.elicited} of {asked}")
        else:
            equal(handlers.elicited, asked, "questions")

    async def no_faults() -> None:
        equal(handlers.faults[:5], [], "exceptions handed to the message handler")

    async def kept_cursor() -> None:
        equal(wire.fresh_gets(), 1, "GETs without Last-Event-ID")

    async def was_cut() -> None:
        expect(wire.resumes() >= CALLS / 4, f"only {wire.resumes()} resumptions in {CALLS} calls: is the proxy cutting?")

    await report.check("notify_self calls return", notify_calls)
    once = "none lost" if BARE else "each once, in order"
    await report.check(f"{len(batches) * EVENTS} unsolicited messages: {once}, on a GET stream that is cut", unsolicited)
    await report.check(f"log messages of every log_burst: {once}", logged)
    await report.check(f"elicitation questions: {once}", questions)
    await report.check("nothing unreadable", no_faults)
    await report.check("the client never lost its cursor", kept_cursor)
    if CUTTING:
        await report.check("streams were cut and resumed", was_cut)
    broken = sum(1 for e in wire.exchanges if e.broken)
    print(
        f"info {CALLS} calls in {elapsed} ms, {wire.resumes()} resumptions, {broken} broken connections,"
        f" {repeats} repeated progress values, {len(wire.exchanges)} HTTP requests, seed {SEED}",
        flush=True,
    )


run(main, report, 120 + CALLS * 2)
