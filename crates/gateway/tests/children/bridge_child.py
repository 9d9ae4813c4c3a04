"""A stdio MCP server for the tests of the era bridge.

python3 bridge_child.py BEHAVIORS MARKER

BEHAVIORS is a comma-separated list:

legacy, modern, dual         the eras; legacy is the default
version=V                    negotiates V
asks-for-roots               sends roots/list after notifications/initialized
ends-listens                 ends the first subscription to resources, right after its acknowledgement
cancels-listens              the same by notifications/cancelled
discover-ttl=MS              results of server/discover are valid for MS milliseconds
task-tools                   has the tool "long", which runs only as a task of 2025-11-25
invalid-header               has the tool "odd", whose x-mcp-header is invalid

MARKER identifies its processes. If RECORD is set, the messages that it receives are appended to that file.
"""

import json
import os
import sys
import threading
import time

BEHAVIORS = set(sys.argv[1].split(","))
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
FORM = {"message": "Seat?", "requestedSchema": {"type": "object", "properties": {"seat": {"type": "string"}}}}
QUESTIONS = {
    "form": ("elicitation/create", FORM),
    "url": ("elicitation/create", {"mode": "url", "message": "Sign in", "url": "https://example.com/in"}),
    "sample": ("sampling/createMessage", {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}),
    "roots": ("roots/list", {}),
    "ping": ("ping", {}),
}

out = threading.Lock()
state = threading.Lock()
waiting = {}
cancelled = {}
listening = {}
ended_once = set()
subscribed = []
log_level = None
counts = {"questions": 0, "runs": 0, "urls": 0, "polls": 0}
startup_roots = []
tasks = {}
RELATED_TASK = PREFIX + "related-task"


def option(name):
    return next((w.split("=", 1)[1] for w in BEHAVIORS if w.startswith(name + "=")), None)


def send(message):
    line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
    with out:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def notify(method, **params):
    send({"method": method, "params": params})


def ask(kind, label=None, id=None):
    method, params = QUESTIONS[kind]
    if label is not None:
        params = {**params, "message": label} if "message" in params else {**params, "systemPrompt": label}
    with state:
        counts["questions"] += 1
        id = id or "s%d" % counts["questions"]
        waiting[id] = slot = [threading.Event(), None]
    send({"id": id, "method": method, "params": params})
    return slot


def answer(slot):
    slot[0].wait()
    return slot[1]


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


class Failure(Exception):
    def __init__(self, code, message, data=None):
        self.error = {"code": code, "message": message, **({"data": data} if data is not None else {})}


def log(level, data):
    notify("notifications/message", level=level, data=data)


def tool(id, name, args, params):
    meta = params.get("_meta") or {}
    token = meta.get("progressToken")
    with state:
        counts["runs"] += 1
        run = counts["runs"]
    if name == "echo":
        return text({"pid": os.getpid(), "text": args.get("text"), "meta": meta, "params": sorted(params)})
    if name == "slow":
        for step in range(args.get("steps", 10)):
            time.sleep(0.1)
            if id in cancelled:
                record("stopped", {"text": args.get("text")})
                return text("late") if args.get("responds-late") else None
            if token is not None:
                notify("notifications/progress", progressToken=token, progress=step + 1, message=args.get("text"))
        return text({"pid": os.getpid(), "text": args.get("text")})
    if name == "log":
        log("debug", "quiet")
        log("warning", args.get("text"))
        return text({"pid": os.getpid(), "level": log_level})
    if name == "level":
        return text({"level": log_level, "subscribed": subscribed, "pid": os.getpid(), "roots": startup_roots})
    if name == "change":
        for method in args.get("methods", ["notifications/tools/list_changed"]):
            announce(method, args.get("uri"))
        return text({"listening": len(listening), "filters": list(listening.values()), "pid": os.getpid()})
    if name == "add-tool":
        TOOLS.append({"name": args["name"], "inputSchema": {"type": "object"}})
        announce("notifications/tools/list_changed", None)
        return text(os.getpid())
    if name == "fail":
        raise Failure(args["code"], "as asked", args.get("data"))
    if name == "crash":
        os._exit(3)
    if name == "runs":
        return text(run)
    if name == "structured":
        return {"content": [], "structuredContent": [1, 2]}
    if name == "links":
        return {"content": [{"type": "resource_link", "name": "n", "uri": "a:b"}]}
    if modern_request(params):
        return modern_tool(id, name, args, params, run)
    return legacy_tool(id, name, args, token, run)


