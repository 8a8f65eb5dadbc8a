package main

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

type opcode uint8

const (
	opLease   opcode = iota + 1 // guard: these addresses answer this name; keeper: these were admitted
	opReady                     // guard: serving
	opPing                      // keeper: still there?
	opPong                      // guard: yes, with its counters
	opHeld                      // guard: is this address leased to this name, on this port? keeper: yes, or err
	opAhead                     // keeper: resolve ahead as far as the id says, see ahead
	opPolicy                    // keeper: a new policy, as a memfd beside the message; guard: taken, or not
	opDirect                    // guard: may this address be connected to, on this port, unseen? keeper: yes, leased to name or by itself, or err
	opOwner                     // guard: which process has the socket open whose inode is number? keeper: pid and, as text, its name, or err
	opProbing                   // keeper: a self-test begins, its plan as a memfd beside the message, or without one: it has ended; guard: noted
	opName                      // guard: may one more question go to a server, for this name below a wildcard? keeper: yes, or err
	opRequest                   // guard: the agent proposes a grant; keeper: its number, or err and why
)

// maxLeaseAddrs is how many addresses one message holds. Longer answers take
// several.
const maxLeaseAddrs = 32

// maxName is the longest name in text form (RFC 1035, 2.3.4).
const maxName = 253

// maxText is the longest reason, of a request or of its refusal.
const maxText = 200

// message is the one shape of every request and reply.
type message struct {
	op    opcode
	id    uint32
	ttl   time.Duration // whole seconds
	err   bool          // reply: it could not be done
	name  string
	addrs []netip.Addr
	port  uint16
	stats guardStats

	edition uint64 // reply: of the book that was looked at

	// Of requests: why, and who asks.
	text   string
	uid    uint32
	pid    int32
	number uint32 // reply: of the request; of a socket: its inode
}

// guardStats are the guard's counters, sent with every pong.
type guardStats struct {
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
	Name    [maxName + 2]byte
	Port    uint16
	Addrs   [maxLeaseAddrs][16]byte
	Stats   guardStats
	Edition uint64
	Text    [maxText]byte
	TextLen uint8
	UID     uint32
	PID     int32
	Number  uint32
}

var wireSize = binary.Size(wire{})

func (m message) encode() ([]byte, error) {
	if len(m.name) > maxName || len(m.addrs) > maxLeaseAddrs || len(m.text) > maxText {
		return nil, errors.New("message too long")
	}
	w := wire{Op: uint8(m.op), NameLen: uint8(len(m.name)), Count: uint8(len(m.addrs)), ID: m.id,
		TTL: uint32(m.ttl / time.Second), Port: m.port, Stats: m.stats, Edition: m.edition,
		TextLen: uint8(len(m.text)), UID: m.uid, PID: m.pid, Number: m.number}
	copy(w.Text[:], m.text)
	if m.err {
		w.Err = 1
	}
	copy(w.Name[:], m.name)
	for i, a := range m.addrs {
		w.Addrs[i] = a.As16()
	}
	return binary.Append(make([]byte, 0, wireSize), binary.BigEndian, w)
}

func decodeMessage(b []byte) (message, error) {
	var w wire
	if len(b) != wireSize {
		return message{}, fmt.Errorf("message of %d bytes, want %d", len(b), wireSize)
	}
	if _, err := binary.Decode(b, binary.BigEndian, &w); err != nil {
		return message{}, err
	}
	if w.NameLen > maxName || w.Count > maxLeaseAddrs || w.Err > 1 || w.TextLen > maxText {
		return message{}, errors.New("message field out of range")
	}
	m := message{op: opcode(w.Op), id: w.ID, ttl: time.Duration(w.TTL) * time.Second, err: w.Err == 1,
		name: string(w.Name[:w.NameLen]), port: w.Port, stats: w.Stats, edition: w.Edition,
		text: string(w.Text[:w.TextLen]), uid: w.UID, pid: w.PID, number: w.Number}
	for _, a := range w.Addrs[:w.Count] {
		m.addrs = append(m.addrs, netip.AddrFrom16(a).Unmap())
	}
	return m, nil
}

// channel is one end of the pair.
type channel = seqpacket[message]

func openChannel(conn *net.UnixConn) *channel { return over(conn, wireSize, decodeMessage) }

// asksAtOnce are the questions of the guard's that the keeper has not answered. The
// guard waits before it asks more. One that doesn't is none of ours: it is not read
// from any more, and then ended.
const asksAtOnce = 512

// asks says whether the guard waits for an answer.
func (o opcode) asks() bool {
	switch o {
	case opLease, opHeld, opDirect, opOwner, opName, opRequest:
		return true
	}
	return false
}
