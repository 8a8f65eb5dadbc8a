package process

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
	"github.com/agent-init/agent-init/test/attack/rig"
)

// unchanged is what nothing that the agent does may alter.
type unchanged struct {
	rules    string
	targets  map[string]int
	attempts any // to load the policy
	restarts any // of the guard
	files    string
}

func unchangedIn(w *rig.World) unchanged {
	w.Helper()
	s, code := w.Status()
	if code != 0 {
		w.Errorf("not healthy: %v", s["why"])
	}
	u := unchanged{rules: rig.Rules(w.T, w.Box), targets: map[string]int{}}
	for who, p := range targets(w) {
		u.targets[who] = p.Pid
	}
	guard, _ := s["guard"].(map[string]any)
	policy, _ := s["policy"].(map[string]any)
	u.attempts, u.restarts = policy["attempts"], guard["restarts"]
	// Without times: what is published again as it was has not changed.
	u.files = w.Root("sh", "-c", `cd /run/agent-init && for f in *; do case $f in (status.json|metrics.prom|leases.json|*.new) ;; (*) stat -c '%n %A %u %g' $f; test ! -f $f || cksum <$f; esac; done
		stat -c '%n %A %u %g' /run/agent-init /etc/agent-init /var/log/agent-init`).Stdout
	if !strings.Contains(u.files, "README.md") || !strings.Contains(u.files, "policy.jsonl") {
		w.Errorf("not everything is published: %s", u.files)
	}
	return u
}

func same(w *rig.World, before unchanged) {
	w.Helper()
	now := unchangedIn(w)
	rig.SameRules(w.T, "since before", before.rules, now.rules)
	if !maps.Equal(now.targets, before.targets) {
		w.Errorf("the processes changed from %v to %v", before.targets, now.targets)
	}
	if now.attempts != before.attempts || now.restarts != before.restarts || now.files != before.files {
		w.Errorf("changed from\n%v %v %s\nto\n%v %v %s", before.attempts, before.restarts, before.files, now.attempts, now.restarts, now.files)
	}
}

var _ = rig.Also(TestAgentInitRunByTheAgentGainsNothing, rig.OverXtables)

