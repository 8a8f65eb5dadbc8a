package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// The guard asks and the keeper answers in messages of one fixed size over a
// SOCK_SEQPACKET pair, so that the process which holds CAP_NET_ADMIN has no framing
// and no syntax to parse: a packet of another size is dropped whole, and a name or a
// reason is bytes in a field of its own, held against what is canonical. Events for
// the log come over a second pair, in the same manner (audit.Pack), and the probe's
// report through a pipe (selftest.Report.Pack). TestNoJSONOfChildren holds this.

// Op is what a message is about.
type Op uint8

const (
	OpLease    Op = iota + 1 // guard: these addresses answer this name; keeper: these were admitted
	OpReady                  // guard: serving
	OpPing                   // keeper: still there?
	OpPong                   // guard: yes, with its counters
	OpLeasedTo               // guard: is this address leased to this name, on this port? keeper: yes, or err
	OpAhead                  // keeper: resolve ahead as far as the id says, see ahead
	OpPolicy                 // keeper: a new policy, as a memfd beside the message; guard: taken, or not
	OpDirect                 // guard: may this address be connected to, on this port, unseen? keeper: yes, leased to name or by itself, or err
	OpOwner                  // guard: which process has the socket open whose inode is number? keeper: pid and, as text, its name, or err
	OpProbing                // keeper: a self-test begins, its plan as a memfd beside the message, or without one: it has ended; guard: noted
	OpName                   // guard: may one more question go to a server, for this name below a wildcard? keeper: yes, or err
	OpRequest                // guard: the agent proposes a grant; keeper: its number, or err and why
)

// MaxLeaseAddrs is how many addresses one message holds. Longer answers take
// several.
const MaxLeaseAddrs = 32

// MaxName is the longest name in text form (RFC 1035, 2.3.4).
const MaxName = 253

// MaxText is the longest reason, of a request or of its refusal.
const MaxText = 200

// Message is the one shape of every request and reply.
type Message struct {
	Op    Op
	ID    uint32
	TTL   time.Duration // whole seconds
	Err   bool          // reply: it could not be done
	Name  string
	Addrs []netip.Addr
	Port  uint16
	Stats Stats

	Edition uint64 // reply: of the book that was looked at

	// Of requests: why, and who asks.
	Text   string
	UID    uint32
	PID    int32
	Number uint32 // reply: of the request; of a socket: its inode
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
}

// wire is the message in memory order; encoding/binary gives it its size.
type wire struct {
	Op      uint8
	Err     uint8
	NameLen uint8
	Count   uint8
	ID      uint32
	TTL     uint32
	Name    [MaxName + 2]byte
	Port    uint16
	Addrs   [MaxLeaseAddrs][16]byte
	Stats   Stats
	Edition uint64
	Text    [MaxText]byte
	TextLen uint8
	UID     uint32
	PID     int32
	Number  uint32
}

var wireSize = binary.Size(wire{})

func (m Message) encode() ([]byte, error) {
	if len(m.Name) > MaxName || len(m.Addrs) > MaxLeaseAddrs || len(m.Text) > MaxText {
		return nil, errors.New("message too long")
	}
	w := wire{Op: uint8(m.Op), NameLen: uint8(len(m.Name)), Count: uint8(len(m.Addrs)), ID: m.ID,
		TTL: uint32(m.TTL / time.Second), Port: m.Port, Stats: m.Stats, Edition: m.Edition,
		TextLen: uint8(len(m.Text)), UID: m.UID, PID: m.PID, Number: m.Number}
	copy(w.Text[:], m.Text)
	if m.Err {
		w.Err = 1
	}
	copy(w.Name[:], m.Name)
	for i, a := range m.Addrs {
		w.Addrs[i] = a.As16()
	}
	return binary.Append(make([]byte, 0, wireSize), binary.BigEndian, w)
}

func decodeGuard(b []byte) (Message, error) {
	var w wire
	if len(b) != wireSize {
		return Message{}, fmt.Errorf("message of %d bytes, want %d", len(b), wireSize)
	}
	if _, err := binary.Decode(b, binary.BigEndian, &w); err != nil {
		return Message{}, err
	}
	if w.NameLen > MaxName || w.Count > MaxLeaseAddrs || w.Err > 1 || w.TextLen > MaxText {
		return Message{}, errors.New("message field out of range")
	}
	m := Message{Op: Op(w.Op), ID: w.ID, TTL: time.Duration(w.TTL) * time.Second, Err: w.Err == 1,
		Name: string(w.Name[:w.NameLen]), Port: w.Port, Stats: w.Stats, Edition: w.Edition,
		Text: string(w.Text[:w.TextLen]), UID: w.UID, PID: w.PID, Number: w.Number}
	for _, a := range w.Addrs[:w.Count] {
		m.Addrs = append(m.Addrs, netip.AddrFrom16(a).Unmap())
	}
	return m, nil
}

// GuardChannel is one end of the pair.
type GuardChannel = Channel[Message]

// OpenGuard speaks with the guard, or as the guard with the keeper, over conn.
func OpenGuard(conn *net.UnixConn) *GuardChannel { return Over(conn, wireSize, decodeGuard) }

// AsksAtOnce are the questions of the guard's that the keeper has not answered. The
// guard waits before it asks more. One that doesn't is none of ours: it is not read
// from any more, and then ended.
const AsksAtOnce = 512

// Asks says whether the guard waits for an answer.
func (o Op) Asks() bool {
	switch o {
	case OpLease, OpLeasedTo, OpDirect, OpOwner, OpName, OpRequest:
		return true
	}
	return false
}
