package rig

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// ReloadWith has another policy.yaml read.
func (w *World) ReloadWith(policy string) lab.Result {
	w.Helper()
	Must(w.T, w.Box.WriteFile("/etc/agent-init/policy.yaml", []byte(policy), 0o644))
	return w.Root("agent-init", "reload")
}

// BrokerKey is the credential of the lab's route. No test but the API may see it.
const BrokerKey = "sk-ant-api03-canary-0123456789abcdefghijklmnopqrstuvwxyz"

// Brokered is a world with a route to the lab's model, and what the agent asks it by.
type Brokered struct {
	*World
	Model       *fakellm.Model
	Base, Token string
}

// Variable is one of the agent's.
func (b *Brokered) Variable(name string) string {
	b.Helper()
	show := `printf %s "$` + name + `"`
	r := b.Launch("sh", "-c", show).Wait(0)
	if b.Mode != "" { // somebody else starts the agent, and has it read a file
		r = b.Box.Exec(lab.Cmd{Args: []string{"sh", "-c", ". /run/agent-init/broker.env; " + show}, UID: lab.AgentUID})
	}
	if r.Code != 0 {
		b.Fatalf("%s: %s", name, r)
	}
	return r.Stdout
}

const Prompt = `{"model":"claude-sonnet-4-5","max_tokens":16,"messages":[{"role":"user","content":"hello"}]}`

// Prompt asks the model, with flags more.
func (b *Brokered) Prompt(flags ...string) lab.Poke {
	b.Helper()
	args := append([]string{"http", "-timeout", "30s", "-method", "POST", "-body", Prompt, "-header", "content-type: application/json", "-header", "anthropic-version: 2023-06-01"}, flags...)
	return b.Poke(append(args, b.Base+"/v1/messages")...)
}

func (b *Brokered) Ask() []string { return []string{"-header", "authorization: Bearer " + b.Token} }

// Brokers are the live brokers of the box, which should be one.
func (b *Brokered) Brokers() []Inmate {
	return slices.DeleteFunc(Inmates(b.T, b.Agent), func(p Inmate) bool { return !strings.HasSuffix(p.Args, " broker") })
}

// Process waits for the one broker that there should be.
func (b *Brokered) Process() Inmate {
	b.Helper()
	var all []Inmate
	if !Eventually(20*time.Second, func() bool { all = b.Brokers(); return len(all) == 1 }) {
		b.Fatalf("there are %d brokers: %v", len(all), all)
	}
	return all[0]
}

// Turned runs an operation as the broker would, if it were taken over: with its user and its group.
func (b *Brokered) Turned(who Inmate, args ...string) lab.Poke {
	b.Helper()
	r := b.Box.Exec(lab.Cmd{Args: append([]string{"/usr/local/bin/poke"}, args...), UID: who.Uid, GID: who.Gid})
	p, err := lab.ParsePoke(r.Stdout)
	if err != nil {
		b.Fatalf("poke %v: %v: %s", args, err, r)
	}
	return p
}

// Actor is a proxy of the test's own, in the place of the corporation's.
type Actor struct {
	Mu    sync.Mutex
	says  func(net.Conn, *http.Request) // what it does with a request
	asked []string
	Shown []string // what it was shown as a credential, each once
}

func (a *Actor) Plays(says func(net.Conn, *http.Request)) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.says = says
}

func (a *Actor) Requests() []string {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return slices.Clone(a.asked)
}

// Act has an actor listen where the proxy is.
func Act(t *testing.T, l *lab.Lab) *Actor {
	t.Helper()
	l.Claim("tcp", SquidPort)
	listener, err := l.Internet.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(SquidAddr), SquidPort).String())
	Must(t, err)
	t.Cleanup(func() { listener.Close() })
	a := &Actor{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				a.Mu.Lock()
				a.asked = append(a.asked, r.Method+" "+r.Host)
				a.Shown = append(a.Shown, r.Header.Get("Proxy-Authorization"))
				says := a.says
				a.Mu.Unlock()
				says(conn, r)
			}()
		}
	}()
	return a
}

