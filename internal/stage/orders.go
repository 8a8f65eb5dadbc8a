package stage

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// SocketsPerFamily are DNS over UDP, DNS over TCP, and the name gate.
const SocketsPerFamily = 3

// GuardConfig is all that the guard is told, through a memfd: it opens no file and reads no variable.
type GuardConfig struct {
	Bundle    *policy.Bundle `json:"bundle"`
	Ephemeral [2]uint16      `json:"ephemeral"` // first and last port that sockets get by themselves
	Families  int            `json:"families"`  // that there are listeners for
	LogLevel  slog.Level     `json:"log_level"`
	AgentUID  uint32         `json:"agent_uid"`
	BrokerUID uint32         `json:"broker_uid,omitempty"` // 0: there is none
	Monitor   bool           `json:"monitor"`
	Again     bool           `json:"again,omitempty"` // there was a guard before this one

	Elsewhere bool `json:"elsewhere,omitempty"` // the agents are in other network namespaces, as a gateway's: nobody here has their sockets

	Own []netip.Addr `json:"own,omitempty"` // of a gateway: what its agents' questions are answered with

	Shared bool              `json:"shared,omitempty"` // the agent may have any uid
	Engine []sockowner.Bound `json:"engine,omitempty"` // the sockets of the engine's DNS server then

	// Reduced: the kernel can't tell what may pass. The gate takes what it knows by address
	// only as well, and there is no log of refused packets.
	Reduced bool `json:"reduced,omitempty"`
}

// BrokerConfig is what the broker is told at its start, beside a BrokerLoad.
type BrokerConfig struct {
	Token    string     `json:"token"` // that callers show as their key, bare: a route may want something before it
	UIDs     []uint32   `json:"uids"`  // who may ask; none: anybody who has the token
	GuardUID uint32     `json:"guard_uid"`
	Families int        `json:"families"` // that there are listeners for
	Blind    bool       `json:"blind"`    // the kernel can't say whose a connection is
	LogLevel slog.Level `json:"log_level"`
	Journals []string   `json:"journals"` // the routes with a login, in the order of the files behind the listeners
}

// Post is what the broker is to send to a webhook. URL and bearer are secrets.
type Post struct {
	URL     string            `json:"url"`
	Host    string            `json:"host"` // of the URL, for words
	Bearer  string            `json:"bearer,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // by which it is signed
	Body    json.RawMessage   `json:"body"`              // see Body
	Answers bool              `json:"answers,omitempty"` // what is sent back is to be handed over
}

// Body is v as JSON, to the byte as it is posted: it may be signed.
func Body(v any) (json.RawMessage, error) { return json.Marshal(v) }

// Patience is for a webhook to be looked up, reached and to answer. One that may answer may ask a person first.
func (p Post) Patience() time.Duration {
	if p.Answers {
		return 30 * time.Second
	}
	return 9 * time.Second
}

// SessionConfig is the whole input of the session server.
type SessionConfig struct {
	Name        string     `json:"name"`
	AgentUID    uint32     `json:"agent_uid"`
	Clipboard   bool       `json:"clipboard"`
	RecordLimit int64      `json:"record_limit"`
	LogLevel    slog.Level `json:"log_level"`
}

// The commands that only we start.
const (
	Name         = "__stage"
	BrokerName   = "broker"
	SessionsName = "__sessions" // the session server
	TerminalName = "__terminal" // the client on the container's terminal
	ProbeName    = "__probe"    // runs the probes of a self-test
)
