package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// revokeGoal is how soon after a denial the last byte, and the last new request, has come to the far side.
const revokeGoal = time.Second

// What goes on in a box until it is denied: a connection that the kernel cuts, one that the gate holds since its address is
// another name's as well, an upload to an inspected name and a WebSocket of one, an answer of a route, a push by one. Each flow is begun once and goes on; each loop begins anew again and again.
var revoked = []struct {
	what, key, flow, loop string
	deny                  string // a target; "": this policy is loaded in the place of the one that has it
	policy                string
}{
	{"kernel", "direct", `exec 3<>/dev/tcp/direct.test/9443; trickle >&3`, `(exec 3<>/dev/tcp/direct.test/9444)`, "direct.test", ""},
	{"gate", "gated.test", `trickle | curl -sS -T - -X POST https://gated.test/flow`, `curl -sS https://gated.test/new`, "gated.test", ""},
	{"inspected", "insp.test", `trickle | curl -sS -T - -X POST --cacert $T https://insp.test/flow`, `curl -sS --cacert $T https://insp.test/new`, "insp.test", ""},
	{"WebSocket", "ws.test", measures + `curl -sSN --http1.1 --cacert $T -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Key: eA==' -H 'Sec-WebSocket-Version: 13' https://ws.test/flow`,
		`curl -sS --cacert $T https://ws.test/new`, "ws.test", ""},
	{"route", "own.test", measures + `curl -sSN -H "X-Api-Key: $OWN_KEY" "$OWN_URL/v1/flow"`, `curl -sS -H "X-Api-Key: $OWN_KEY" "$OWN_URL/v1/new"`, "", revokeKept + revokeHub},
	{"push", "github.com", `line="$(printf '%040d' 0) $(printf 'a%.0s' $(seq 40)) refs/heads/agent/x"; ` +
		`(printf '%04x%s0000' $((${#line} + 4)) "$line"; head -c 100000 /dev/zero; trickle) | curl -sS -T - -X POST -H "X-Api-Key: $OWN_KEY" ` +
		`-H 'Content-Type: application/x-git-receive-pack-request' "${OWN_URL%own}github/org/one.git/git-receive-pack"`,
		`curl -sS -H "X-Api-Key: $OWN_KEY" "${OWN_URL%own}github/org/one.git/info/refs?service=git-receive-pack"`, "", revokeKept},
}

const (
	// measures marks what reads at the agent's side. It is not slowed down: it would read late what came before the denial.
	measures    = "MEASURES=yes "
	trickle     = `export T=/run/agent-init/trust.pem; trickle() { while printf more; do sleep 0.02; done; }; `
	revokeNames = "stays.test\ndirect.test:9443 direct\ndirect.test:9444 direct\ngated.test\ninsp.test POST /flow\ninsp.test GET /new\n" +
		"ws.test GET /flow websocket\nws.test GET /new\n*.flood.test:8443\n"
	revokeKey = "/run/secrets/own"
	// With a route taken out the variables of its own stay, and nothing answers there.
	revokeKept = "broker:\n  kept: {to: \"https://kept.test/\", credential: file:" + revokeKey + ", inject: {header: X-Api-Key}, allow: [GET /v1/**]}\n"
	revokeOwn  = "  own: {to: \"https://own.test/\", credential: file:" + revokeKey + ", inject: {header: X-Api-Key}, " +
		"allow: [GET /v1/**], env: {OWN_URL: \"{base}\", OWN_KEY: \"{token}\"}}\n"
	revokeHub    = "  github: {credential: file:" + revokeKey + ", git: write, repos: [org/*], branches: [agent/*]}\n"
	revokeLeases = 32_770
)

// revokeLoads are what the agent does meanwhile, by how the table names it.
var revokeLoads = []struct {
	name     string
	leases   bool
	flood    bool
	spinners int
}{
	{name: "nothing else"},
	{name: "32,770 leases", leases: true},
	{name: "a flood of questions", flood: true},
	{name: "half a processor, 16 spinners", spinners: 16},
	{name: "half a processor, 300 spinners", spinners: 300},
	{name: "32,770 leases and a flood", leases: true, flood: true},
	{name: "32,770 leases, 16 spinners", leases: true, spinners: 16},
	{name: "32,770 leases, 300 spinners", leases: true, spinners: 300},
	{name: "a flood, 16 spinners", flood: true, spinners: 16},
	{name: "a flood, 300 spinners", flood: true, spinners: 300},
}

// arrivals are when bytes and new requests last came to the far side, and how many, by host.
type arrivals struct {
	mu   sync.Mutex
	last map[string]time.Time
	n    map[string]int
}

func (a *arrivals) note(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[key] = time.Now()
	a.n[key]++
}

