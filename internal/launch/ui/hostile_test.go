package ui

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/browser"
)

// hostile are texts that a container may choose. None may become anything but text.
func hostile() []string {
	return []string{
		`<script>pwned=1</script>`,
		`<img src=x onerror="pwned=1">`,
		`<img src="http://attacker.example/x.png">`,
		`<svg onload=pwned=1><animate onbegin=pwned=1>`,
		`"><iframe srcdoc="<script>parent.pwned=1</script>">`,
		`'" onmouseover=pwned=1 autofocus onfocus=pwned=1 x='`,
		`</p></li></ul></script></style></title></textarea><script>pwned=1</script>`,
		`<base href="http://attacker.example/">`,
		`<meta http-equiv=refresh content="0;url=http://attacker.example/">`,
		`<link rel=stylesheet href=http://attacker.example/x.css><style>*{display:none}</style>`,
		`<form action=http://attacker.example/><button class=allow>10 minutes</button></form>`,
		`<dialog open id=sure><a href="javascript:pwned=1">Yes</a></dialog>`,
		`javascript:pwned=1`, `data:text/html,<script>pwned=1</script>`,
		`${pwned=1}`, "`+(pwned=1)+`", `'-(pwned=1)-'`, `{{constructor.constructor('pwned=1')()}}`, `__proto__`, `constructor`,
		"a.example\u202emoc.live\u2066\u2067\u2068", "a\u0000b\u001b[2J\u001b]0;pwned\u0007\r\nc\u2028d\u2029e\u0085f",
		"\u200b\u200d\ufeff\u00ad\u180e", "Z" + strings.Repeat("\u0300\u0489\u0e49", 300), strings.Repeat("W", 5000),
		strings.Repeat("\n", 500), strings.Repeat("\U0001F469\u200d", 300), strings.Repeat("\u6f22", 1500), "\U000E0041\ufff9\ue000", "\xff\xfe\xed\xa0\x80",
		"agent-one · pid 1, uid 0 · asked by root", "   ",
	}
}

// say has a container for each text, which is every text of it.
func (r *rig) say(texts []string) {
	r.t.Helper()
	marshal := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			r.t.Fatal(err)
		}
		return string(raw)
	}
	var ids strings.Builder
	var containers, images []any
	for i, text := range texts {
		id := fmt.Sprintf("%064x", i+1)
		fmt.Fprintln(&ids, id)
		labels := map[string]any{"Labels": map[string]string{"org.agent-init.agent": text}, "Image": text}
		containers = append(containers, map[string]any{
			"Id": id, "Name": text, "Created": fmt.Sprintf("2026-01-02T03:%02d:00Z", i), "State": map[string]any{"Status": text, "Running": true},
			"Config": labels, "Mounts": []map[string]string{{"Type": "bind", "Source": text, "Destination": "/workspace"}},
		})
		images = append(images, map[string]any{"Id": text, "RepoTags": []string{text}, "Config": labels})
		grant := func(number int, kind string) map[string]any {
			return map[string]any{
				"number": number, "kind": kind, "target": text, "reason": text, "process": text, "uid": 1000, "asked": 2,
				"made": fmt.Sprintf("2026-01-02T03:%02d:00Z", i), "decided": map[string]any{"reason": text},
			}
		}
		r.put(id+".grants", marshal(map[string]any{"version": 1, "grants": []any{grant(7, "request"), grant(8, "allow")}}))
		r.put(id+".status", marshal(map[string]any{"healthy": false, "why": []string{"x" + text}, "phase": "x" + text, "mode": text}))
		r.put(id+".log", text+"\n"+text+"\nthe end\n")
	}
	r.put("images.json", marshal(images))
	r.put("containers.json", marshal(containers))
	r.put("ids", ids.String())
}

