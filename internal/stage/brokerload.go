package stage

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"slices"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/route"
)

// BrokerLoad is what changes while a broker serves.
type BrokerLoad struct {
	Routes      []route.Route     `json:"routes"`
	Inspected   []route.Inspected `json:"inspected,omitempty"`
	Roots       []byte            `json:"-"`              // certificate authorities, as PEM
	Credentials map[string][]byte `json:"-"`              // by the names of routes, see wire.Secret
	Proxy       route.Proxy       `json:"proxy,omitzero"` // by which it goes out
	Logins      []string          `json:"logins"`         // the routes whose credential is the file of a login
	Lengths     []int             `json:"lengths"`

	ProxyCredential []byte `json:"-"` // likewise
}

// File holds l: the length of its JSON, that, and then the authorities and the credentials as they are, so that no reader
// has more than one copy of them.
func (l BrokerLoad) File() (*os.File, error) {
	parts := net.Buffers{l.Roots}
	for _, r := range l.Routes {
		parts = append(parts, l.Credentials[r.Name])
	}
	parts = append(parts, l.ProxyCredential)
	for _, p := range parts {
		l.Lengths = append(l.Lengths, len(p))
	}
	head, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	parts = slices.Insert(parts, 0, binary.BigEndian.AppendUint32(nil, uint32(len(head))), head)
	return wire.MemfdOf("broker", func(w io.Writer) error {
		_, err := parts.WriteTo(w)
		return err
	})
}