func (a *arrivals) of(key string) (time.Time, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last[key], a.n[key]
}

func (a *arrivals) take(key string, from io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if n > 0 {
			a.note(key)
		}
		if err != nil {
			return
		}
	}
}

// watch notes what comes to the agent: once its side is cut, the server may not hear of it.
func (a *arrivals) watch(key string, flow *lab.Process) {
	for said := 0; ; time.Sleep(time.Millisecond) {
		if n := len(flow.Stdout()); n > said {
			a.note(key)
			said = n
		}
		select {
		case <-flow.Done():
			return
		default:
		}
	}
}

// ServeHTTP answers what is asked anew. Of a flow it takes what comes, or says something again and again.
func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		a.take(r.Host, r.Body)
		return
	case !strings.HasSuffix(r.URL.Path, "/flow"):
		a.note(r.Host + " anew")
		return
	}
	say := func() error {
		_, err := io.WriteString(w, "tick\n")
		return errors.Join(err, http.NewResponseController(w).Flush())
	}
	if r.Header.Get("Upgrade") != "" {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
		say = func() error { _, err := io.WriteString(conn, "\x81\x05tick\n"); return err }
	}
	for tick := time.Tick(20 * time.Millisecond); say() == nil; {
		select {
		case <-tick:
		case <-r.Context().Done():
			return
		}
	}
}

// measureRevoke tells how long what was allowed goes on once it is denied.
func measureRevoke(b *bench) {
	b.report.heading("A denial: the last byte and the last new request after it")
	a := &arrivals{last: map[string]time.Time{}, n: map[string]int{}}
	for i, host := range []string{"insp.test", "ws.test", "own.test", "github.com", "kept.test"} {
		b.lab.DNS.SetAddrs(host, fmt.Sprintf("45.30.62.%d", i+1))
		b.lab.Web.Handle(host, a)
	}
	for _, host := range []string{"gated.test", "stays.test"} {
		b.lab.DNS.SetAddrs(host, "45.30.62.20")
		b.lab.Web.Handle(host, a)
	}
	b.lab.DNS.SetAddrs("direct.test", "45.30.62.30")
	b.lab.DNS.Set("*.leased.test", lab.Answer{Func: numbered})
	for port, key := range map[uint16]string{9443: "direct", 9444: "direct anew"} {
		b.lab.Claim("tcp", port)
		far, err := b.lab.Internet.Listen("tcp4", fmt.Sprintf("45.30.62.30:%d", port))
		if err != nil {
			b.Fatalf("%v", err)
		}
		b.Cleanup(func() { _ = far.Close() })
		go func() {
			for {
				c, err := far.Accept()
				if err != nil {
					return
				}
				if port == 9444 {
					a.note(key)
				}
				go a.take(key, c)
			}
		}()
	}
	for _, load := range revokeLoads {
		list := []byte(revokeNames)
		if load.leases {
			for n := range revokeLeases {
				list = fmt.Appendf(list, "n%d.leased.test:8443\n", n)
			}
		}
		box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Files: []lab.File{
			{Path: policyFile, Data: list}, {Path: "/etc/agent-init/policy.yaml", Data: []byte(revokeKept + revokeOwn + revokeHub)},
			{Path: revokeKey, Data: []byte("sk-revoke"), Mode: 0o400}, {Path: imageBundle, Data: b.lab.CA.PEM}}})
		p := b.runConfined(box)
		if load.leases {
			b.leased(box, revokeLeases)
		}
		// In the background, so that what is denied ends with its connection, and the loop goes on.
		for _, r := range revoked {
			flow := box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "bash", "-c", trickle + r.flow}})
			if strings.HasPrefix(r.flow, measures) {
				go a.watch(r.key, flow)
			}
			box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "bash", "-c", trickle + "while :; do " + r.loop + " >/dev/null; sleep 0.02; done"}})
			for _, key := range []string{r.key, r.key + " anew"} {
				_, before := a.of(key)
				b.until(key, func() bool { _, n := a.of(key); return n > before+3 })
			}
		}
		if load.flood {
			box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "sh", "-c", "while :; do poke dns -n 100000 -c 64 -timeout 1s 127.0.0.1:53 x{n}.flood.test A; done >/dev/null 2>&1"}})
		}
		denials := make([]*denial, len(revoked))
		for i, r := range revoked {
			denials[i] = b.prepares(box, r.deny, r.policy)
		}
		if load.spinners > 0 {
			box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "sh", "-c",
				fmt.Sprintf("for i in $(seq %d); do while :; do :; done & done; wait", load.spinners)}})
			time.Sleep(time.Second)
			b.slows(box, p)
		}
		time.Sleep(time.Second)
		var notes []string
		var worst time.Duration
		for i, r := range revoked {
			began := denials[i].begins(b)
			time.Sleep(2*revokeGoal + time.Second)
			last, _ := a.of(r.key)
			anew, _ := a.of(r.key + " anew")
			flow, request := max(0, last.Sub(began)), max(0, anew.Sub(began))
			notes = append(notes, fmt.Sprintf("%s %d/%d", r.what, flow.Milliseconds(), request.Milliseconds()))
			worst = max(worst, flow, request)
		}
		b.report.figure(load.name, ms(worst), "≤ 1 s").met(worst <= revokeGoal).note("%s", strings.Join(notes, ", "))
		b.Logf("%s: %s", load.name, strings.Join(notes, ", "))
		box.Kill()
	}
}

