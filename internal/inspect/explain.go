package inspect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

type subject struct {
	name string
	addr netip.Addr
	port policy.Port // zero: not said
	path string      // of a URL, "" if there is none
	request
	here bool // a port of this container, and nothing else
}

func (s subject) String() string {
	if s.addr.IsValid() {
		return s.addr.String()
	}
	return s.name
}

var schemePorts = map[string]string{"https": "443", "wss": "443", "http": "80", "ws": "80", "ssh": "22", "git": "9418", "ftp": "21", "git+ssh": "22"}

func parseSubject(s string) (subject, error) {
	var out subject
	if n, err := strconv.ParseUint(s, 10, 16); err == nil && n > 0 {
		return subject{port: policy.Port{Proto: policy.TCP, Number: uint16(n)}, here: true}, nil
	}
	host, port := s, ""
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" {
			return out, fmt.Errorf("%q is no URL with a host", s)
		}
		host, port = u.Hostname(), cmp.Or(u.Port(), schemePorts[strings.ToLower(scheme)])
		out.path = strings.TrimSuffix(u.EscapedPath(), "/")
		out.request = request{scheme: strings.ToLower(scheme), path: u.EscapedPath(), query: u.RawQuery}
	} else if _, err := netip.ParseAddr(s); err != nil {
		if i := strings.LastIndexByte(s, ':'); i >= 0 {
			host, port = s[:i], s[i+1:]
		}
		host = strings.Trim(host, "[]")
	}
	if port != "" {
		number, proto, _ := strings.Cut(port, "/")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || proto != "" && proto != "tcp" && proto != "udp" {
			return out, fmt.Errorf("%q is no port", port)
		}
		out.port = policy.Port{Proto: policy.TCP, Number: uint16(n)}
		if proto == "udp" {
			out.port.Proto = policy.UDP
		}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		out.addr = a.Unmap().WithZone("")
		return out, nil
	}
	out.name = strings.ToLower(strings.TrimSuffix(host, "."))
	// What is no name can't be asked for, so nothing can be said about it.
	if line, err := policy.ParseLine(out.name, nil); err != nil || strings.ContainsAny(out.name, "*!@#/ \t") || out.name[0] == '-' || line.Deny {
		return subject{}, fmt.Errorf("%q is no host name", host)
	}
	return out, nil
}

// ExplainText is what explain prints.
func ExplainText(dir, method, target string) (string, error) {
	r, err := Explain(dir, method, target)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = r.Write(&b, false)
	return b.String(), err
}

// Explain says why target is allowed or denied: by what a keeper has published, else by the files in dir. With a method,
// target is a URL.
func Explain(dir, method, target string) (Report, error) {
	s, err := parseSubject(target)
	if err != nil {
		return nil, fault.New(fault.Usage, "give HOST, HOST:PORT, a URL, or a PORT of this container", "%w", err)
	}
	if s.request.method = method; method != "" && s.request.path == "" {
		return nil, fault.New(fault.Usage, "agent-init explain GET https://api.example.com/v1/items", "behind a method stands a URL with a path: %q has none", target)
	}
	p, err := readPublished(dir)
	if err != nil {
		return nil, err
	}
	if !s.here {
		return explainSubject(p, s, time.Now()), nil
	}
	var uid uint32
	if p.state != nil {
		uid = p.state.Agent.UID
	}
	r := explainInbound(s.port.Number, p.inbound, firewall.ListeningPorts(uid))
	r.dir = p.dir
	return r, nil
}

type explanation struct {
	Version int             `json:"version"`
	Target  string          `json:"target"` // the name or address
	State   string          `json:"state"`  // confined, or why what follows is not what holds
	Allowed bool            `json:"allowed"`
	Monitor bool            `json:"monitor,omitempty"` // what is denied is let through, and logged
	Phase   string          `json:"phase,omitempty"`   // setup, run or verify, where phases are configured
	Ports   []portVerdict   `json:"ports"`
	Leases  []lease.Address `json:"leases"`
	Hosts   []netip.Addr    `json:"hosts,omitempty"`    // addresses of the hosts file
	DNS     string          `json:"dns,omitempty"`      // why it can't be looked up now
	AskedAs []string        `json:"asked_as,omitempty"` // the full names that a short one is looked for by, in order
	Denied  denials         `json:"denied"`
	Broker  []brokered      `json:"broker,omitempty"` // routes to the target
	ToAllow *instruction    `json:"to_allow,omitempty"`
	Request *grant.Grant    `json:"request,omitempty"`         // the agent's last about it
	Grant   uint32          `json:"denied_by_grant,omitempty"` // that a person made, and can end
	Unknown string          `json:"unknown,omitempty"`         // why it can't be told whether it was denied

	now    time.Time // when it was asked
	unless string    // confined: what holds instead, see state.State.Word
}

