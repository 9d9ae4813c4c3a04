"""A stdio MCP server for tests: well behaved unless told otherwise.

python3 child.py WORDS MARKER [anything]

WORDS, joined by commas, say how it behaves; MARKER tells its processes from those of other tests. What it is told is
appended to the file $RECORD, if there is one.
"""

import json
import os
import random
import signal
import sys
import threading
import time

WORDS = set(sys.argv[1].split(","))
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
told = []
hello = {}
greeted = False
asked = 0


def word(name):
    """The value of a word such as `version=2024-11-05`."""
    return next((w.split("=", 1)[1] for w in WORDS if w.startswith(name + "=")), None)


def send(message):
    line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
    with out:
        if "noisy" in WORDS:
            sys.stdout.write("\x1b[31mred alert\x1b[0m %d\r\n\r\n{not json\r\n" % os.getpid())
            sys.stderr.write("a word on \x1b[1mstderr\x07\n")
            sys.stderr.flush()
        sys.stdout.write(line + ("\r\n" if "noisy" in WORDS else "\n"))
        sys.stdout.flush()


def note(method, **params):
    send({"method": method, "params": params})


def ask(method, params, id=None):
    """Asks the client, and returns what it answers."""
    global asked
    with state:
        asked += 1
        id = id if id is not None else "q%d" % asked
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
        return text({"pid": os.getpid(), "said": args.get("text"), "name": name})
    if name == "slow":
        steps = args.get("steps", 1)
        for step in range(steps):
            time.sleep(args.get("ms", 100) / 1000 / steps)
            if id in cancelled:
                return None
            if token is not None:
                note("notifications/progress", progressToken=token, progress=step + 1, total=steps,
                     message="%s %s" % (args.get("text", ""), "x" * args.get("bytes", 0)))
        return text({"pid": os.getpid(), "said": args.get("text")})
    if name == "counter":
        with state:
            counter += 1
            return text(str(counter))
    if name == "ask":
        slot = ask("sampling/createMessage", {"messages": [], "maxTokens": 1, "about": args.get("text")})
        if "late" in args:
            # Reports progress while its question is open.
            time.sleep(args["late"] / 1000)
            note("notifications/progress", progressToken=token, progress=1, extra="kept")
            record("reported", {})
        slot[0].wait()
        return text(slot[1])
    if name == "ask-aside":
        # The call ends before its question is answered.
        threading.Thread(target=roots, daemon=True).start()
        time.sleep(args.get("ms", 0) / 1000)
        return text("asked")
    if name == "withdraw":
        # Its question has the number of the call: each side counts for itself.
        ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, id)
        time.sleep(0.2)
        note("notifications/cancelled", requestId=id, reason="never mind")
        time.sleep(0.2)
        return text("done")
    if name == "log":
        note("notifications/message", level="info", data=args.get("text"))
        return text("logged")
    if name == "aside":
        # Not a log message: the gateway would send that to the next call if it has begun by then.
        send({"id": id, "result": text("soon")})
        for n in range(args.get("count", 1)):
            note("notifications/test", data=n)
        return None
    if name == "crash":
        os._exit(args.get("code", 1))
    if name == "deaf":
        os.close(0)
        send({"id": id, "result": text("what?")})
        time.sleep(600)
    if name == "hang":
        time.sleep(600)
    if name == "big":
        return text("x" * args.get("bytes", 1))
    if name == "shuffle":
        # Answers when `of` such calls have come, in any order.
        with state:
            collected.append((id, token, args))
            batch = list(collected) if len(collected) >= args.get("of", 1) else []
            if batch:
                collected.clear()
        random.shuffle(batch)
        for id, token, args in batch:
            if token is not None:
                note("notifications/progress", progressToken=token, progress=1, message=args.get("text"))
        random.shuffle(batch)
        for id, token, args in batch:
            send({"id": id, "result": text({"pid": os.getpid(), "said": args.get("text"), "meta": meta})})
        return None
    if name == "dump":
        return text({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "hello": hello})
    if name == "told":
        return text(told)
    if name == "cancelled":
        return text(len(cancelled))
    if name == "touch":
        for subscription in list(listening):
            note("notifications/tools/list_changed", _meta={SUBSCRIPTION: subscription})
        return text(len(listening))
    if name == "unlisten":
        for subscription in list(listening):
            listening.pop(subscription, None)
            note("notifications/cancelled", requestId=subscription)
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


