"""A stdio MCP server for tests.

python3 child.py BEHAVIORS MARKER

BEHAVIORS is a comma-separated list:

legacy, modern, dual         the eras; legacy is the default
version=V                    negotiates V
older-each-time              each process negotiates an older version than the one before, for RECORD
start-delay=S                reads no line for S seconds
warms-up                     runs a tool before it reads a line: the first calls of a Python process are slow
wrong-params                 answers server/discover with "invalid params"
ignores-unknown-methods      does not answer unknown methods
exits-on-unknown-method      exits on an unknown method before initialize
ignores-initialize           does not answer initialize
refuses-initialize           answers initialize with an error
logs-before-initialize       logs and pings before it answers initialize
asks-for-roots               sends roots/list after notifications/initialized
noisy-stdout                 writes invalid lines and escape sequences
writes-at-exit               writes more than a pipe holds after its stdin has ended
ignores-sigterm              ends only with SIGKILL
ignores-end-of-stdin         ends only with a signal
spawns-descendant            starts a process in its group that holds its stdout

MARKER identifies its processes. If RECORD is set, the messages that it receives are appended to that file.
"""

import json
import os
import random
import signal
import sys
import threading
import time

BEHAVIORS = set(sys.argv[1].split(","))
MARKER = sys.argv[2]
MODERN = "2026-07-28"
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

out = threading.Lock()
state = threading.Lock()
counter = 0
listening = {}  # id of a subscription: its filter
cancelled = set()
waiting = {}  # id of a question: [event, answer]
collected = []
remembered = set()
received = []
initialize_params = {}
initialized = False
questions_sent = 0


def option(name):
    """The value of a behavior such as `version=2024-11-05`."""
    return next((w.split("=", 1)[1] for w in BEHAVIORS if w.startswith(name + "=")), None)


def send(message):
    line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
    with out:
        if "noisy-stdout" in BEHAVIORS:
            sys.stdout.write("\x1b[31mred alert\x1b[0m %d\r\n\r\n{not json\r\n" % os.getpid())
            sys.stderr.write("a word on \x1b[1mstderr\x07\n")
            sys.stderr.flush()
        sys.stdout.write(line + ("\r\n" if "noisy-stdout" in BEHAVIORS else "\n"))
        sys.stdout.flush()


def notify(method, **params):
    send({"method": method, "params": params})


