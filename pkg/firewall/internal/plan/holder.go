package plan

// Holder is who goes out to what is leased. An element may be leased to several: what one of them is for is redirected
// to the gate then, also where another would let it out.
type Holder uint8

const (
	Agent     Holder = iota // everybody but those below, past the gate
	Gated                   // the guard; of all others but those below, it is redirected to the gate
	Inspected               // nobody; likewise
	Broker                  // the broker
)

func Holders() []Holder { return []Holder{Agent, Gated, Inspected, Broker} }

func (h Holder) String() string {
	return map[Holder]string{Agent: "agent", Gated: "guard", Inspected: "gate", Broker: "broker"}[h]
}

// prefix begins the names of a holder's sets.
func (h Holder) prefix() string {
	return map[Holder]string{Agent: "", Gated: "gated-", Inspected: "inspected-", Broker: "broker-"}[h]
}

// redirectedTo are the holders whose elements are redirected to the gate.
func redirectedTo() []Holder { return []Holder{Gated, Inspected} }

// Of are the sets where an element of h may be. Where nobody goes, nothing answers.
func (f Family) Of(h Holder) []Set {
	if h == Inspected {
		return []Set{f.Leases(h)}
	}
	return []Set{f.Leases(h), f.Kept(h)}
}
