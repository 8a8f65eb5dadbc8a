package policy

import "time"

// Settings is what a policy.yaml says besides rules, with the defaults filled
// in. It is shared and must not be modified.
type Settings struct {
	Inbound  []Port            // may be connected to from outside; default none
	User     string            // whom the agent runs as; "" leaves it to the command line
	Command  []string          // what to run if the command line says nothing
	Env      map[string]string // added to the agent's environment
	SelfTest SelfTest
	DNS      DNS
	Limits   Limits
	Log      Log
	Session  Session
	TLS      TLS

	UserNamespaces bool // the agent may make namespaces and mount in them; default yes
}

// SelfTest adds probes to the self-test. Each is "host:port", over TCP.
type SelfTest struct {
	Reach []string // must be reachable
	Block []string // must not be
}

// DNS is how names are resolved.
type DNS struct {
	// Upstream servers in order, as ParseUpstream reads them; none means those
	// of resolv.conf.
	Upstream []string
	MaxTTL   time.Duration // of an answer to the agent; default 300 s
	QPS      int           // queries per second that are served; default 200
}

// Limits bounds what answers may add to the kernel's sets.
type Limits struct {
	AddrsPerName                 int // default 32
	Leases                       int // in total; default 65536
	NewNamesPerWildcardPerMinute int // default 120
}

// Log is how the audit log is kept.
type Log struct {
	Stdout  bool  // also write it to the standard output; default no
	MaxSize int64 // bytes per file; default 16 MiB
	Files   int   // that are kept, the current one included; default 3
}

// Session is what the programs of a session may do to the terminals of those
// who look at it.
type Session struct {
	Clipboard bool // write the clipboard (OSC 52); default yes. Reading it is never possible
}

// TLS is what the name gate makes of TLS.
type TLS struct {
	// RefuseECH refuses every Encrypted ClientHello: what is inside may name another
	// site than the name outside. Clients that pretend to have one (GREASE, as
	// browsers do) are refused too; default no.
	RefuseECH bool
}

func defaults() Settings {
	return Settings{
		DNS:    DNS{MaxTTL: 300 * time.Second, QPS: 200},
		Limits: Limits{AddrsPerName: 32, Leases: 65536, NewNamesPerWildcardPerMinute: 120},
		Log:    Log{MaxSize: 16 << 20, Files: 3},

		Session: Session{Clipboard: true},

		UserNamespaces: true,
	}
}