def ask(method, params, id=None):
    """Sends a question. Returns a slot: an event, and later the answer."""
    global questions_sent
    with state:
        questions_sent += 1
        id = id if id is not None else "q%d" % questions_sent
        waiting[id] = slot = [threading.Event(), None]
    send({"id": id, "method": method, "params": params})
    return slot


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def call(id, params):
    global counter
    name, args = params.get("name"), params.get("arguments") or {}
    meta = params.get("_meta") or {}
    token = meta.get("progressToken")
    if name == "echo":
        return text({"pid": os.getpid(), "text": args.get("text"), "name": name})
    if name == "slow":
        steps = args.get("steps", 1)
        for step in range(steps):
            time.sleep(args.get("ms", 100) / 1000 / steps)
            if id in cancelled:
                return None
            if token is not None:
                notify("notifications/progress", progressToken=token, progress=step + 1, total=steps,
                     message="%s %s" % (args.get("text", ""), "x" * args.get("bytes", 0)))
        return text({"pid": os.getpid(), "text": args.get("text")})
    if name == "counter":
        with state:
            counter += 1
            return text(str(counter))
    if name == "ask":
        slot = ask("sampling/createMessage", {"messages": [], "maxTokens": 1, "about": args.get("text")})
        if "late" in args:
            # Reports progress while its question is open.
            time.sleep(args["late"] / 1000)
            notify("notifications/progress", progressToken=token, progress=1, extra="kept")
            record("reported", {})
        slot[0].wait()
        return text(slot[1])
    if name == "remember":
        # Asks in its result. The meaning of its state is in the memory of this process only.
        previous = params.get("requestState")
        if previous is None:
            previous = "%d \u00e9 \" %s" % (os.getpid(), args.get("text"))
            remembered.add(previous)
            question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}}
            return {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": previous}
        if previous not in remembered:
            send({"id": id, "error": {"code": -32001, "message": "unknown state", "data": previous}})
            return None
        return text({"pid": os.getpid(), "state": previous})
    if name == "ask-without-waiting":
        # The call ends before its question is answered.
        threading.Thread(target=roots, daemon=True).start()
        time.sleep(args.get("ms", 0) / 1000)
        return text("asked")
    if name == "cancel-question":
        # The question has the id of the call: each side has its own ids.
        ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, id)
        time.sleep(0.2)
        notify("notifications/cancelled", requestId=id, reason="never mind")
        time.sleep(0.2)
        return text("done")
    if name == "log":
        notify("notifications/message", level="info", data=args.get("text"))
        return text("logged")
    if name == "notify-after-response":
        # Not a log message: the gateway would send that to the next call if it has begun by then.
        send({"id": id, "result": text("soon")})
        for n in range(args.get("count", 1)):
            notify("notifications/test", data=n)
        return None
    if name == "crash":
        os._exit(args.get("code", 1))
    if name == "close-stdin":
        os.close(0)
        send({"id": id, "result": text("closed")})
        time.sleep(600)
    if name == "hang":
        time.sleep(600)
    if name == "big":
        return text("x" * args.get("bytes", 1))
    if name == "shuffle":
        # Responds in random order when `of` such calls have arrived.
        with state:
            collected.append((id, token, args))
            batch = list(collected) if len(collected) >= args.get("of", 1) else []
            if batch:
                collected.clear()
        random.shuffle(batch)
        for id, token, args in batch:
            if token is not None:
                notify("notifications/progress", progressToken=token, progress=1, message=args.get("text"))
        random.shuffle(batch)
        for id, token, args in batch:
            send({"id": id, "result": text({"pid": os.getpid(), "text": args.get("text"), "meta": meta})})
        return None
    if name == "dump":
        return text({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(),
                     "initialize_params": initialize_params})
    if name == "received":
        return text(received)
    if name == "count-cancelled":
        return text(len(cancelled))
    if name == "change-tools":
        for subscription in list(listening):
            notify("notifications/tools/list_changed", _meta={SUBSCRIPTION: subscription})
        return text(len(listening))
    if name == "end-subscriptions":
        for subscription in list(listening):
            listening.pop(subscription, None)
            notify("notifications/cancelled", requestId=subscription)
        return text("done")
    if name == "region":
        return text(args.get("region", ""))
    raise KeyError(name)


def run_call(id, params):
    try:
        result = call(id, params)
    except KeyError:
        send({"id": id, "error": {"code": -32602, "message": "no such tool"}})
        return
    if result is not None:
        send({"id": id, "result": result})


TOOLS = ["echo", "slow", "counter", "ask", "cancel-question", "log", "crash", "hang", "big", "shuffle", "dump", "received"]


def tools(modern, params):
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
    if not modern:
        return {"tools": listed}
    if not params.get("cursor"):
        return {"resultType": "complete", "tools": listed, "nextCursor": "2"}
    region = {"type": "string", "x-mcp-header": "Region"}
    schema = {"type": "object", "properties": {"region": region}}
    return {"resultType": "complete", "tools": [{"name": "region", "inputSchema": schema}]}


def initialize(id, params):
    global initialized, initialize_params
    if "ignores-initialize" in BEHAVIORS:
        return
    if "refuses-initialize" in BEHAVIORS:
        send({"id": id, "error": {"code": -32000, "message": "not today"}})
        return
    if "logs-before-initialize" in BEHAVIORS:
        # The protocol allows log messages and pings before the result of `initialize`.
        for n in range(200):
            notify("notifications/message", level="debug", data="starting %d" % n)
        waiting["early-ping"] = slot = [threading.Event(), None]
        send({"id": "early-ping", "method": "ping"})
        message = json.loads(sys.stdin.readline())
        assert message.get("id") == "early-ping" and message.get("result") == {}, message
    initialized, initialize_params = True, params
    asked_for = params.get("protocolVersion")
    version = option("version") or (asked_for if asked_for in LEGACY else LEGACY[-1])
    if "older-each-time" in BEHAVIORS:
        with open(os.environ["RECORD"]) as file:
            starts = sum(json.loads(line)["method"] == "initialize" for line in file)
        version = LEGACY[-max(1, min(starts - 1, len(LEGACY)))]  # the first one was the probe
    send({"id": id, "result": {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": True}, "logging": {}, "resources": {"subscribe": True}},
        "serverInfo": {"name": "fake", "version": "7", "extra": "kept"},
        "instructions": "pid %d" % os.getpid(),
    }})