// TestAgentInitRunByTheAgentGainsNothing: the agent invokes agent-init itself, with every command
// there is, the hidden ones too, a hundred times in parallel.
func TestAgentInitRunByTheAgentGainsNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	before := unchangedIn(w)
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
		"__keeper":                       "77",
		"__keeper {}":                    "64",
	}
	commands := strings.Join(slices.Sorted(maps.Keys(want)), "\n")
	r := w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "exec", "--", "sh", "-c", `
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
		w.Script("agent-init selftest; agent-init __probe")
	}
	same(w, before)
	for _, f := range []string{"/workspace/ran", "/root/ran"} {
		if _, err := w.Box.ReadFile(f); err == nil {
			t.Errorf("%s was made: a command ran", f)
		}
	}
	if !rig.Eventually(5*time.Second, func() bool { return len(rig.Inmates(t, w.Agent)) == 3 }) {
		t.Errorf("there is more than PID 1, the guard and the agent: %+v", rig.Inmates(t, w.Agent))
	}
	w.Works("http", "https://ok.test/")
}

var _ = rig.Also(TestForgedStageGainsNothing, rig.OverXtables)

// TestForgedStageGainsNothing: what agent-init hands to its own second halves can be
// made up by the agent, and gains it nothing.
func TestForgedStageGainsNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	before := unchangedIn(w)
	guard := w.Guard()
	for _, uid := range []uint32{0, 1, guard.Uid, lab.AgentUID, 4294967295} {
		r := w.Script(`echo "{\"identity\":{\"uid\":$1,\"gid\":$1,\"name\":\"x\",\"home\":\"/\",\"shell\":\"/bin/sh\"},
			\"argv\":[\"poke\",\"self\"],\"env\":[\"PATH=/usr/local/bin\"],\"dir\":\"/\",\"keep_fds\":9}" >/tmp/spec
			agent-init __stage 3</tmp/spec`, fmt.Sprint(uid))
		if r.Code == 0 {
			p, err := lab.ParsePoke(r.Stdout)
			rig.Must(t, err)
			powerless(t, fmt.Sprint("a forged stage for uid ", uid), p)
		}
	}
	// As a guard, with a channel to itself.
	r := w.Script(`echo '{"bundle":{},"upstreams":[{"addr":"1.1.1.1:53"}],"listeners":0}' >/tmp/config
		timeout 2 agent-init guard 3</dev/null 4</tmp/config 5<>/tmp/a 6<>/tmp/b 7<>/tmp/c`)
	if r.Code == 0 {
		t.Errorf("a forged guard ran: %s", r)
	}
	same(w, before)
	w.Sealed(lab.ToAddr("1.1.1.1"))
}

// helpers are programs that the privileged side of such a tool usually calls.
var helpers = []string{"nft", "iptables", "ip6tables", "iptables-restore", "ip6tables-restore", "iptables-legacy", "iptables-nft",
	"ipset", "ip", "modprobe", "conntrack", "sysctl", "getent", "id", "sh", "bash", "env", "mount", "chown", "su", "sudo",
	"setpriv", "gosu", "su-exec", "tini", "dig", "curl", "getcap", "capsh", "kill", "dnsmasq", "true"}

var _ = rig.Also(TestHostileEnvironmentIsIgnored, rig.OverXtables)

// TestHostileEnvironmentIsIgnored: root's side calls nothing by PATH, loads
// nothing by a variable and believes no proxy.
func TestHostileEnvironmentIsIgnored(t *testing.T) {
	f, err := elf.Open(lab.Binary(t))
	rig.Must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary is linked dynamically: LD_PRELOAD reaches it")
		}
	}
	ran := t.TempDir()
	rig.Must(t, os.Chmod(ran, 0o777|os.ModeSticky))
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
	rig.Must(t, os.Remove(ran+"/0-nft"))

	w := rig.StartIn(t, l, rig.Allowlist, opts, "/usr/local/bin/agent-init", "run", "--", "/bin/sleep", "infinity")
	w.Ready()
	w.Works("tcp", "-send", "hello", "45.30.9.9:8443")
	w.Blocked("resolve", "evil.test")
	w.Root("agent-init", "reload")
	w.Root("agent-init", "status")
	w.Root("agent-init", "selftest")
	w.Guard().Signal(t, unix.SIGKILL) // the next start of it is one more chance
	if !rig.Eventually(20*time.Second, func() bool { return w.Poke("resolve", "ok.test").OK }) {
		t.Error("names are not answered after the guard's end")
	}
	entries, err := os.ReadDir(ran)
	rig.Must(t, err)
	for _, e := range entries {
		t.Errorf("a planted program ran: uid-name %s", e.Name())
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.Guard().Host))
	rig.Must(t, err)
	for v := range strings.SplitSeq(strings.Trim(string(env), "\x00"), "\x00") {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL"}, name) {
			t.Errorf("the guard has %s in its environment", v)
		}
	}
	w.Sealed(lab.ToAddr("1.1.1.1"))
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
	opts.Files = append(opts.Files, lab.File{Path: "/etc/agent-init/allowlist.txt", Data: []byte(rig.Allowlist)})
	w := &rig.World{T: t, Lab: l, Box: l.NewBox(opts)}
	w.Agent = w.Box.Start(lab.Cmd{Dir: "/workspace", Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
	w.Ready()
	before := unchangedIn(w)
	w.Script(`cd /workspace
		AGENT_INIT_CONFIG=/workspace agent-init reload
		AGENT_INIT_CONFIG=/workspace agent-init up
		mkdir /etc/agent-init/allowlist.d
		echo evil.test >>/etc/agent-init/allowlist.txt
		mv /etc/agent-init /etc/old; ln -s /workspace /etc/agent-init
		echo 45.30.0.1 evil.test >>/etc/hosts`)
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Errorf("reload: %s", r)
	}
	w.Blocked("resolve", "evil.test")
	w.Blocked("tcp", "1.1.1.1:443")
	w.Unasked("evil.test")
	w.Sealed(lab.ToAddr("1.1.1.1"))
	rig.SameRules(t, "with a policy in the workspace", before.rules, rig.Rules(t, w.Box))
	w.Works("http", "https://ok.test/")
}

// TestNothingListensForOrders: nothing listens for orders but the kernel, for
// signals, and the files of the state are root's.
func TestNothingListensForOrders(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	before := unchangedIn(w)
	dns := rig.Listening(w)
	for _, host := range []string{"127.0.0.1", "::1"} {
		p := w.Poke("scan", "-c", "256", host, "1-65535")
		for _, port := range rig.Values(p, "open") {
			if port != "53" && !slices.ContainsFunc(dns, func(d uint16) bool { return fmt.Sprint(d) == port }) { // 53 is redirected
				t.Errorf("something unknown listens on %s port %s", host, port)
			}
		}
	}
	if len(dns) > 4 {
		t.Errorf("more listens than DNS and the name gate in two families: %v", dns)
	}
	for _, port := range dns {
		p := w.Poke("tcp", "-send", "POST /policy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nevil.test\n", "-timeout", "1s", fmt.Sprintf("127.0.0.1:%d", port))
		if got, _ := p.Detail["received"].(string); strings.Contains(got, "HTTP") {
			t.Errorf("port %d speaks HTTP: %q", port, got)
		}
	}
	for _, op := range [][]string{
		{"read", "/run/agent-init/agent.json"}, {"read", "/run/agent-init/keeper.lock"},
		{"write", "/run/agent-init/status.json"}, {"write", "/run/agent-init/metrics.prom"}, {"write", "/run/agent-init/selftest.json"}, {"write", "/run/agent-init/agent.json"},
		{"write", "/run/agent-init/status.json.new"}, {"write", "/run/agent-init/keeper.lock"}, {"write", "/run/agent-init/x"},
		{"write", "/var/log/agent-init/audit.jsonl"}, {"write", "-append", "/var/log/agent-init/audit.jsonl"}, {"write", "/var/log/agent-init/audit.jsonl.1"},
		{"write", "/etc/agent-init/allowlist.txt"}, {"write", "/etc/agent-init/policy.yaml"}, {"write", "/usr/local/bin/agent-init"},
	} {
		if p := w.Blocked(op...); p.Errno != "EACCES" && p.Errno != "EROFS" && p.Errno != "ETXTBSY" {
			t.Errorf("%v: %s", op, p)
		}
	}
	w.Works("read", "/run/agent-init/status.json")
	w.Works("read", "/var/log/agent-init/audit.jsonl")
	for _, script := range []string{
		"rm -rf /run/agent-init /var/log/agent-init /etc/agent-init 2>/dev/null; mv /run/agent-init /run/old 2>/dev/null; mv /usr/local/bin/agent-init /tmp 2>/dev/null; true",
		"ln /run/agent-init/agent.json /tmp/hard 2>/dev/null && cat /tmp/hard",
		"kill -HUP 1 2>/dev/null; agent-init reload 2>/dev/null",
		"mount --bind /tmp /run/agent-init 2>/dev/null; umount /run 2>/dev/null; mount -t tmpfs x /etc 2>/dev/null",
	} {
		if r := w.Script(script); r.Stdout != "" {
			t.Errorf("%s: %s", script, r)
		}
	}
	same(w, before)
}
