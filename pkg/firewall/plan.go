package firewall

import "fmt"

// Plan is a set of rules, computed by NewPlan. It is immutable; the zero Plan
// can't be applied.
type Plan struct{}

// NewPlan computes the rules for c. The error says what in c makes no sense.
func NewPlan(c Config) (Plan, error) { return Plan{}, nil }

// String returns the plan as text, in a language close to that of nft(8).
func (p Plan) String() string { return "" }

func protoName(p uint8) string {
	switch p {
	case 6:
		return "tcp"
	case 17:
		return "udp"
	}
	return fmt.Sprint(p)
}