def roots():
    slot = ask("roots/list", {})
    slot[0].wait()
    received.append({"roots": slot[1]})


def handle(message):
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        slot = waiting.pop(id, None)
        if slot:
            slot[1] = message.get("result", message.get("error"))
            slot[0].set()
        return
    received.append({"method": method, "params": params})
    record(method, params)
    modern = bool(BEHAVIORS & {"modern", "dual"})
    legacy = not modern or "dual" in BEHAVIORS
    if method == "initialize" and legacy:
        initialize(id, params)
    elif method == "server/discover" and modern:
        versions = [MODERN] + (LEGACY[::-1] if legacy else [])
        send({"id": id, "result": {"resultType": "complete", "supportedVersions": versions,
                                   "capabilities": {"tools": {"listChanged": True}},
                                   "serverInfo": {"name": "fake", "version": "7"}}})
    elif method == "server/discover" and "wrong-params" in BEHAVIORS:
        send({"id": id, "error": {"code": -32602, "message": "before initialize"}})
    elif method == "tools/list":
        send({"id": id, "result": tools(modern, params)})
    elif method == "prompts/list" and "prompts" in BEHAVIORS:
        send({"id": id, "result": {"prompts": [{"name": "greet"}]}})
    elif method == "prompts/get" and "prompts" in BEHAVIORS:
        send({"id": id, "result": {"messages": []}})
    elif method == "tools/call":
        # Threads are slow in Python: only tools that wait get one.
        quick = params.get("name") not in ("slow", "ask", "cancel-question", "hang")
        (run_call if quick else spawn)(id, params)
    elif method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe", "ping"):
        send({"id": id, "result": {}})
    elif method == "subscriptions/listen" and modern:
        listening[id] = params.get("notifications")
        notify("notifications/subscriptions/acknowledged", notifications=listening[id], _meta={SUBSCRIPTION: id})
    elif method == "notifications/cancelled":
        cancelled.add(params.get("requestId"))
        listening.pop(params.get("requestId"), None)
    elif method == "notifications/initialized":
        if "asks-for-roots" in BEHAVIORS:
            threading.Thread(target=roots, daemon=True).start()
    elif id is not None:
        if "exits-on-unknown-method" in BEHAVIORS and not initialized:
            os._exit(3)
        if "ignores-unknown-methods" not in BEHAVIORS:
            send({"id": id, "error": {"code": -32601, "message": "method not found"}})


def spawn(id, params):
    threading.Thread(target=run_call, args=(id, params), daemon=True).start()


def record(method, params):
    path = os.environ.get("RECORD")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"pid": os.getpid(), "method": method, "params": params}) + "\n")


def main():
    if "ignores-sigterm" in BEHAVIORS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "spawns-descendant" in BEHAVIORS:
        # In the same process group and with the same stdout, as from a shell script.
        os.posix_spawnp("sleep", [MARKER + "-grandchild", "600"], os.environ)
    time.sleep(float(option("start-delay") or 0))
    if "warms-up" in BEHAVIORS:
        stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
        for _ in range(20):
            run_call(0, {"name": "echo", "arguments": {"text": 0}})
        sys.stdout = stdout
    while True:
        line = sys.stdin.readline()
        if not line:
            break
        message = json.loads(line)
        handle(message)
    if "writes-at-exit" in BEHAVIORS:
        write_at_exit()
    while BEHAVIORS & {"ignores-sigterm", "ignores-end-of-stdin"}:
        time.sleep(600)
    os._exit(0)


def write_at_exit():
    """Writes more than a pipe holds."""
    time.sleep(0.3)
    try:
        for _ in range(100):
            notify("notifications/message", level="info", data="x" * 4000)
        sys.stderr.write("exit output was read to its end\n")
    except BrokenPipeError:
        sys.stderr.write("exit output met a broken pipe\n")
    sys.stderr.flush()


main()