type portVerdict struct {
	Port    policy.Port `json:"port"`
	Allowed bool        `json:"allowed"`
	Reason  string      `json:"reason"`
	Rule    string      `json:"rule,omitempty"` // file:line
	Text    string      `json:"text,omitempty"` // of the rule
	Preset  string      `json:"preset,omitempty"`
	Gate    string      `json:"gate,omitempty"` // what is looked at when it is used

	Requests *requests   `json:"requests,omitempty"` // of an inspected name
	Ceiling  *policy.Cut `json:"ceiling,omitempty"`  // why no entry would allow it
}

type instruction struct {
	Line string `json:"line"`
	File string `json:"file"`
}

type denials struct {
	Count uint64        `json:"count"`
	First time.Time     `json:"first,omitzero"`
	Last  []audit.Event `json:"last"` // the latest, oldest first

	ahead  []audit.Event // addresses that the guard took out of an answer before the agent asked
	absent time.Time     // when servers said last that there is no such name, if they have said nothing else since
}

const shownDenials = 3 // of the last

func explainSubject(p published, s subject, now time.Time) explanation {
	e := explanation{Version: 1, now: now, Allowed: true, Leases: []lease.Address{}, Denied: denials{Last: []audit.Event{}}}
	e.State, e.unless = p.state.Word()
	if p.state != nil {
		e.Monitor, e.Phase = p.state.Monitor, p.state.Policy.Phase
	}
	ports := []policy.Port{policy.HTTPS, policy.HTTP}
	s = p.behindBroker(s)
	if !s.addr.IsValid() {
		s.name = cmp.Or(p.policy.Lookup(s.name).Name, s.name)
		if open := p.policy.Ports(s.name); len(open) > 0 {
			ports = open
		} else if through := p.portsOfRoutes(s); len(through) > 0 {
			ports = through
		}
		for _, n := range p.leases.Names {
			for _, a := range n.Addrs {
				if n.Name == s.name && a.Expires.After(now) {
					e.Leases = append(e.Leases, a)
				}
			}
		}
		e.Hosts = p.policy.Hosts(s.name)
		if asked := p.policy.Asked(s.name); len(asked) > 1 && len(e.Hosts) == 0 && p.policy.Lookup(s.name).Allowed {
			e.AskedAs = asked
		}
	}
	if s.port.Number != 0 {
		ports = []policy.Port{s.port}
	}
	e.Target = s.String()
	for _, port := range ports {
		v := judgePort(p.policy, s, port, len(e.Hosts) > 0)
		e.Allowed = e.Allowed && v.Allowed
		e.Ports = append(e.Ports, v)
	}
	if !e.Allowed {
		e.Request, e.Grant = requestAbout(p.grants, s), denialOf(p.grants, e.Ports)
	}
	if _, stands := p.policy.StandIn(s.name); p.state != nil && s.name != "" && e.Allowed && len(e.Hosts) == 0 && !stands && e.Ports[0].Rule != "" {
		e.DNS = p.state.DNS.Trouble(now)
	}
	e.Broker = p.brokered(s)
	file, _ := auditOf(p.state)
	err := e.Denied.read(file, s, p.probe)
	if err != nil && (p.state != nil || !errors.Is(err, fs.ErrNotExist)) { // else nothing was ever denied here
		e.Unknown = err.Error()
	}
	if at := e.Denied.absent; !at.IsZero() && e.DNS == "" && e.Allowed && len(e.Leases)+len(e.Hosts) == 0 {
		e.DNS = "no server knows the name (" + text.Moment(at, now) + ")"
	}
	if line := e.lineFor(p.policy, s); line != "" {
		e.ToAllow = &instruction{Line: line, File: p.dir + "/allowlist.txt"}
	}
	return e
}

