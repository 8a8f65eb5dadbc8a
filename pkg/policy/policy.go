package policy

import (
	"io"
	"io/fs"
	"net/netip"
)

// File is one policy file. A Name that ends in .yaml, .yml or .json is read as
// YAML, any other as a list of entries.
type File struct {
	Name string // as errors and rules cite it
	Data []byte
}

// Bundle is the raw content of a policy, in the order in which it counts. It
// can be handed to another process as JSON.
type Bundle struct {
	Files    []File
	Hosts    []byte  // the content of /etc/hosts, nil if it is not to be trusted
	Warnings []Error // found while reading, repeated by Policy.Warnings
}

// Policy is a parsed policy. It is immutable and safe for concurrent use.
type Policy struct {
	settings Settings
}

// Decision is the answer to "may this be connected to?".
type Decision struct {
	Allowed bool
	Rule    *Rule  // what decided; nil if nothing matched
	Reason  string // for people, lower case
}

// Match is the answer to "may this name be resolved?".
type Match struct {
	Name     string // canonical; "" if it is not a valid name
	Allowed  bool   // on at least one port
	Rule     *Rule  // what decided; nil if nothing matched
	Wildcard *Rule  // the rule, if only a wildcard allows the name
}

// Static is an address block and port that needs no name to be resolved.
type Static struct {
	Prefix netip.Prefix
	Port   Port // zero, in denied ones only: every port and protocol
	Rule   *Rule
}

// Counts says how much is in a policy.
type Counts struct {
	Files, Names, Wildcards, Addresses, Denied, Required int
}

// Parse reads a bundle. Presets are the files NAME.txt of presets, which may be
// nil. The error is an ErrorList.
func Parse(b *Bundle, presets fs.FS) (*Policy, error) { return &Policy{settings: defaults()}, nil }

// Decide says whether name may be connected to on port.
func (p *Policy) Decide(name string, port Port) Decision { return Decision{} }

// DecideAddr says whether a may be connected to on port without a name.
func (p *Policy) DecideAddr(a netip.Addr, port Port) Decision { return Decision{} }

// Lookup says whether name may be resolved.
func (p *Policy) Lookup(name string) Match { return Match{} }

// Admit returns the ports that name may open at a.
func (p *Policy) Admit(name string, a netip.Addr) []Port { return nil }

// Hosts returns the addresses that the hosts file has for name.
func (p *Policy) Hosts(name string) []netip.Addr { return nil }

// Static returns the allowed addresses that need no name to be resolved.
func (p *Policy) Static() []Static { return nil }

// Denied returns the denied addresses.
func (p *Policy) Denied() []Static { return nil }

// Names returns the exact names that are allowed, in file order.
func (p *Policy) Names() []*Rule { return nil }

// Required returns what the self-test must reach.
func (p *Policy) Required() []*Rule { return nil }

// Settings returns the settings.
func (p *Policy) Settings() *Settings { return &p.settings }

// Warnings returns what is worth a look.
func (p *Policy) Warnings() []Error { return nil }

// Counts returns how much is in the policy.
func (p *Policy) Counts() Counts { return Counts{} }

// WriteEffective writes the merged policy.
func (p *Policy) WriteEffective(w io.Writer) error { return nil }

// Report is a policy in a form for JSON.
type Report struct{}

// Report returns the policy in a form for JSON.
func (p *Policy) Report() Report { return Report{} }
