package attack

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// unchanged is what nothing that the agent does may alter.
type unchanged struct {
	rules    string
	targets  map[string]int
	attempts any // to load the policy
	restarts any // of the guard
	files    string
}

func (w *world) unchanged() unchanged {
	w.Helper()
	s, code := w.status()
	if code != 0 {
		w.Errorf("not healthy: %v", s["why"])
	}
	u := unchanged{rules: rules(w.T, w.box), targets: map[string]int{}}
	for who, p := range w.targets() {
		u.targets[who] = p.pid
	}
	guard, _ := s["guard"].(map[string]any)
	policy, _ := s["policy"].(map[string]any)
	u.attempts, u.restarts = policy["attempts"], guard["restarts"]
	// Without times: what is published again as it was has not changed.
	u.files = w.root("sh", "-c", `cd /run/agent-init && for f in *; do case $f in (status.json|leases.json|*.new) ;; (*) stat -c '%n %A %u %g' $f; test ! -f $f || cksum <$f; esac; done
		stat -c '%n %A %u %g' /run/agent-init /etc/agent-init /var/log/agent-init`).Stdout
	if !strings.Contains(u.files, "README.md") || !strings.Contains(u.files, "policy.jsonl") {
		w.Errorf("not everything is published: %s", u.files)
	}
	return u
}

func (w *world) same(before unchanged) {
	w.Helper()
	now := w.unchanged()
	sameRules(w.T, "since before", before.rules, now.rules)
	if !maps.Equal(now.targets, before.targets) {
		w.Errorf("the processes changed from %v to %v", before.targets, now.targets)
	}
	if now.attempts != before.attempts || now.restarts != before.restarts || now.files != before.files {
		w.Errorf("changed from\n%v %v %s\nto\n%v %v %s", before.attempts, before.restarts, before.files, now.attempts, now.restarts, now.files)
	}
}

var _ = also(TestAgentInitRunByTheAgentGainsNothing, overXtables)

// TestAgentInitRunByTheAgentGainsNothing: the agent invokes agent-init itself, with every command
// there is, the hidden ones too, a hundred times in parallel.
func TestAgentInitRunByTheAgentGainsNothing(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	before := w.unchanged()
	want := map[string]string{ // exit codes
		"run -- touch /workspace/ran":                      "77",
		"run --unsafe-no-firewall -- touch /workspace/ran": "77",
		"run --selftest off -- touch /workspace/ran":       "77",
		"up":                             "77",
		"up --config /workspace":         "77",
		"sidecar":                        "77",
		"sidecar --config /tmp":          "77",
		"exec -- touch /root/ran":        "77",
		"reload":                         "77",
		"allow evil.test":                "77",
		"deny ok.test":                   "77",
		"grants --end 1":                 "77",
		"grants":                         "0",
		"doctor":                         "77",
		"explain evil.test":              "0",
		"metrics":                        "0",
		"up --mode monitor":              "77",
		"run --mode monitor -- touch /x": "77",
		"wait --timeout 1s":              "0",
		"status --quiet":                 "0",
		"version":                        "0",
		"guard":                          "64",
		"__stage":                        "64",
		"__parent":                       "64",
		"__keeper {}":                    "77",
	}
	commands := strings.Join(slices.Sorted(maps.Keys(want)), "\n")
	r := w.box.Exec(lab.Cmd{Timeout: 2 * time.Minute, Args: []string{"agent-init", "exec", "--", "sh", "-c", `
		cd /tmp
		for i in $(seq 100); do
			printf '%s\n' "$1" | while read -r c; do
				agent-init $c >/dev/null 2>&1 </dev/null
				echo "$?|$c"
			done &
		done
		wait`, "sh", commands}})
	got := map[string]int{}
	for line := range strings.Lines(r.Stdout) {
		got[strings.TrimSpace(line)]++
	}
	for c, code := range want {
		if n := got[code+"|"+c]; n != 100 {
			t.Errorf("agent-init %s: ended %d times of 100 with %s", c, n, code)
		}
	}
	if t.Failed() {
		t.Logf("codes and commands: %v\n%s", got, r.Stderr)
	}
	for range 3 { // these take a while
		w.script("agent-init selftest; agent-init __probe")
	}
	w.same(before)
	for _, f := range []string{"/workspace/ran", "/root/ran"} {
		if _, err := w.box.ReadFile(f); err == nil {
			t.Errorf("%s was made: a command ran", f)
		}
	}
	if !eventually(5*time.Second, func() bool { return len(inmates(t, w.agent)) == 3 }) {
		t.Errorf("there is more than PID 1, the guard and the agent: %+v", inmates(t, w.agent))
	}
	w.works("http", "https://ok.test/")
}