// Tells is a proxy that answers with a text, and closes.
func Tells(text string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	}
}

// The corporation's proxy, in the lab's internet. Its name has a private address, as such proxies have.
const (
	SquidAddr = "10.77.0.8"
	SquidPort = 3128
	SquidName = "proxy.corp.test"
)

// squidDefaults are the rules of Debian's squid.conf, with its own network let in.
const squidDefaults = `acl localnet src 172.30.0.0/16
acl SSL_ports port 443
acl Safe_ports port 80 21 443 70 210 1025-65535 280 488 591 777
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access deny manager
`

// Corporate is a world behind a proxy.
type Corporate struct {
	*World
	Dir string // of the proxy
}

// InInternet starts a real server in the lab's internet, and waits for it to listen on the proxy's port.
func InInternet(t *testing.T, l *lab.Lab, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("AGENT_INIT_MUST_RUN") != "" {
			t.Fatalf("%s is not there: test/prepare.sh all", program)
		}
		t.Skipf("%s is not there", program)
	}
	l.Claim("tcp", SquidPort)
	var out strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	Must(t, l.Internet.Start(cmd))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		<-ended
	})
	listens := func() bool {
		conn, err := l.Internet.Dial(t.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(SquidAddr), SquidPort).String(), netip.AddrPort{})
		if err == nil {
			conn.Close()
		}
		return err == nil || len(ended) > 0
	}
	if !Eventually(lab.Patience, listens) || len(ended) > 0 {
		t.Fatalf("%s does not listen: %s", program, out.String())
	}
}

// Squid starts Debian's squid, with rules before the one that lets the lab's boxes in.
func Squid(t *testing.T, l *lab.Lab, rules string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	Must(t, os.Chmod(dir, 0o777))
	conf := fmt.Sprintf("http_port %d\n%s%shttp_access allow localnet\nhttp_access deny all\ncache deny all\npid_filename none\n"+
		"access_log stdio:%s/access.log\ncache_log %[4]s/cache.log\ncoredump_dir %[4]s\ndns_nameservers %[5]s\nshutdown_lifetime 0 seconds\n",
		SquidPort, squidDefaults, rules, dir, lab.Upstream4)
	Must(t, os.WriteFile(filepath.Join(dir, "squid.conf"), []byte(conf), 0o644))
	for up := dir; up != filepath.Clean(os.TempDir()); up = filepath.Dir(up) { // it is another user's
		if info, err := os.Stat(up); err == nil {
			_ = os.Chmod(up, info.Mode().Perm()|0o011)
		}
	}
	InInternet(t, l, "/usr/sbin/squid", "-N", "-f", filepath.Join(dir, "squid.conf"))
	return dir
}

// Asked are the requests that the proxy's log has, METHOD TARGET STATUS.
func (c *Corporate) Asked() (all []string) {
	data, _ := os.ReadFile(filepath.Join(c.Dir, "access.log"))
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 6 {
			_, status, _ := strings.Cut(f[3], "/")
			all = append(all, f[5]+" "+f[6]+" "+status)
		}
	}
	return all
}

// OnlyByProxy fails the test if something went past the proxy.
func (c *Corporate) OnlyByProxy() {
	c.Helper()
	c.onlyByProxyBut(func(*lab.Packet) bool { return false })
}

func (c *Corporate) onlyByProxyBut(straight func(*lab.Packet) bool) {
	c.Helper()
	c.Sealed(func(p *lab.Packet) bool {
		return p.DstPort != 53 && (p.Dst.String() != SquidAddr || p.DstPort != SquidPort) && !straight(p)
	})
}

const ByProxy = "upstream_proxy: http://proxy.corp.test:3128\n"

// ProxySecret is what the proxy takes. Nobody but the broker may have it.
const ProxySecret = "canary-of-the-proxy-0123456789"