func judgePort(p *policy.Policy, s subject, port policy.Port, hosts bool) portVerdict {
	if s.addr.IsLoopback() || s.name == "localhost" || strings.HasSuffix(s.name, ".localhost") {
		return portVerdict{Port: port, Allowed: true, Reason: "the container's own loopback is free", Gate: "nothing"}
	}
	d := p.Decide(s.name, port)
	if s.addr.IsValid() {
		d = p.DecideAddr(s.addr, port)
	}
	v := portVerdict{Port: port, Allowed: d.Allowed, Reason: d.Reason}
	if d.Rule != nil {
		v.Rule, v.Text, v.Preset = d.Rule.Source.String(), d.Rule.String(), d.Rule.Preset
	}
	switch {
	case !d.Allowed:
		v.Ceiling = p.Stops(s.name, s.addr, port)
	case s.addr.IsValid():
		v.Gate = "nothing: an entry that names an address passes by address and port"
	case hosts && p.Way(s.name, port) != policy.Inspected:
		v.Gate = "nothing: its address in the hosts file passes by address and port"
	default:
		v.Gate, v.Requests = gate(p, s, port, d.Rule), judgeRequests(p, s, port)
		v.refuse()
	}
	return v
}

// lineFor is the entry that would allow what is denied, "" if none would.
func (e explanation) lineFor(p *policy.Policy, s subject) string {
	denied := slices.IndexFunc(e.Ports, func(v portVerdict) bool { return !v.Allowed })
	switch {
	case denied >= 0 && e.Ports[denied].Requests != nil:
		v := e.Ports[denied]
		if v.Rule != "" {
			return ""
		}
		return requestLine(p, s, v.Port, v.Requests.refused())
	case denied >= 0 && s.addr.IsValid():
		return p.LineForAddr(s.addr, e.Ports[denied].Port)
	case denied >= 0:
		port := e.Ports[denied].Port
		if s.request.web() && slices.ContainsFunc(p.Ports(s.name), func(other policy.Port) bool { return p.Way(s.name, other) == policy.Inspected }) {
			return requestLine(p, s, port, &asked{Method: cmp.Or(s.request.method, commonMethods[0]), Path: s.request.path})
		}
		return p.LineFor(s.name, netip.Addr{}, port)
	case s.addr.IsValid() || len(e.Leases) > 0:
		return ""
	}
	// It is allowed, but what it resolves to is not.
	for _, d := range append(e.Denied.ahead, e.Denied.Last...) {
		a, err := netip.ParseAddr(d.IP)
		if err == nil && d.Kind == audit.DNS {
			if line := p.LineForAnswer(s.name, a); line != "" {
				return line
			}
		}
	}
	return ""
}

func (d *denials) read(file string, s subject, probe ofProbe) error {
	want := s.String()
	return audit.Lines(file, func(line []byte) bool {
		if !bytes.Contains(line, []byte(want)) {
			return true
		}
		e, err := audit.Decode(line)
		if err == nil && e.Asker == audit.ByGuard && e.Kind == audit.DNS && e.IP != "" && e.Name == s.name && len(d.ahead) < shownDenials {
			d.ahead = append(d.ahead, e)
		}
		if err == nil && e.Kind == audit.DNS && e.Verdict == audit.Allow && e.Name == want {
			if d.absent = (time.Time{}); strings.Contains(e.Reason, audit.NoSuchName) {
				d.absent = e.Time
			}
		}
		about := e.Name
		if s.addr.IsValid() {
			about = e.IP
		}
		if err != nil || about != want || !probe.theAgents(e) || e.Kind == audit.Grant || s.port.Number != 0 && e.Port != 0 && e.Port != s.port.Number {
			return true
		}
		if d.Count += 1 + e.Suppressed; d.First.IsZero() {
			d.First = e.Time
		}
		if len(d.Last) == shownDenials {
			d.Last = slices.Delete(d.Last, 0, 1)
		}
		d.Last = append(d.Last, e)
		return true
	})
}

