package inspect

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// wellPatient has nothing wrong.
func wellPatient(t *testing.T) patient {
	at := time.Date(2026, 1, 2, 4, 4, 5, 0, time.UTC)
	s := state.State{
		Phase: state.PhaseReady, Mode: "run", Keeper: state.Self(), Published: at, Firewall: state.Firewall{Backend: "nftables", Verified: at},
		Guard: state.Guard{OK: true}, DNS: state.DNS{Servers: []string{"192.0.2.53:53"}, Needed: true, Asked: 40}, SelfTest: &state.SelfTest{OK: true, Time: at}, Audit: state.Audit{File: "/var/log/agent-init/audit.jsonl"},
	}
	return patient{
		now: s.Published, state: &s, bounding: 1<<12 | 1<<7 | 1<<6 | 1<<8, noNewPrivs: true, groups: 65436,
		addrs6: 1, loopback6: true, route6: true, dir: "/etc/agent-init", policy: parsePolicy(t, "domains: [ok.example]"),
		newest: s.Published.Add(-time.Hour), newestFile: "/etc/hosts", servers: []string{"192.0.2.53:53"},
	}
}

func TestDoctorWell(t *testing.T) {
	d := examine(wellPatient(t))
	for _, f := range d.Findings {
		if f.Result != passes || f.Fix != "" || f.Detail == "" {
			t.Errorf("%+v", f)
		}
	}
	if !d.OK || len(d.Findings) < 12 {
		t.Errorf("%d findings", len(d.Findings))
	}
	golden.JSON(t, "doctor.golden.json", d)
}

