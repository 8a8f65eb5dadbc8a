package policy

// Way is how a connection to a name goes out.
type Way uint8

const (
	ByAddress Way = iota // the kernel lets it out by the leased address alone
	Gated                // the name gate looks at the name inside
	Inspected            // the broker looks at each request
)

// String says it for people.
func (w Way) String() string {
	switch w {
	case Gated:
		return "through the name gate"
	case Inspected:
		return "request by request, through the broker"
	}
	return "by address"
}

// Way says how connections to name go out on port, if Decide allows them. Of several entries for a name, what the one
// says holds for all: the strictest.
func (p *Policy) Way(name string, port Port) Way {
	web := port == HTTPS || port == HTTP
	name, _ = p.canonical(name)
	says := func(is func(r *Rule) bool) bool {
		return p.allow.which(name, func(r *Rule) bool { return r.has(port) && is(r) }) != nil
	}
	switch {
	case port.Proto != TCP:
		return ByAddress
	case says((*Rule).Inspects):
		return Inspected
	case says(func(r *Rule) bool { return r.TLS || r.HTTP }):
		return Gated
	case web && !says(func(r *Rule) bool { return r.Direct }):
		return Gated
	}
	return ByAddress
}

// Plain says whether what looks into connections to name on port expects HTTP there, and not TLS.
func (p *Policy) Plain(name string, port Port) bool {
	if port == HTTPS || port == HTTP {
		return port == HTTP
	}
	name, _ = p.canonical(name)
	return p.allow.which(name, func(r *Rule) bool { return r.HTTP && r.has(port) }) != nil
}

// Direct returns the rule by which connections to name on port pass by the name gate, which would look into them else;
// nil if there is none.
func (p *Policy) Direct(name string, port Port) *Rule {
	if port != HTTPS && port != HTTP || p.Way(name, port) != ByAddress {
		return nil
	}
	name, _ = p.canonical(name)
	return p.allow.which(name, func(r *Rule) bool { return r.Direct && r.has(port) })
}