def legacy_tool(id, name, args, token, run):
    if name == "ask":
        slots = [ask(kind, args.get("text")) for kind in args.get("kinds", ["form"])]
        if args.get("reports"):
            # While the call is parked.
            time.sleep(0.3)
            for n in range(args["reports"]):
                notify("notifications/progress", progressToken=token, progress=n + 1)
                log("error", "kept %d" % n)
            record("reported", {})
        return text({"answers": [answer(slot) for slot in slots], "pid": os.getpid(), "run": run})
    if name == "rounds":
        answers = [answer(ask("form", "round %d" % n)) for n in range(args.get("rounds", 2))]
        return text({"answers": answers, "run": run})
    if name == "withdraw":
        ask("form", id="w1")
        time.sleep(0.3)
        notify("notifications/cancelled", requestId="w1", reason="never mind")
        time.sleep(0.2)
        record("withdrawn", {})
        return text("went on")
    if name == "ask-and-finish":
        ask("form")
        time.sleep(0.3)
        record("withdrawn", {})
        return text("finished")
    if name == "ask-late":
        # Asks after it was cancelled.
        while id not in cancelled:
            time.sleep(0.02)
        time.sleep(0.3)
        late = answer(ask("form", "late question"))
        record("late-answer", {"answer": late})
        return None
    if name == "ask-then-wait":
        answer(ask("form"))
        record("waits", {})
        while id not in cancelled:
            time.sleep(0.02)
        return None
    if name == "sign-in":
        with state:
            counts["urls"] += 1
            if counts["urls"] == 1:
                data = {"elicitations": [{"mode": "url", "elicitationId": "e1", "url": "https://example.com", "message": "m"}]}
                raise Failure(-32042, "sign in first", data)
        return text("signed in")
    raise Failure(-32602, "no such tool")


def required(questions, state=None):
    result = {"resultType": "input_required"}
    if questions:
        result["inputRequests"] = {key: {"method": QUESTIONS[kind][0], "params": {**QUESTIONS[kind][1], **more}} for key, kind, more in questions}
    if state is not None:
        result["requestState"] = state
    return result


def modern_tool(id, name, args, params, run):
    responses, previous = params.get("inputResponses"), params.get("requestState")
    if name == "ask":
        kinds = args.get("kinds", ["form"])
        if responses is None:
            more = {"message": args["text"]} if "text" in args else {}
            return required([("k%d" % n, kind, more if kind != "sample" and kind != "roots" else {}) for n, kind in enumerate(kinds)], "state é \" %s" % args.get("text"))
        return text({"responses": responses, "state": previous, "run": run, "params": sorted(params), "arguments": args})
    if name == "rounds":
        done = int(previous or 0)
        if done < args.get("rounds", 2):
            return required([("r%d" % done, "form", {"message": "round %d" % done})], str(done + 1))
        return text({"last": responses, "run": run})
    if name == "wait":
        done = int(previous or 0)
        return required([], str(done + 1)) if done < 3 else text({"waited": done})
    if name == "sign-in":
        if responses is None:
            return required([("u", "url", {})], "signing in")
        with state:
            counts["polls"] += 1
            if counts["polls"] <= 2:
                return required([("u", "url", {})], "signing in")
        return text({"signed in": responses})
    if name == "ask-by-request":
        return text({"answer": answer(ask("form")), "run": run})
    if name == "needs-sampling":
        raise Failure(-32021, "no sampling", {"requiredCapabilities": {"sampling": {}}})
    raise Failure(-32602, "no such tool")