// TestDoctorFinds: each ailment is found, by that name, with a fix.
func TestDoctorFinds(t *testing.T) {
	for name, tc := range map[string]struct {
		ail          func(p *patient)
		check, level string
		says, fix    string
	}{
		"no NET_ADMIN":    {func(p *patient) { p.bounding &^= 1 << 12 }, "capabilities", fails, "NET_ADMIN is missing", "cap_add: [NET_ADMIN]"},
		"no SETPCAP":      {func(p *patient) { p.bounding &^= 1 << 8 }, "capabilities", fails, "SETPCAP", "--cap-add=SETPCAP"},
		"NET_RAW":         {func(p *patient) { p.bounding |= 1 << 13 }, "capabilities", warns, "NET_RAW", "cap_drop: [ALL]"},
		"privileged":      {func(p *patient) { p.bounding = 1<<41 - 1 }, "capabilities", warns, "SYS_ADMIN", "no --privileged"},
		"no no-new-privs": {func(p *patient) { p.noNewPrivs = false }, "privileges", warns, "setuid", "allowPrivilegeEscalation: false"},
		"one group":       {func(p *patient) { p.groups = 1 }, "groups", warns, "uid alone", "subgid"},
		"not running":     {func(p *patient) { p.state = nil }, "agent-init", fails, "has not confined", "agent-init run"},
		"degraded":        {func(p *patient) { p.state.Policy.Fault = "x\na.txt:1:1: bad" }, "agent-init", fails, "a.txt:1:1: bad", "status"},
		"monitor":         {func(p *patient) { p.state.Monitor = true }, "agent-init", fails, "NOT CONFINED", "status"},
		"kernel": {func(p *patient) {
			p.state = nil
			p.probe = func() (string, error) { return "", errors.New("no nf_tables") }
		}, "kernel", fails, "no nf_tables", "Linux 5.6"},
		"hostile PATH":       {func(p *patient) { p.program = fault.New(78, container.PathRemedy, "/go/bin is writable") }, "program", fails, "/go/bin", "ENV PATH="},
		"host network":       {func(p *patient) { p.network = errors.New("the host's") }, "network", fails, "the host's", "hostNetwork: false"},
		"host processes":     {func(p *patient) { p.processes = "the machine's" }, "processes", fails, "the machine's", "hostPID: false"},
		"legacy tables":      {func(p *patient) { p.legacyTables = []string{"filter"} }, "iptables", warns, "filter", "iptables-legacy"},
		"no ip6tables":       {func(p *patient) { p.state.Firewall.Backend = "xtables-legacy" }, "iptables", fails, "ip6tables is missing", "install iptables"},
		"no ::1":             {func(p *patient) { p.loopback6 = false }, "IPv6", warns, "half up", "disable_ipv6"},
		"no route":           {func(p *patient) { p.route6 = false }, "IPv6", warns, "no way out", "disable_ipv6"},
		"saved nowhere":      {func(p *patient) { p.fleeting = []string{"no volume"} }, "policy", warns, "gone with this container", "-v NAME:/var/lib/agent-init"},
		"writable policy":    {func(p *patient) { p.policyErr = fault.New(78, "chown it", "allowlist.txt: belongs to the agent") }, "policy", fails, "belongs to the agent", "chown it"},
		"policy in the work": {func(p *patient) { p.dir = "/workspace/.agent-init" }, "policy", fails, "inside the workspace", "/etc/agent-init"},
		"a key":              {func(p *patient) { p.keys = keysIn(map[string]string{"OPENAI_API_KEY": "sk-x", "HOME": "/"}, nil) }, "keys", warns, "OPENAI_API_KEY is in the agent's environment: all", "broker: {openai: {credential: file:/run/secrets/openai}}"},
		"a key and its API": {func(p *patient) {
			p.keys, p.inForce = keysIn(map[string]string{"ANTHROPIC_AUTH_TOKEN": "sk-x"}, nil), parsePolicy(t, "domains: [api.anthropic.com]")
		}, "keys", warns, "ANTHROPIC_AUTH_TOKEN is in the agent's environment, and policy.yaml:1 allows api.anthropic.com", "the route anthropic"},
		"a key, and a route that is absent": {func(p *patient) {
			p.keys = keysIn(map[string]string{"GEMINI_API_KEY": "AIza"}, []policy.RouteEntry{{Route: route.Route{Env: map[string]string{"GEMINI_API_KEY": "{token}"}}, Absent: true}})
		}, "keys", warns, "GEMINI_API_KEY", "the route gemini"},
		"a broker that nobody uses": {func(p *patient) {
			p.state.Started, p.state.Broker = p.now.Add(-time.Hour), state.Broker{UID: 9, OK: true, Routes: []state.Route{{Name: "openai"}}}
		}, "broker", warns, "nobody has asked it in 1h", "agent-init explain"},
		"a broker that refuses": {func(p *patient) {
			p.state.Broker = state.Broker{UID: 9, OK: true, Routes: []state.Route{{Name: "openai", Refusals: 3}}}
		}, "broker", warns, "all of 3 requests", "agent-init log"},
		"a credential that was not taken": {func(p *patient) {
			p.state.Broker = state.Broker{UID: 9, OK: true, Routes: []state.Route{{Name: "openai", Source: "file:/k", Requests: 3, Fault: "/k is empty"}}}
		}, "broker", warns, "/k is empty", "file:/k"},
		"a list of its own": {func(p *patient) {
			p.inForce, p.trusts = parsePolicy(t, "domains: [a.example read]"), trustingBy(map[string]string{"SSL_CERT_FILE": "/run/agent-init/trust.pem", "PIP_CERT": "/etc/corp.pem"})
		}, "inspected", warns, "PIP_CERT names a list of its own", "authority.pem"},
		"a trust store of its own": {func(p *patient) {
			p.inForce, p.trusts = parsePolicy(t, "domains: [a.example read]"), trustingBy(map[string]string{"SSL_CERT_FILE": "/run/agent-init/trust.pem", "JAVA_TOOL_OPTIONS": "-Dx -Djavax.net.ssl.trustStore=/opt/store -Dy=trust.jks"})
		}, "inspected", warns, "JAVA_TOOL_OPTIONS names a list of its own", "authority.pem"},
		"inspected since": {func(p *patient) {
			p.inForce, p.trusts = parsePolicy(t, "domains: [a.example read]"), trustingBy(map[string]string{"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"})
		}, "inspected", warns, "started while no name was inspected", "start the container again"},
		"a pin": {func(p *patient) {
			p.inForce, p.trusts = parsePolicy(t, "domains: [a.example read]"), trusting{refused: map[string]uint64{"a.example": 3, "b.example": 1}}
		}, "inspected", warns, "4 connections to a.example, b.example: the program did not accept", "docs/certificates.md"},
		"docker.sock":     {func(p *patient) { p.sockets = []string{"/var/run/docker.sock"} }, "mounts", fails, "root on the machine", "-v /var/run/docker.sock"},
		"ssh-agent":       {func(p *patient) { p.sockets = []string{"/tmp/ssh-XXX/agent.7"} }, "mounts", warns, "sign in as you", "ssh-add -c"},
		"clock behind":    {func(p *patient) { p.newest = p.now.Add(time.Hour) }, "clock", fails, "is behind", "clock"},
		"no DNS server":   {func(p *patient) { p.servers = nil }, "DNS", fails, "no upstream", "--dns"},
		"broken DNS":      {func(p *patient) { p.state.DNS.Asked, p.state.DNS.Failed = 10, 9 }, "DNS", fails, "9 of 10", "dnsConfig"},
		"intercepted DNS": {func(p *patient) { p.strippedNames = 2 }, "DNS", warns, "2 names", "private"},
		"DoH tried":       {func(p *patient) { p.deniedNames = []string{"dns.google", "x.example"} }, "DoH", warns, "dns.google", "turn it off"},
		"DoH allowed":     {func(p *patient) { p.policy = parsePolicy(t, "domains: [dns.google]") }, "DoH", warns, "policy.yaml:1", "remove it"},
		"log is lost":     {func(p *patient) { p.state.Audit.Fault = "disk full" }, "audit log", fails, "disk full", "make room"},
		"log on tmpfs":    {func(p *patient) { p.state.Audit.File = "/dev/shm/agent-init/log/audit.jsonl" }, "audit log", warns, "gone with", "volume"},
	} {
		t.Run(name, func(t *testing.T) {
			p := wellPatient(t)
			tc.ail(&p)
			d := examine(p)
			for _, f := range d.Findings {
				if f.Check == tc.check && f.Result == tc.level && strings.Contains(f.Detail, tc.says) && strings.Contains(f.Fix, tc.fix) {
					if d.OK != (tc.level != fails) {
						t.Errorf("the verdict is %v", d.OK)
					}
					return
				}
			}
			t.Errorf("not found in %+v", d.Findings)
		})
	}
}

