package policy

import (
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// Settings is what a policy.yaml says besides rules, or the defaults, under the keys of policy.yaml. It is shared.
type Settings struct {
	Inbound  []Port            `json:"inbound"`           // may be connected to from outside
	User     string            `json:"user,omitempty"`    // whom the agent runs as; "" leaves it to the command line
	Command  []string          `json:"command,omitempty"` // what to run if the command line says nothing
	Env      map[string]string `json:"env,omitempty"`     // added to the agent's environment
	SelfTest struct {          // further probes, each "host:port" over TCP
		Reach []string `json:"reach"` // must be reachable
		Block []string `json:"block"` // must not be
	} `json:"selftest"`
	DNS struct { // how names are resolved
		Upstream []string `json:"upstream"` // servers in order, as ParseUpstream reads them; none: those of resolv.conf
		MaxTTL   ttl      `json:"max_ttl"`  // of an answer to the agent
		QPS      int      `json:"qps"`      // questions per second that are served
	} `json:"dns"`
	Limits struct { // what answers may add to the kernel's sets
		AddrsPerName                 int `json:"addrs_per_name"`
		Leases                       int `json:"leases"` // in total
		NewNamesPerWildcardPerMinute int `json:"new_names_per_wildcard_per_minute"`
	} `json:"limits"`
	Log struct { // how the audit log is kept
		Stdout  bool  `json:"stdout"`   // also write it to the standard output
		MaxSize int64 `json:"max_size"` // bytes per file
		Files   int   `json:"files"`    // that are kept, the current one included
	} `json:"log"`
	Session struct { // what its programs may do to the terminals of those who look at it
		Clipboard bool `json:"clipboard"` // write the clipboard (OSC 52). Reading it is never possible
	} `json:"session"`
	Notify    Notify    `json:"notify,omitzero"`
	Approvals Approvals `json:"approvals,omitzero"`
	// UpstreamProxy is the proxy by which the gate and the broker go out; none: they go straight.
	UpstreamProxy route.Proxy `json:"upstream_proxy,omitzero"`
	TLS           struct {    // what the name gate makes of TLS
		// ECH is Pass, or Refuse for every Encrypted ClientHello: what is inside may name another site than the name
		// outside. Clients that pretend to have one (GREASE, as browsers do) are refused too.
		ECH string `json:"ech"`
	} `json:"tls"`
	Broker         []route.Route     `json:"broker,omitempty"`    // the routes whose credential is there, in file order
	Inspected      []route.Inspected `json:"inspected,omitempty"` // the names that the broker looks into, in file order
	UserNamespaces bool              `json:"user_namespaces"`     // the agent may make namespaces and mount in them
	Nice           int               `json:"nice"`                // of the agent, see nice(2); 0: it goes as first as agent-init does
}

// ttl is a time that JSON has in words.
type ttl time.Duration

// MarshalText writes it as in "5m0s".
func (d ttl) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func defaults() (s Settings) {
	s.Inbound, s.SelfTest.Reach, s.SelfTest.Block, s.DNS.Upstream = []Port{}, []string{}, []string{}, []string{}
	s.DNS.MaxTTL, s.DNS.QPS = ttl(300*time.Second), 200
	s.Limits.AddrsPerName, s.Limits.Leases, s.Limits.NewNamesPerWildcardPerMinute = 32, 65536, 120
	s.Log.MaxSize, s.Log.Files = 16<<20, 3
	s.Session.Clipboard = true
	s.Approvals.Most = ttl(10 * time.Minute)
	s.TLS.ECH = "pass"
	s.UserNamespaces, s.Nice = true, 19
	return s
}