def announce(method, uri):
    params = {"uri": uri} if uri and method.endswith("updated") else {}
    if "modern" in BEHAVIORS:
        for subscription in list(listening):
            notify(method, **params, _meta={PREFIX + "subscriptionId": subscription})
    elif method.endswith("updated") and uri not in subscribed:
        pass
    else:
        notify(method, **params)


def respond_after_questions(id, params, result):
    """Answers a request of another method, after the questions that it names."""
    answers = [answer(ask(kind)) for kind in params.get("asks", [])]
    send({"id": id, "result": result(answers)})


def start_response(id, params, result):
    threading.Thread(target=respond_after_questions, args=(id, params, result), daemon=True).start()


def modern_request(params):
    return PREFIX + "protocolVersion" in (params.get("_meta") or {})


def run_tool(id, params):
    try:
        result = tool(id, params.get("name"), params.get("arguments") or {}, params)
    except Failure as failure:
        send({"id": id, "error": failure.error})
        return
    if result is not None:
        if modern_request(params):
            result = {"resultType": "complete", "_meta": {PREFIX + "serverInfo": {"name": "bridge", "version": "1"}}, **result}
        send({"id": id, "result": result})


def run_task(task, args, token):
    """A task with progress and one question."""
    meta = {RELATED_TASK: {"taskId": task["id"]}}
    for step in range(args.get("steps", 3)):
        time.sleep(0.1)
        if task["cancelled"]:
            return
        if token is not None:
            notify("notifications/progress", progressToken=token, progress=step + 1, _meta=meta)
    answered = answer(ask("form", args.get("text"))) if args.get("asks") else None
    task["result"] = {**text({"answer": answered, "runs": counts["runs"]}), "_meta": meta}
    task["done"].set()


def start_task(id, params):
    with state:
        counts["runs"] += 1
        task = {"id": "t%d" % counts["runs"], "done": threading.Event(), "cancelled": False}
        tasks[task["id"]] = task
    send({"id": id, "result": {"task": {"taskId": task["id"], "status": "working", "ttl": None, "createdAt": "2026-01-01T00:00:00Z"}}})
    token = (params.get("_meta") or {}).get("progressToken")
    threading.Thread(target=run_task, args=(task, params.get("arguments") or {}, token), daemon=True).start()


def send_task_result(id, task):
    task["done"].wait()
    send({"id": id, "result": task["result"]})


CAPABILITIES = {"tools": {"listChanged": True}, "logging": {}, "resources": {"subscribe": True, "listChanged": True},
                "prompts": {}, "completions": {}}
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
         {"name": "region", "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}}]


TASKS = {}
if "task-tools" in BEHAVIORS:
    TASKS = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    TOOLS.append({"name": "long", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}})
