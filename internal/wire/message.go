package wire

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"time"
)

// Op is what a message is about. Those of the session server are in sessionop.
type Op uint8

const (
	OpReady       Op = iota + 1 // child: serving; keeper, to the session server: that is all there is, serve
	OpPing                      // keeper: still there?
	OpPong                      // child: yes, with its counters; of the guard, the address and port of the DNS server that has answered last
	OpLease                     // guard: these addresses answer this name, with flag ForBroker for that; keeper: these were admitted
	OpLeasedTo                  // guard: is this address leased to this name, on this port? keeper: yes, or err; beside that, where else on this port the name has leases
	OpAhead                     // keeper: resolve ahead as far as arg says, see Ahead; to the broker: the start is over, serve
	OpPolicy                    // keeper: a new policy, as a memfd beside the message; guard: taken, or not
	OpDirect                    // guard: may this address be connected to, on this port, unseen? keeper: yes, leased to name or by itself, or err
	OpOwner                     // guard: which process has the socket open whose inode is arg? keeper: pid and, as text, its name, or err
	OpProbing                   // keeper: a self-test begins, its plan as a memfd beside the message, or without one: it has ended; guard: noted
	OpName                      // guard: may one more question go to a server, for this name below a wildcard? keeper: yes, or err
	OpRequest                   // guard: the agent proposes a grant; keeper: its number, or err and why
	OpResolve                   // keeper: which addresses has this host of the broker's? guard: those that were leased to it, with the TTL, or err
	OpLookup                    // broker: which addresses has this host? keeper: those that are leased to it, with the TTL, or err and why
	OpSpend                     // broker: may a request go on this route that holds arg tokens? with a flag: one is over, its tokens are arg and value, or it holds arg no more; keeper: yes, or err and why
	OpKeep                      // broker: text is from now on the login of the route name, in the place of the one whose Mark is arg, or by its flag what KeepStandIn and KeepTry say; keeper: it is kept, or err and why
	OpCredentials               // keeper: other routes or credentials, as a memfd beside the message; broker: taken, or not
	OpTrust                     // broker: text has from now on the certificates that programs are to trust, see Pieces
	OpNotify                    // keeper: post this, a memfd beside the message, to the webhook; broker: it is posted, and text is what was answered, or err and why
	OpDecided                   // keeper: somebody has decided about the request for name
	OpTunnel                    // guard, to the broker: a connection by the upstream proxy to name, at this address and port; broker: it is beside the message, or err and why. broker, to the keeper: may it be? keeper: yes, or err
	OpLast                      // broker: beside the message is a connection, which is to be its socket's last; keeper: it is, or err
	OpSession                   // the first of the session server's own
)

// What a request has come to, as OpSpend says it in its flag; 0 is a request that is about to go on.
const (
	SpentPassed  = 1
	SpentRefused = 2
	SpentHeld    = 3 // after one of the others
)

// AsksAtOnce are the questions of the guard's that the keeper has not answered. The guard waits
// before it asks more. One that doesn't is none of ours: it is not read from any more, and then ended.
const AsksAtOnce = 512

// The flags of OpKeep.
const (
	KeepStandIn = 1 // the text stands in the place of a login for the agent, and is no secret
	KeepTry     = 2 // there is no text yet: could the login be kept?
)

// ForHeld is the flag of OpRequest where a question for a name makes it, which is held.
const ForHeld = 1

// ForBroker is the flag of what is for the broker, and not for the agent.
const ForBroker = 1

// Ahead is how far a guard resolves the policy's names before anybody asks.
type Ahead uint64

const (
	AheadFirst Ahead = iota + 1 // what the self-test needs; before it nothing, since the rules are not applied yet
	AheadAll                    // the rest must not slow the start down
)

// The bounds of a message.
const (
	MaxLeaseAddrs = 32  // longer answers take several messages
	MaxName       = 253 // in text form (RFC 1035, 2.3.4)
	MaxText       = 200 // of a request's reason, or of its refusal
)

// Message is the one shape of what the keeper and its children ask and answer; op says what it has.
type Message struct {
	Op         Op
	Err        bool  // reply: it could not be done
	Flag       uint8 // as sessionop has it
	Port       uint16
	Cols, Rows uint16
	ID         uint32 // of a question and its answer; of a window
	UID, PID   uint32 // of who asks
	Arg        uint64
	Value      int64
	TTL        time.Duration
	Stats      Stats

	Name  string
	Addrs []netip.Addr
	Text  string
}

