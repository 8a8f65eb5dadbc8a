#!/usr/bin/env python3
"""Asks a channel of Slack what agents ask for: two buttons, and the answer as a file.

  SLACK_TOKEN=xoxb-… SLACK_SIGNING_SECRET=… SLACK_CHANNEL=C… SLACK_APPROVERS=U…,U… slack.py SECRET DIR [PORT]

SECRET is the file of approvals.secret. DIR/HOSTNAME is mounted as approvals.directory of that container. Something in front ends TLS. Slack's "interactivity" leads to /slack."""
import base64, hashlib, hmac, http.server, json, os, re, sys, time, urllib.parse, urllib.request

text = open(sys.argv[1]).read().strip()
KEY = base64.b64decode(text[6:]) if text.startswith("whsec_") else text.encode()
APPROVERS = os.environ["SLACK_APPROVERS"].split(",")
DIR = sys.argv[2]


def mac(key, message):
    return hmac.new(key, message, hashlib.sha256)


def fresh(stamp):
    return stamp.isdecimal() and abs(time.time() - int(stamp)) < 300


def slack(method, message):
    request = urllib.request.Request(os.environ.get("SLACK_API", "https://slack.com/api/") + method, json.dumps(message).encode(),
                                     {"Authorization": "Bearer " + os.environ["SLACK_TOKEN"], "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        assert json.load(reply)["ok"]


def put(ask, line):  # whole, as agent-init looks at any time; the last 16 of a container stay
    place = os.path.join(DIR, re.sub(r"[^a-zA-Z0-9-]", "_", ask["container"]))
    os.makedirs(place, mode=0o755, exist_ok=True)
    with open(os.path.join(place, "." + line[:64]), "w") as file:
        file.write(line + "\n")
    os.replace(file.name, os.path.join(place, str(ask["request"] % 16)))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), 65536))
        if self.path == "/slack":
            stamp = self.headers.get("X-Slack-Request-Timestamp", "")
            want = "v0=" + mac(os.environ["SLACK_SIGNING_SECRET"].encode(), f"v0:{stamp}:".encode() + body).hexdigest()
            return self.decide(body) if fresh(stamp) and hmac.compare_digest(want, self.headers.get("X-Slack-Signature", "")) else self.send_error(401)
        stamp = self.headers.get("webhook-timestamp", "")
        want = "v1," + base64.b64encode(mac(KEY, f"{self.headers.get('webhook-id')}.{stamp}.".encode() + body).digest()).decode()
        if not fresh(stamp) or not hmac.compare_digest(want, self.headers.get("webhook-signature", "")):
            return self.send_error(401)
        note, ask = json.loads(body), json.loads(body).get("approval")
        words = {"type": "section", "text": {"type": "plain_text", "text": "\n".join([note["container"] + ": " + note["text"], *(ask or {}).get("means", [])])}}
        buttons = [{"type": "button", "action_id": verdict, "value": json.dumps(ask), "text": {"type": "plain_text", "text": label}}
                   for verdict, label in [("allow", f"Allow for {ask['seconds']} s"), ("deny", "No")]] if ask else []
        slack("chat.postMessage", {"channel": os.environ["SLACK_CHANNEL"], "text": note["text"],
                                   "blocks": [words] + ([{"type": "actions", "elements": buttons}] if buttons else [])})
        self.say()

    def decide(self, body):  # Slack has signed that this person has pressed the button that we have made
        pressed = json.loads(urllib.parse.parse_qs(body.decode())["payload"][0])
        action, user, now = pressed["actions"][0], pressed["user"], int(time.time())
        if user["id"] in APPROVERS:
            ask, verdict = json.loads(action["value"]), action["action_id"]
            who = "slack:" + re.sub(r"[^a-zA-Z0-9._-]", "?", user.get("username", user["id"]))[:40]
            said = "|".join(str(field) for field in ["answer", 1, ask["container"], ask["start"], ask["request"], ask["nonce"], ask["target"], verdict,
                                                     ask["seconds"] if verdict == "allow" else 0, now, min(now + 60, ask["ends"]), who, ""])
            put(ask, mac(KEY, said.encode()).hexdigest() + "|" + said)
        self.say()

    def say(self):
        self.send_response(200)
        self.end_headers()


server = http.server.ThreadingHTTPServer(("", int(sys.argv[3]) if len(sys.argv) > 3 else 8080), Handler)
print(f"listening on port {server.server_address[1]}", flush=True)
server.serve_forever()