// Write shows the explanation; what it quotes may be the agent's own words.
func (x explanation) Write(out io.Writer, coloured bool) error {
	w := &text.Screen{W: out}
	if x.unless != "" {
		w.Line("%s", painted(x.unless, "31", coloured))
	}
	for _, v := range x.Ports {
		verdict := painted("denied", "31", coloured)
		if v.Allowed {
			verdict = painted("allowed", "32", coloured)
		}
		switch {
		case !v.Allowed && v.Rule == "" && x.reached():
			verdict = painted(v.Reason, "32", coloured)
		case !v.Allowed || v.Rule == "": // which says why
			verdict += ", " + v.Reason
		}
		w.Line("%s %s: %s", text.Clean(x.Target), v.Port, verdict)
		if v.Rule != "" {
			rule := v.Rule + "  " + v.Text
			if v.Preset != "" {
				rule += "  (@" + v.Preset + ")"
			}
			w.Row("rule", "%s", rule)
		}
		if v.Ceiling != nil {
			if v.Ceiling.Source.File != "" {
				w.Row("entry", "%v  %s", v.Ceiling.Source, v.Ceiling.Text)
			}
			w.Row("ceiling", "%s", v.Ceiling)
		}
		if v.Gate != "" {
			w.Row("checked", "%s", v.Gate)
		}
		v.Requests.write(w)
	}
	for _, b := range x.Broker {
		b.write(w)
	}
	if x.Phase != "" {
		w.Row("phase", "%s", x.Phase)
	}
	if x.Monitor && !x.Allowed {
		w.Row("MONITOR", "it is let through all the same, and logged; --mode enforce would deny it")
	}
	for _, a := range x.Hosts {
		w.Row("hosts", "%s, from the hosts file", a)
	}
	for _, l := range x.Leases {
		on := l.On
		if l.Direct != "" {
			on += " (" + l.Direct + " past the gate)"
		}
		w.Row("lease", "%s on %s, opened %s, for %s more", l.Addr, on, text.Ago(l.Since), text.Shortly(l.Expires.Sub(x.now)))
	}
	if x.AskedAs != nil {
		w.Row("asked as", "%s: the first that exists", strings.Join(x.AskedAs, ", "))
	}
	if x.DNS != "" {
		w.Row("dns", "%s", painted(text.Clean(x.DNS), "31", coloured))
	}
	if x.Allowed && len(x.Leases) == 0 && len(x.Hosts) == 0 && len(x.Ports) > 0 && x.Ports[0].Allowed {
		w.Row("lease", "none: its addresses open when it is looked up")
	}
	switch {
	case x.Unknown != "":
		w.Row("log", "can't be read: %s", x.Unknown)
	case x.Denied.Count > 0:
		w.Row("denied", "%s since %s; the last:", text.Times(x.Denied.Count), text.Moment(x.Denied.First, x.now))
		for _, e := range x.Denied.Last {
			w.Line("             %s", eventLine(e, x.now, whatWidth(0), coloured))
		}
	}
	if x.Denied.Count > 0 && x.reached() {
		w.Row("", "that is harmless if the program went on: some ask their usual host at the start; else it is not pointed at the broker")
	}
	if x.Request != nil {
		w.Row("asked", "%s", x.Request.Standing())
	}
	x.writeWays(w)
	return w.Err
}

// writeWays says what would allow it, and who may.
func (x explanation) writeWays(w *text.Screen) {
	if x.ToAllow != nil {
		w.Row("to allow it", "add this line to %s:", x.ToAllow.File)
		w.Line("  %s", x.ToAllow.Line)
		w.Row("for a while", "agent-init allow %s --for 10m    (root)", quoted(x.ToAllow.Line))
		w.Row("for good", "agent-init allow %s --save    (root)", quoted(x.ToAllow.Line))
		w.Row("to ask", "agent-init request %s --reason …    (the agent)", quoted(x.ToAllow.Line))
	} else if !x.Allowed && !x.reached() {
		way := "nothing does: it is never allowed"
		if _, err := netip.ParseAddr(x.Target); err != nil {
			way = "no line does beside the entries that there are"
		}
		if slices.ContainsFunc(x.Ports, func(v portVerdict) bool { return v.Requests.refused() != nil }) {
			way = "no entry could name it: ask for it in another way"
		}
		if i := slices.IndexFunc(x.Ports, func(v portVerdict) bool { return !v.Allowed && v.Rule != "" }); i >= 0 {
			way = "take out what denies it, at " + x.Ports[i].Rule
		}
		if slices.ContainsFunc(x.Ports, func(v portVerdict) bool { return v.Ceiling != nil }) {
			way = "nothing here does: ask whoever made the ceiling"
		}
		if x.Grant != 0 {
			way = fmt.Sprintf("agent-init grants --end %d    (root)", x.Grant)
		}
		w.Row("to allow it", "%s", way)
	}
}

func quoted(line string) string {
	if strings.ContainsAny(line, " *[") {
		return "'" + line + "'"
	}
	return line
}