// Stats are the guard's counters, sent with every pong.
type Stats struct {
	Queries  uint64 `json:"queries"`
	Allowed  uint64 `json:"allowed"`
	Denied   uint64 `json:"denied"`
	Cached   uint64 `json:"cached"`
	Asked    uint64 `json:"asked"`    // questions to upstream servers
	Failed   uint64 `json:"failed"`   // of those, without an answer
	Stripped uint64 `json:"stripped"` // addresses taken out of answers
	Relays   uint64 `json:"relays"`   // connections through the name gate, now
	Passed   uint64 `json:"passed"`   // connections that the gate let through
	Refused  uint64 `json:"refused"`  // connections that it did not

	Drops      uint64 `json:"drops"`    // refused packets that the kernel told of
	Leases     uint64 `json:"leases"`   // times that addresses were opened
	LeaseNanos uint64 `json:"lease_ns"` // and how long that took together
	AskedNanos uint64 `json:"asked_ns"` // how long upstream servers took together

	Answered     int64  `json:"-"` // when an upstream server did last, in nanoseconds since 1970; 0: none has
	Silent       int64  `json:"-"` // since when none has, likewise; 0: the last question was answered
	LatelyAsked  uint64 `json:"-"` // questions to upstream servers, of the last minutes
	LatelyFailed uint64 `json:"-"` // of those, without an answer
}

// A packet is a head of fixed size, then name, addresses and text, whose lengths must agree with the packet's: the
// process that holds CAP_NET_ADMIN has no framing and no syntax to parse. Events for the log come in the same manner
// (audit.Pack), and the probe's report (selftest.Report.Pack). TestNoJSONOfChildren holds this.

// head is the head in the packet's order. The text has what the other lengths leave.
func (m *Message) head(name, addrs *uint8) []any {
	return []any{
		(*uint8)(&m.Op), &m.Err, name, addrs, &m.Flag, &m.Port, &m.Cols, &m.Rows, &m.ID, &m.UID, &m.PID, &m.Arg, &m.Value, (*int64)(&m.TTL), &m.Stats,
	}
}

const textless = 1 << 10 // bytes that hold all of a message but its text

func (m *Message) encode(maxText int) ([]byte, error) {
	if len(m.Name) > MaxName || len(m.Addrs) > MaxLeaseAddrs || len(m.Text) > maxText {
		return nil, errors.New("message too long")
	}
	name, addrs := uint8(len(m.Name)), uint8(len(m.Addrs))
	b := make([]byte, 0, textless+len(m.Text))
	for _, field := range m.head(&name, &addrs) {
		var err error
		if b, err = binary.Append(b, binary.BigEndian, field); err != nil {
			return nil, err
		}
	}
	b = append(b, m.Name...)
	for _, a := range m.Addrs {
		as16 := a.As16()
		b = append(b, as16[:]...)
	}
	return append(b, m.Text...), nil
}

func decode(b []byte, maxText int) (m Message, err error) {
	if len(b) < 2 || b[1] > 1 { // err has one form of true
		return Message{}, ErrMalformed
	}
	var name, addrs uint8
	for _, field := range m.head(&name, &addrs) {
		n, err := binary.Decode(b, binary.BigEndian, field)
		if err != nil {
			return Message{}, err
		}
		b = b[n:]
	}
	text := len(b) - int(name) - 16*int(addrs)
	if name > MaxName || addrs > MaxLeaseAddrs || text < 0 || text > maxText || m.Op == 0 {
		return Message{}, ErrMalformed
	}
	m.Name, b = string(b[:name]), b[name:]
	for range addrs {
		m.Addrs, b = append(m.Addrs, netip.AddrFrom16([16]byte(b)).Unmap()), b[16:]
	}
	m.Text = string(b)
	return m, nil
}

// How often the agent may propose something.
const (
	RequestBurst = 5
	RequestEvery = 10 * time.Second
)

// PlainText is s as ASCII, in single blanks: what the agent says is shown to a
// person, and a run of blanks could make a row of its own on the screen.
func PlainText(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return strings.TrimSpace(s[:min(len(s), MaxText)])
}

// CheckRequest says what is wrong with a request that the guard, which may have been taken over, has sent.
func CheckRequest(m Message) error {
	// In single blanks: a run of them could make a row of its own on a screen.
	place, words, _ := strings.Cut(m.Name, " ")
	const lower = "abcdefghijklmnopqrstuvwxyz0123456789.*-_:/@"
	if place == "" || strings.Trim(place, lower+"[]") != "" || strings.Trim(words, lower+"ABCDEFGHIJKLMNOPQRSTUVWXYZ,=~%+ ") != "" || strings.Join(strings.Fields(m.Name), " ") != m.Name {
		return errors.New("not the target of a request")
	}
	if PlainText(m.Text) != m.Text {
		return errors.New("not the reason of a request")
	}
	return nil
}