// shown waits for the page to have all of what n containers say, and returns its elements.
func (r *rig) shown(tab *browser.Tab, texts []string) (elements []string) {
	r.t.Helper()
	last, err := json.Marshal(shown(texts[len(texts)-1]))
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[string]bool{}
	for _, text := range texts {
		all[clean("x"+text, maxText)] = true
	}
	whys, err := json.Marshal(slices.Collect(maps.Keys(all)))
	if err != nil {
		r.t.Fatal(err)
	}
	tab.Until(fmt.Sprintf(`(() => {
		const asks = document.querySelectorAll('#asks > li');
		return asks.length === %[1]d && document.querySelectorAll('#agents > .bad > .fault').length === %[1]d &&
			asks[%[1]d - 1].querySelector('.target .said').textContent === %[2]s &&
			[...document.querySelectorAll('#agents .fault .said')].every((e) => %[3]s.includes(e.textContent)) &&
			document.querySelector('#said').hidden && !document.body.classList.contains('moving');
	})()`, len(texts), last, whys))
	tab.Eval(`[...document.querySelectorAll('*')].filter((e) => e.tagName !== 'OPTION')
		.map((e) => e.tagName + ' ' + [...e.attributes].map((a) => a.name).sort())`, &elements)
	slices.Sort(elements)
	return elements
}

// TestPeerHostileContainers shows each text in every place of the page that a container has, in a real browser. No
// script runs, nothing is loaded, no element is made of it, and the person's buttons stay where they see them.
func TestPeerHostileContainers(t *testing.T) {
	r, tab := inBrowser(t)
	texts := hostile()
	plain := make([]string, len(texts))
	for i := range plain {
		plain[i] = "plain"
	}
	r.say(plain)
	tab.Look(400, 900, false)
	tab.Go(r.server.Link())
	before := r.shown(tab, plain)
	r.say(texts)
	r.server.fleet.mu.Lock()
	for _, k := range r.server.fleet.known { // what a container's state is, too, is asked for anew
		k.statusAt = time.Time{}
	}
	r.server.fleet.mu.Unlock()
	if after := r.shown(tab, texts); !slices.Equal(before, after) {
		t.Errorf("the page is made of other elements: %d, and were %d:\n%q", len(after), len(before), after)
	}
	var got []string
	if tab.Eval("[...document.querySelectorAll('#asks .target .said')].map((e) => e.textContent)", &got); len(got) != len(texts) {
		t.Fatalf("%d requests are shown", len(got))
	}
	for i, text := range texts {
		if got[i] != shown(text) {
			t.Errorf("%.60q is shown as %.60q", text, got[i])
		}
	}
	var faults []string
	tab.Eval(`(() => {
		const bad = [];
		if (document.documentElement.scrollWidth > innerWidth) bad.push('wider than the screen');
		for (const [i, li] of [...document.querySelectorAll('#asks > li')].entries()) {
			for (const b of li.querySelectorAll('.answers button')) {
				b.scrollIntoView({block: 'center', behavior: 'instant'});
				const r = b.getBoundingClientRect();
				if (document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2) !== b) bad.push(i + ': something lies over ' + b.textContent);
			}
			if (li.offsetHeight > 800) bad.push(i + ': a request fills the screen');
			const target = li.querySelector('.target');
			if (target.scrollHeight > target.clientHeight) bad.push(i + ': a part of the target is not seen');
		}
		if (document.title !== '(' + document.querySelectorAll('#asks > li').length + ') agent-init') bad.push('the title is ' + document.title);
		return bad;
	})()`, &faults)
	if len(faults) > 0 {
		t.Errorf("%q", faults)
	}
	for i, text := range texts {
		tab.Eval(fmt.Sprintf("document.querySelectorAll('[aria-label^=\"log of\"]')[%d].click()", i), nil)
		tab.Until("document.querySelector('#lines').textContent.includes('the end')")
		var elements int
		if tab.Eval("document.querySelectorAll('#log *').length", &elements); elements != 7 {
			t.Errorf("the log of %.60q has %d elements", text, elements)
		}
		tab.Eval("document.querySelector('#log').close()", nil)
	}
	r.calm(tab)
	shot(t, tab, "hostile")
	for line := range strings.Lines(r.calls()) {
		if !strings.HasSuffix(line, " log -n 200\n") {
			t.Errorf("the engine was told: %s", line)
		}
	}
}