// TestDoctorPassesInspected: a broker that only looks into connections is asked nothing by a route.
func TestDoctorPassesInspected(t *testing.T) {
	p := wellPatient(t)
	p.inForce = parsePolicy(t, "domains: [a.example read, 'b.example:80 read']")
	p.trusts = trustingBy(map[string]string{"SSL_CERT_FILE": "/run/agent-init/trust.pem", "JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=/run/agent-init/trust.jks -Dx"})
	p.state.Started, p.state.Broker = p.now.Add(-time.Hour), state.Broker{UID: 9, OK: true}
	found := false
	for _, f := range examine(p).Findings {
		found = found || f.Check == "inspected" && strings.HasPrefix(f.Detail, "2 names with a port; programs know the certificate")
		if f.Result != passes {
			t.Errorf("%+v", f)
		}
	}
	if !found {
		t.Error("no word about inspected names")
	}
	for _, tc := range []struct {
		e    audit.Event
		want bool
	}{
		{audit.Event{Kind: audit.Broker, Name: "a.example", Reason: "client: no"}, true},
		{audit.Event{Kind: audit.Broker, Name: "a.example", Reason: "gone: no"}, false},
		{audit.Event{Kind: audit.Broker, Name: "a.example", Method: "GET", Reason: "client: no"}, false},
		{audit.Event{Kind: audit.Broker, Name: "a.example", Reason: "protocol: no"}, false},
		{audit.Event{Kind: audit.Broker, Route: "npm", Reason: "client: no"}, false},
	} {
		if got := distrusts(tc.e); got != tc.want {
			t.Errorf("%+v: %v", tc.e, got)
		}
	}
}

// TestDoctorPassesTheBroker: what a present route sets is a token, and no key.
func TestDoctorPassesTheBroker(t *testing.T) {
	p := wellPatient(t)
	env := map[string]string{"ANTHROPIC_AUTH_TOKEN": "sk-ant-token", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1/anthropic", "PATH": "/bin"}
	p.policy = parsePolicy(t, "broker: {anthropic: }")
	p.keys = keysIn(env, p.policy.RouteEntries())
	p.state.Broker = state.Broker{UID: 9, OK: true, Routes: []state.Route{{Name: "anthropic", Requests: 7, Refusals: 1}}}
	for _, f := range examine(p).Findings {
		if f.Result != passes || f.Check == "broker" && f.Detail != "7 requests passed, 1 refused" {
			t.Errorf("%+v", f)
		}
	}
}

// TestDoctorBlamesNoKernel: where NET_ADMIN is missing, the kernel's no is about that.
func TestDoctorBlamesNoKernel(t *testing.T) {
	p := wellPatient(t)
	p.state, p.bounding = nil, p.bounding&^(1<<unix.CAP_NET_ADMIN)
	p.probe = func() (string, error) { return "", unix.EPERM }
	var d Diagnosis
	checkKernel(&d, p)
	f := d.Findings
	if len(f) != 1 || f[0].Result != warns || !strings.Contains(f[0].Detail, "without NET_ADMIN") || strings.Contains(f[0].Fix, "Linux") {
		t.Errorf("%+v", f)
	}
}

func TestExplainGolden(t *testing.T) {
	p := publishedWith(t, "ok.example\n", nil)
	x, _ := explained(t, p, "new.example:443")
	golden.JSON(t, "explain.golden.json", x)
}