var _ = also(TestForgedStageGainsNothing, overXtables)

// TestForgedStageGainsNothing: what agent-init hands to its own second halves can be
// made up by the agent, and gains it nothing.
func TestForgedStageGainsNothing(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	before := w.unchanged()
	guard := w.guard()
	for _, uid := range []uint32{0, 1, guard.uid, lab.AgentUID, 4294967295} {
		r := w.script(`echo "{\"identity\":{\"uid\":$1,\"gid\":$1,\"name\":\"x\",\"home\":\"/\",\"shell\":\"/bin/sh\"},
			\"argv\":[\"poke\",\"self\"],\"env\":[\"PATH=/usr/local/bin\"],\"dir\":\"/\",\"keep_fds\":9}" >/tmp/spec
			agent-init __stage 3</tmp/spec`, fmt.Sprint(uid))
		if r.Code == 0 {
			p, err := lab.ParsePoke(r.Stdout)
			must(t, err)
			powerless(t, fmt.Sprint("a forged stage for uid ", uid), p)
		}
	}
	// As a guard, with a channel to itself.
	r := w.script(`echo '{"bundle":{},"upstreams":[{"addr":"1.1.1.1:53"}],"listeners":0}' >/tmp/config
		timeout 2 agent-init guard 3</dev/null 4</tmp/config 5<>/tmp/a 6<>/tmp/b 7<>/tmp/c`)
	if r.Code == 0 {
		t.Errorf("a forged guard ran: %s", r)
	}
	w.same(before)
	w.sealed(lab.ToAddr("1.1.1.1"))
}

// helpers are programs that the privileged side of such a tool usually calls.
var helpers = []string{"nft", "iptables", "ip6tables", "iptables-restore", "ip6tables-restore", "iptables-legacy", "iptables-nft",
	"ipset", "ip", "modprobe", "conntrack", "sysctl", "getent", "id", "sh", "bash", "env", "mount", "chown", "su", "sudo",
	"setpriv", "gosu", "su-exec", "tini", "dig", "curl", "getcap", "capsh", "kill", "dnsmasq", "true"}

var _ = also(TestHostileEnvironmentIsIgnored, overXtables)

