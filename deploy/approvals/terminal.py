#!/usr/bin/env python3
"""Asks the person at this terminal what agents ask for, and answers the webhook, which waits for 25 seconds.

  terminal.py SECRET [PORT [CERT KEY]]

SECRET is the file of approvals.secret. Without CERT and KEY, something in front ends TLS."""
import base64, getpass, hashlib, hmac, http.server, json, queue, re, ssl, sys, threading, time

text = open(sys.argv[1]).read().strip()
KEY = base64.b64decode(text[6:]) if text.startswith("whsec_") else text.encode()
WHO = getpass.getuser()
waiting = queue.Queue(100)  # what is to be asked


def answer(ask, verdict, seconds, who, reason=""):
    now = int(time.time())
    said = "|".join(str(field) for field in ["answer", 1, ask["container"], ask["start"], ask["request"], ask["nonce"],
                                             ask["target"], verdict, seconds, now, min(now + 60, ask["ends"]), who, reason])
    return hmac.new(KEY, said.encode(), hashlib.sha256).hexdigest() + "|" + said


def signed(headers, body):
    stamp = headers.get("webhook-timestamp", "")
    mac = hmac.new(KEY, f"{headers.get('webhook-id')}.{stamp}.".encode() + body, hashlib.sha256).digest()
    fresh = stamp.isdecimal() and abs(time.time() - int(stamp)) < 300
    return fresh and hmac.compare_digest("v1," + base64.b64encode(mac).decode(), headers.get("webhook-signature", ""))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), 65536))
        if not signed(self.headers, body):
            return self.send_error(401)
        note = json.loads(body)
        ask = note.get("approval")
        if not ask:
            print(note["text"], flush=True)
            return self.say("")
        done = {"event": threading.Event(), "line": "", "late": False}
        waiting.put((note, ask, done), timeout=20)
        done["late"] = not done["event"].wait(25)  # agent-init waits for 30 seconds
        self.say(done["line"])

    def say(self, line):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(line.encode())

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("", int(sys.argv[2]) if len(sys.argv) > 2 else 8443), Handler)
if len(sys.argv) > 4:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"listening on port {server.server_address[1]}", flush=True)
while True:
    note, ask, done = waiting.get()
    if done["late"]:
        continue
    means = "".join(f"\n  {word}" for word in ask.get("means", []))
    print(f"{ask['container']}: {note['text']}{means}\nallow for how many seconds, {ask['seconds']} at most (0: no)? ", end="", flush=True)
    said = sys.stdin.readline()
    if not said:
        break
    seconds = min(int(said), ask["seconds"]) if re.fullmatch(r"\d+\n?", said.strip()) else 0
    done["line"] = answer(ask, "allow" if seconds else "deny", seconds, WHO)
    if done["late"]:
        print("too late: the webhook waits no more", flush=True)
    done["event"].set()