TOOLS = ["echo", "slow", "counter", "ask", "withdraw", "log", "crash", "hang", "big", "shuffle", "dump", "told"]


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
    global greeted, hello
    if "mute" in WORDS:
        return
    if "refuses" in WORDS:
        send({"id": id, "error": {"code": -32000, "message": "not today"}})
        return
    if "chatty" in WORDS:
        # Allowed before `initialize` is answered: log messages and pings.
        for n in range(200):
            note("notifications/message", level="debug", data="starting %d" % n)
        waiting["hello"] = slot = [threading.Event(), None]
        send({"id": "hello", "method": "ping"})
        message = json.loads(sys.stdin.readline())
        assert message.get("id") == "hello" and message.get("result") == {}, message
    greeted, hello = True, params
    asked_for = params.get("protocolVersion")
    version = word("version") or (asked_for if asked_for in LEGACY else LEGACY[-1])
    send({"id": id, "result": {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": True}, "logging": {}, "resources": {"subscribe": True}},
        "serverInfo": {"name": "fake", "version": "7", "extra": "kept"},
        "instructions": "pid %d" % os.getpid(),
    }})


def roots():
    slot = ask("roots/list", {})
    slot[0].wait()
    told.append({"roots": slot[1]})


def take(message):
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        slot = waiting.pop(id, None)
        if slot:
            slot[1] = message.get("result", message.get("error"))
            slot[0].set()
        return
    told.append({"method": method, "params": params})
    record(method, params)
    modern = bool(WORDS & {"modern", "dual"})
    legacy = not modern or "dual" in WORDS
    if method == "initialize" and legacy:
        initialize(id, params)
    elif method == "server/discover" and modern:
        versions = [MODERN] + (LEGACY[::-1] if legacy else [])
        send({"id": id, "result": {"resultType": "complete", "supportedVersions": versions,
                                   "capabilities": {"tools": {"listChanged": True}},
                                   "serverInfo": {"name": "fake", "version": "7"}}})
    elif method == "server/discover" and "wrong-params" in WORDS:
        send({"id": id, "error": {"code": -32602, "message": "before initialize"}})
    elif method == "tools/list":
        send({"id": id, "result": tools(modern, params)})
    elif method == "tools/call":
        # Python's threads are dear: only what takes time gets one.
        quick = params.get("name") not in ("slow", "ask", "withdraw", "hang")
        (run_call if quick else spawn)(id, params)
    elif method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe", "ping"):
        send({"id": id, "result": {}})
    elif method == "subscriptions/listen" and modern:
        listening[id] = params.get("notifications")
        note("notifications/subscriptions/acknowledged", notifications=listening[id], _meta={SUBSCRIPTION: id})
    elif method == "notifications/cancelled":
        cancelled.add(params.get("requestId"))
        listening.pop(params.get("requestId"), None)
    elif method == "notifications/initialized":
        if "roots" in WORDS:
            threading.Thread(target=roots, daemon=True).start()
    elif id is not None:
        if "touchy" in WORDS and not greeted:
            os._exit(3)
        if "silent" not in WORDS:
            send({"id": id, "error": {"code": -32601, "message": "method not found"}})


def spawn(id, params):
    threading.Thread(target=run_call, args=(id, params), daemon=True).start()


def record(method, params):
    path = os.environ.get("RECORD")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"pid": os.getpid(), "method": method, "params": params}) + "\n")


def main():
    if "stubborn" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "spawner" in WORDS:
        # In the same process group, with the same stdout: what a shell script leaves behind.
        os.posix_spawnp("sleep", [MARKER + "-grandchild", "600"], os.environ)
    time.sleep(float(word("late") or 0))
    while True:
        line = sys.stdin.readline()
        if not line:
            break
        message = json.loads(line)
        take(message)
    if "farewell" in WORDS:
        farewell()
    while "stubborn" in WORDS:
        time.sleep(600)
    os._exit(0)


def farewell():
    """Writes more than a pipe holds after its stdin has ended, as servers do that end in good order."""
    time.sleep(0.3)
    try:
        for _ in range(100):
            note("notifications/message", level="info", data="x" * 4000)
        sys.stderr.write("farewell was read to its end\n")
    except BrokenPipeError:
        sys.stderr.write("farewell met a broken pipe\n")
    sys.stderr.flush()


main()