// TestHostileEnvironmentIsIgnored: root's side calls nothing by PATH, loads
// nothing by a variable and believes no proxy.
func TestHostileEnvironmentIsIgnored(t *testing.T) {
	f, err := elf.Open(lab.Binary(t))
	must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary is linked dynamically: LD_PRELOAD reaches it")
		}
	}
	ran := t.TempDir()
	must(t, os.Chmod(ran, 0o777|os.ModeSticky))
	script := []byte("#!/bin/sh\n: > /ran/$(/usr/bin/id -u)-${0##*/}\n")
	opts := lab.BoxOptions{
		Binds: []lab.Bind{{Source: ran, Target: "/ran", Writable: true}},
		Env: []string{"LD_PRELOAD=/tmp/evil.so", "LD_LIBRARY_PATH=/tmp", "LD_AUDIT=/tmp/evil.so", "GCONV_PATH=/tmp", "BASH_ENV=/usr/local/sbin/sh",
			"ENV=/usr/local/sbin/sh", "IFS=/", "XTABLES_LIBDIR=/tmp", "HTTP_PROXY=http://1.1.1.1:3128", "HTTPS_PROXY=http://1.1.1.1:3128",
			"ALL_PROXY=socks5://1.1.1.1:1080", "RES_OPTIONS=use-vc", "LOCALDOMAIN=evil.test", "HOSTALIASES=/tmp/aliases", "TMPDIR=/workspace",
			"GODEBUG=netdns=cgo+2,http2debug=2", "GOTRACEBACK=crash", "GOMAXPROCS=1", "NOTIFY_SOCKET=/tmp/notify", "TZ=/tmp/tz"},
	}
	for _, name := range helpers {
		opts.Files = append(opts.Files, lab.File{Path: "/usr/local/sbin/" + name, Data: script, Mode: 0o755, UID: lab.AgentUID, GID: lab.AgentUID})
	}
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	open := l.NewBox(opts)
	open.Idle()
	open.Exec(lab.Cmd{Args: []string{"nft"}})
	if _, err := os.Stat(ran + "/0-nft"); err != nil {
		t.Fatalf("proves nothing, a planted program does not run as root either: %v", err)
	}
	must(t, os.Remove(ran+"/0-nft"))

	w := startIn(t, l, allowlist, opts, "/usr/local/bin/agent-init", "run", "--", "/bin/sleep", "infinity")
	w.ready()
	w.works("tcp", "-send", "hello", "45.30.9.9:8443")
	w.blocked("resolve", "evil.test")
	w.root("agent-init", "reload")
	w.root("agent-init", "status")
	w.root("agent-init", "selftest")
	w.guard().signal(t, unix.SIGKILL) // the next start of it is one more chance
	if !eventually(20*time.Second, func() bool { return w.poke("resolve", "ok.test").OK }) {
		t.Error("names are not answered after the guard's end")
	}
	entries, err := os.ReadDir(ran)
	must(t, err)
	for _, e := range entries {
		t.Errorf("a planted program ran: uid-name %s", e.Name())
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.guard().host))
	must(t, err)
	for v := range strings.SplitSeq(strings.Trim(string(env), "\x00"), "\x00") {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL"}, name) {
			t.Errorf("the guard has %s in its environment", v)
		}
	}
	w.sealed(lab.ToAddr("1.1.1.1"))
}