// until waits for what has to happen.
func (b *bench) until(what string, is func() bool) {
	for deadline := time.Now().Add(lab.Patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("%s does not begin", what)
		}
	}
}

// denial is a person's shell that is about to deny something.
type denial struct {
	box    *lab.Box
	shell  *lab.Process
	start  *os.File // a line begins it
	policy string   // put in place before
}

// prepares has a person's shell wait to deny a target or, for "", to load the policy without its routes. It is there before
// the box becomes short of processors, so that the person's command is short of them, too.
func (b *bench) prepares(box *lab.Box, target, policy string) *denial {
	command := "agent-init deny " + target
	if target == "" {
		command = "agent-init reload"
	}
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatalf("%v", err)
	}
	defer r.Close()
	b.Cleanup(func() { _ = w.Close() })
	shell := box.ExecStart(lab.Cmd{Input: r, Args: []string{"sh", "-c", "read -r begin; date +%s%N; " + command}})
	return &denial{box, shell, w, policy}
}

// begins denies, and returns when that began.
func (d *denial) begins(b *bench) time.Time {
	if d.policy != "" {
		if err := d.box.WriteFile("/etc/agent-init/policy.yaml", []byte(d.policy), 0o644); err != nil {
			b.Fatalf("%v", err)
		}
	}
	if _, err := fmt.Fprintln(d.start); err != nil {
		b.Fatalf("%v", err)
	}
	r := d.shell.Wait(lab.Patience)
	said, _, _ := strings.Cut(r.Stdout, "\n")
	began, err := strconv.ParseInt(said, 10, 64)
	if r.Code != 0 || err != nil {
		b.Fatalf("deny: %v, %s", err, r)
	}
	return time.Unix(0, began)
}

// slows leaves half a processor to all processes of a box: they are in a control group, and another one beside it, which is
// always busy, has the rest. A quota (cpu.max, docker run --cpus) would say the same. But with Linux 6.18 a process of the
// usual weight may not run for minutes there, if hundreds of the lowest are in its group: docs/policy.md.
func (b *bench) slows(box *lab.Box, p *lab.Process) {
	const top = "/sys/fs/cgroup"
	dir, file, one := filepath.Join(top, "cpu"), "cpu.shares", 1024
	if _, err := os.Stat(filepath.Join(top, "cgroup.controllers")); err == nil {
		dir, file, one = top, "cpu.weight", 100
		if err := os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			b.Fatalf("%v", err)
		}
	}
	group := func(name string, weight int) string {
		dir := filepath.Join(dir, "agent-init-bench-"+name+"-"+strconv.Itoa(p.Pid()))
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(weight)), 0)); err != nil {
			b.Fatalf("%v", err)
		}
		b.Cleanup(func() {
			box.Kill()
			for range 1000 {
				if unix.Rmdir(dir) == nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			b.Errorf("%s can't be removed", dir)
		})
		return filepath.Join(dir, "cgroup.procs")
	}
	procs := group("box", one)
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.Pid()))
	if err != nil {
		b.Fatalf("%v", err)
	}
	for range 2 { // for what was started meanwhile
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, proc := range all {
			environ, _ := os.ReadFile(proc + "/environ")
			if is, err := os.Readlink(proc + "/ns/pid"); err == nil && is == space && !strings.Contains(string(environ), measures[:len(measures)-1]) {
				_ = os.WriteFile(procs, []byte(filepath.Base(proc)), 0) // it may have ended
			}
		}
	}
	procs = group("rest", one*(2*runtime.NumCPU()-1))
	for range runtime.NumCPU() {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		err := busy.Start()
		if err == nil {
			go func() {
				<-p.Done()
				_ = busy.Process.Kill()
				_ = busy.Wait()
			}()
			err = os.WriteFile(procs, []byte(strconv.Itoa(busy.Process.Pid)), 0)
		}
		if err != nil {
			b.Fatalf("%v", err)
		}
	}
}