// TestPeerHostileTerminal shows a real xterm.js what a program could write to script the page, open an address, set the
// title or the clipboard, or have the terminal type for it.
func TestPeerHostileTerminal(t *testing.T) {
	r, tab := inBrowser(t)
	r.put("bytes", strings.Join([]string{
		"\x1b]0;pwned\x07", "\x1b]2;<script>pwned=1</script>\x07", "\x1b]52;c;cHduZWQ=\x07", "\x1b]52;c;?\x07",
		"\x1b]8;;javascript:pwned=1\x1b\\a link of a script's\x1b]8;;\x1b\\\r\n",
		"\x1b[21t\x1b[20t\x1b[14t\x1b[18t\x1b[22;0t", "\x05", "\x1bP$q\"p\x1b\\", "\x1bP+q544e\x1b\\", "\x1b[c\x1b[>c\x1b[=c\x1b[5n\x1b[6n\x1b[?6n",
		"\x1b]10;?\x07\x1b]11;?\x07\x1b]4;1;?\x07", "\x1b]1337;File=inline=1:PHNjcmlwdD4=\x07", "\x1bP0;0q\"1;1;9999;9999#0!9999~\x1b\\",
		"\x1b]9;pwned\x07\x1b]777;notify;pwned;pwned\x07", strings.Repeat("\x07", 1000), "\x1b[9999999b", "\x1b[9999;9999H", "\x1b]" + strings.Repeat("x", 1<<20) + "\x07",
		"\x1b[2J\x1b[H\x1b]8;;http://attacker.example/?x\x1b\\" + strings.Repeat("click here ", 30) + "\x1b]8;;\x1b\\",
		"\x1b[38;2;255;0;0m<img src=x onerror=pwned=1>\x1b[m\r\nthe end",
	}, ""))
	r.put("attach", `stty raw -echo; cat "$here/bytes"; cat >"$here/typed"`)
	tab.Look(400, 700, true)
	tab.Go(r.server.Link())
	tab.Until("document.querySelectorAll('#agents .good').length === 2")
	r.calm(tab)
	at := tab.Sibling()
	at.Look(1000, 700, true)
	at.Go("http://" + r.server.host + "/terminal#" + one)
	at.Until("document.querySelector('.xterm-rows')?.textContent.includes('the end')")
	at.Until("document.title === 'agent-one · agent-init' && document.querySelector('#name').textContent === 'agent-one'")
	at.Point(".xterm-rows > div")
	at.Point(".xterm-rows > div")
	at.Until("document.querySelector('.xterm-cursor-pointer')") // the address below the mouse was found
	at.Click(".xterm-rows > div")
	at.Until("document.querySelector('#wish code').textContent === 'http://attacker.example/?x'")
	at.Click("#wish button[value=no]")
	at.Eval("document.querySelector('.xterm-helper-textarea').focus()", nil)
	at.Type("mine")
	for at.Until("true"); ; {
		typed, err := os.ReadFile(filepath.Join(r.dir, "typed"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(typed), "mine") {
			continue
		}
		if strings.ContainsAny(string(typed), "\x1d\r\n\x03\x04") || strings.Contains(string(typed), "pwned") {
			t.Errorf("the terminal typed for the program: %q", typed)
		}
		break
	}
	shot(t, at, "terminal")
	at.Look(400, 700, true)
	at.Until("document.querySelector('footer').offsetHeight > 0 && document.documentElement.scrollWidth <= innerWidth")
	shot(t, at, "terminal-narrow")
	r.calm(at)
	if pages := strings.Join(at.Pages(), " "); strings.Contains(pages, "attacker") || strings.Contains(pages, "javascript") {
		t.Errorf("pages are open: %s", pages)
	}
}

// attackPage tries, from another origin in the same browser, what a page can. It writes down what it got.
const attackPage = `<!doctype html><meta charset=utf-8><title>attack</title><body><script type=module>
const target = 'http://TARGET', got = [], body = JSON.stringify({container: 'CONTAINER'});
const attempt = async (name, what) => { try { const r = await what(); if (r) got.push(name + ': ' + r); } catch {} };
const answered = async (promise) => { const r = await promise; return r.type !== 'opaque' && (r.status + ' ' + await r.text()); };
for (const path of ['/', '/page.js', '/api/fleet', '/api/log?container=CONTAINER']) {
  for (const credentials of ['include', 'omit']) await attempt(path, () => answered(fetch(target + path, {credentials})));
  await attempt(path, () => answered(fetch(target + path, {credentials: 'include', headers: {'X-Agent-Init-Key': 'x'}})));
}
for (const path of ['/api/stop', '/api/answer', '/api/enter', '/api/start']) {
  for (const mode of ['cors', 'no-cors']) for (const type of ['application/json', 'text/plain']) {
    await attempt(path, () => answered(fetch(target + path, {method: 'POST', mode, body, credentials: 'include', headers: {'Content-Type': type}})));
  }
  navigator.sendBeacon(target + path, new Blob([body], {type: 'text/plain'}));
}
const loads = (tag, attribute, path) => new Promise((done) => {
  const e = document.createElement(tag);
  e.onload = () => done('loaded'); e.onerror = () => done('');
  e[attribute] = target + path; if (tag === 'link') e.rel = 'stylesheet';
  document.body.append(e);
});
for (const [tag, attribute, path] of [['script', 'src', '/page.js'], ['img', 'src', '/icon.svg'], ['link', 'href', '/page.css'], ['script', 'src', '/api/fleet']]) {
  await attempt(tag + ' ' + path, () => loads(tag, attribute, path));
}
for (const protocols of [[], ['agent-init'], ['agent-init', 'key.x']]) {
  await attempt('websocket', () => new Promise((done) => {
    const s = new WebSocket('ws://TARGET/api/attach?container=CONTAINER', protocols);
    s.onopen = () => done('open'); s.onerror = () => done('');
  }));
}
await attempt('frame', () => new Promise((done) => {
  const f = document.createElement('iframe');
  f.src = target + '/';
  f.onload = () => { try { done(f.contentWindow.document.body.innerText); } catch { done(''); } };
  document.body.append(f);
}));
const form = document.createElement('form');
form.method = 'post'; form.enctype = 'text/plain'; form.action = target + '/api/stop'; form.target = 'x';
const field = document.createElement('input'); field.name = body.slice(0, -1) + ',"x":"'; field.value = '"}'; form.append(field);
const frame = document.createElement('iframe'); frame.name = 'x';
const sent = new Promise((done) => { frame.onload = done; });
document.body.append(frame, form); form.submit(); await sent;
for (const store of [localStorage, sessionStorage]) for (const name of Object.keys(store)) got.push('storage: ' + name);
if (document.cookie.includes('agent-init')) got.push('cookie: ' + document.cookie);
globalThis.got = got;
</script>`

// TestPeerOtherPages has a person inside, who opens a page of an attacker's: on another port of 127.0.0.1,
// which a browser takes for the same site and sends the cookie to, on a site elsewhere, and by a name that was let
// point here.
func TestPeerOtherPages(t *testing.T) {
	r, tab := inBrowser(t)
	tab.Go(r.server.Link())
	tab.Until("document.querySelectorAll('#agents .good').length === 2")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cookies := make(chan string, 100)
	attacker := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case cookies <- q.Header.Get("Cookie") + " " + q.Header.Get("Referer"):
		default:
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, strings.NewReplacer("TARGET", r.server.host, "CONTAINER", one).Replace(attackPage))
	})}
	go attacker.Serve(l)
	t.Cleanup(func() { attacker.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"http://127.0.0.1:" + port, "http://attacker.example:" + port} {
		evil := tab.Sibling()
		evil.Go(origin + "/")
		evil.Until("globalThis.got")
		var got []string
		if evil.Eval("globalThis.got", &got); len(got) > 0 {
			t.Errorf("%s got %q", origin, got)
		}
	}
	// What makes the key needed: the other port has the cookie. By itself it opens nothing.
	stolen, _, _ := strings.Cut(<-cookies, " ")
	name, value, _ := strings.Cut(strings.TrimSuffix(stolen, ";"), "=")
	if name != cookieName(r.server.port) {
		t.Fatalf("the other port got %q: cookies know ports now, and the docs say that they don't", stolen)
	}
	r.pass = pass{cookie: value}
	if a := r.send(r.request("GET", "/api/fleet", "")); a.status != http.StatusUnauthorized {
		t.Errorf("the cookie alone opens the door: %d", a.status)
	}
	rebound := tab.Sibling()
	rebound.Go("http://attacker.example:" + r.server.port + "/")
	rebound.Until("document.body?.innerText.includes('alone')")
	if calls := r.calls(); calls != "" {
		t.Errorf("the engine was told: %s", calls)
	}
	r.calm(tab)
}