// TestWorkspaceHoldsNoPolicy: what lies in the agent's directories is no
// policy, whatever its name, and can't be made one by the agent.
func TestWorkspaceHoldsNoPolicy(t *testing.T) {
	lab.Require(t)
	var opts lab.BoxOptions
	for _, dir := range []string{"/workspace", "/workspace/.agent-init", "/workspace/agent-init", "/workspace/.config/agent-init", "/home/agent", "/home/agent/.config/agent-init", "/home/agent/.agent-init", "/tmp"} {
		for _, name := range []string{"allowlist.txt", "policy.yaml", ".agent-init.yaml", ".agent-init", "allowlist.d/more.txt"} {
			if name == ".agent-init" && (dir == "/workspace" || dir == "/home/agent") {
				continue // a directory there
			}
			data := "evil.test\n1.1.1.1\n"
			if path.Ext(name) == ".yaml" {
				data = "domains: [evil.test, 1.1.1.1]\n"
			}
			opts.Files = append(opts.Files, lab.File{Path: dir + "/" + name, Data: []byte(data), UID: lab.AgentUID, GID: lab.AgentUID})
		}
	}
	l := lab.New(t, lab.Options{})
	opts.Binary = lab.Binary(t)
	opts.Files = append(opts.Files, lab.File{Path: "/etc/agent-init/allowlist.txt", Data: []byte(allowlist)})
	w := &world{T: t, lab: l, box: l.NewBox(opts)}
	w.agent = w.box.Start(lab.Cmd{Dir: "/workspace", Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
	w.ready()
	before := w.unchanged()
	w.script(`cd /workspace
		AGENT_INIT_CONFIG=/workspace agent-init reload
		AGENT_INIT_CONFIG=/workspace agent-init up
		mkdir /etc/agent-init/allowlist.d
		echo evil.test >>/etc/agent-init/allowlist.txt
		mv /etc/agent-init /etc/old; ln -s /workspace /etc/agent-init
		echo 45.30.0.1 evil.test >>/etc/hosts`)
	if r := w.root("agent-init", "reload"); r.Code != 0 {
		t.Errorf("reload: %s", r)
	}
	w.blocked("resolve", "evil.test")
	w.blocked("tcp", "1.1.1.1:443")
	w.unasked("evil.test")
	w.sealed(lab.ToAddr("1.1.1.1"))
	sameRules(t, "with a policy in the workspace", before.rules, rules(t, w.box))
	w.works("http", "https://ok.test/")
}

// TestNothingListensForOrders: nothing listens for orders but the kernel, for
// signals, and the files of the state are root's.
func TestNothingListensForOrders(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	before := w.unchanged()
	dns := listening(w)
	for _, host := range []string{"127.0.0.1", "::1"} {
		p := w.poke("scan", "-c", "256", host, "1-65535")
		for _, port := range values(p, "open") {
			if port != "53" && !slices.ContainsFunc(dns, func(d uint16) bool { return fmt.Sprint(d) == port }) { // 53 is redirected
				t.Errorf("something unknown listens on %s port %s", host, port)
			}
		}
	}
	if len(dns) > 4 {
		t.Errorf("more listens than DNS and the name gate in two families: %v", dns)
	}
	for _, port := range dns {
		p := w.poke("tcp", "-send", "POST /policy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nevil.test\n", "-timeout", "1s", fmt.Sprintf("127.0.0.1:%d", port))
		if got, _ := p.Detail["received"].(string); strings.Contains(got, "HTTP") {
			t.Errorf("port %d speaks HTTP: %q", port, got)
		}
	}
	for _, op := range [][]string{
		{"read", "/run/agent-init/agent.json"}, {"read", "/run/agent-init/keeper.lock"},
		{"write", "/run/agent-init/status.json"}, {"write", "/run/agent-init/selftest.json"}, {"write", "/run/agent-init/agent.json"},
		{"write", "/run/agent-init/status.json.new"}, {"write", "/run/agent-init/keeper.lock"}, {"write", "/run/agent-init/x"},
		{"write", "/var/log/agent-init/audit.jsonl"}, {"write", "-append", "/var/log/agent-init/audit.jsonl"}, {"write", "/var/log/agent-init/audit.jsonl.1"},
		{"write", "/etc/agent-init/allowlist.txt"}, {"write", "/etc/agent-init/policy.yaml"}, {"write", "/usr/local/bin/agent-init"},
	} {
		if p := w.blocked(op...); p.Errno != "EACCES" && p.Errno != "EROFS" && p.Errno != "ETXTBSY" {
			t.Errorf("%v: %s", op, p)
		}
	}
	w.works("read", "/run/agent-init/status.json")
	w.works("read", "/var/log/agent-init/audit.jsonl")
	for _, script := range []string{
		"rm -rf /run/agent-init /var/log/agent-init /etc/agent-init 2>/dev/null; mv /run/agent-init /run/old 2>/dev/null; mv /usr/local/bin/agent-init /tmp 2>/dev/null; true",
		"ln /run/agent-init/agent.json /tmp/hard 2>/dev/null && cat /tmp/hard",
		"kill -HUP 1 2>/dev/null; agent-init reload 2>/dev/null",
		"mount --bind /tmp /run/agent-init 2>/dev/null; umount /run 2>/dev/null; mount -t tmpfs x /etc 2>/dev/null",
	} {
		if r := w.script(script); r.Stdout != "" {
			t.Errorf("%s: %s", script, r)
		}
	}
	w.same(before)
}