if "invalid-header" in BEHAVIORS:
    TOOLS.append({"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "not a token"}}}})
# Members that belong to the modern era. A legacy server may have them by accident.
CACHE_HINTS = {"ttlMs": 60000, "cacheScope": "public"}


def later_roots():
    startup_roots.append(answer(ask("roots")))


def handle(message):
    global log_level
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        slot = waiting.pop(id, None)
        if slot:
            slot[1] = message.get("result", {"error": message.get("error")})
            slot[0].set()
        record("answer", {"id": id, "result": message.get("result"), "error": message.get("error")})
        return
    record(method, params)
    modern = bool(BEHAVIORS & {"modern", "dual"})
    legacy = not modern or "dual" in BEHAVIORS
    if method == "initialize" and legacy:
        asked = params.get("protocolVersion")
        send({"id": id, "result": {"protocolVersion": option("version") or (asked if asked in LEGACY else LEGACY[-1]),
                                   "capabilities": {**CAPABILITIES, "tasks": TASKS}, "instructions": "pid %d" % os.getpid(),
                                   "serverInfo": {"name": "bridge", "version": "1"}}})
    elif method == "server/discover" and modern:
        versions = [MODERN] + (LEGACY[::-1] if legacy else [])
        ttl = {"ttlMs": int(option("discover-ttl"))} if option("discover-ttl") else {}
        send({"id": id, "result": {"resultType": "complete", **ttl, "supportedVersions": versions, "capabilities": {**CAPABILITIES, "extensions": {"x": {}}},
                                   "instructions": "be kind", "_meta": {PREFIX + "serverInfo": {"name": "bridge", "version": "1"}}}})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": TOOLS, **CACHE_HINTS}})
    elif method == "tools/call" and params.get("name") == "long":
        if "task" in params:
            start_task(id, params)
        else:
            send({"id": id, "error": {"code": -32601, "message": "this tool runs only as a task"}})
    elif method == "tasks/result":
        threading.Thread(target=send_task_result, args=(id, tasks[params["taskId"]]), daemon=True).start()
    elif method == "tasks/cancel":
        tasks[params["taskId"]]["cancelled"] = True
        send({"id": id, "result": {"taskId": params["taskId"], "status": "cancelled"}})
    elif method == "tools/call":
        threading.Thread(target=run_tool, args=(id, params), daemon=True).start()
    elif method == "resources/read" and params["uri"].startswith("missing:"):
        code = -32602 if modern_request(params) else -32002
        send({"id": id, "error": {"code": code, "message": "no such resource", "data": {"uri": params["uri"]}}})
    elif method == "resources/read":
        start_response(id, params, lambda answers: {"contents": [{"uri": params["uri"], "text": json.dumps(answers)}], **CACHE_HINTS})
    elif method == "prompts/get":
        content = lambda answers: {"type": "text", "text": json.dumps(answers)}
        start_response(id, params, lambda answers: {"messages": [{"role": "user", "content": content(answers)}]})
    elif method == "completion/complete":
        start_response(id, params, lambda answers: {"completion": {"values": ["a", "b"] + [json.dumps(a) for a in answers]}})
    elif method == "logging/setLevel":
        log_level = params["level"]
        send({"id": id, "result": {}})
    elif method == "resources/subscribe" and params["uri"].startswith("refuse:"):
        send({"id": id, "error": {"code": -32602, "message": "no"}})
    elif method == "resources/subscribe":
        time.sleep(0.5 if params["uri"].startswith("slow:") else 0)
        subscribed.append(params["uri"])
        send({"id": id, "result": {}})
    elif method == "resources/unsubscribe":
        subscribed.remove(params["uri"])
        send({"id": id, "result": {}})
    elif method == "ping":
        send({"id": id, "result": {}})
    elif method == "subscriptions/listen" and modern:
        wanted = dict(params.get("notifications") or {})
        if "resourceSubscriptions" in wanted:
            wanted["resourceSubscriptions"] = [uri for uri in wanted["resourceSubscriptions"] if not uri.startswith("refuse:")]
        listening[id] = wanted
        notify("notifications/subscriptions/acknowledged", notifications=wanted, _meta={PREFIX + "subscriptionId": id})
        ends = BEHAVIORS & {"ends-listens", "cancels-listens"}
        if ends and "resourcesListChanged" in wanted and not ended_once:
            ended_once.add(id)
            listening.pop(id)
            if "cancels-listens" in ends:
                notify("notifications/cancelled", requestId=id, reason="shutting down")
            else:
                send({"id": id, "result": {"resultType": "complete"}})
    elif method == "notifications/cancelled":
        cancelled[params.get("requestId")] = True
        listening.pop(params.get("requestId"), None)
    elif method == "notifications/initialized":
        if "asks-for-roots" in BEHAVIORS:
            threading.Thread(target=later_roots, daemon=True).start()
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "method not found"}})


def record(method, params):
    path = os.environ.get("RECORD")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"pid": os.getpid(), "method": method, "params": params}) + "\n")


for line in sys.stdin:
    handle(json.loads(line))
os._exit(0)
