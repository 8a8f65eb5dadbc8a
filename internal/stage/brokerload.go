package stage

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

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

// maxRoots bounds the certificate authorities. Mozilla's are 220 kB.
const maxRoots = 64 << 20

// File holds l: the length of its JSON, that, and then the authorities and the credentials as they are, so that no reader
// has more than one copy of them.
func (l BrokerLoad) File() (*os.File, error) {
	l.Lengths = []int{len(l.Roots)}
	for _, r := range l.Routes {
		l.Lengths = append(l.Lengths, len(l.Credentials[r.Name]))
	}
	l.Lengths = append(l.Lengths, len(l.ProxyCredential))
	head, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return wire.MemfdOf("broker", func(w io.Writer) error {
		_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(head))), head...))
		if err == nil {
			_, err = w.Write(l.Roots)
		}
		for _, r := range l.Routes {
			if err == nil {
				_, err = w.Write(l.Credentials[r.Name])
			}
		}
		if err == nil {
			_, err = w.Write(l.ProxyCredential)
		}
		return err
	})
}

// ReadBrokerLoad reads what File holds, and closes it.
func ReadBrokerLoad(f *os.File) (l BrokerLoad, err error) {
	defer f.Close()
	var length [4]byte
	if _, err = io.ReadFull(f, length[:]); err != nil {
		return l, fmt.Errorf("read the routes: %w", err)
	}
	if err = wire.ReadMemfd(io.NewSectionReader(f, 4, int64(binary.BigEndian.Uint32(length[:]))), &l); err != nil {
		return l, fmt.Errorf("read the routes: %w", err)
	}
	if len(l.Lengths) != 2+len(l.Routes) || l.Lengths[0] < 0 || l.Lengths[0] > maxRoots {
		return l, errors.New("read the routes: other credentials than routes")
	}
	at := int64(4) + int64(binary.BigEndian.Uint32(length[:]))
	l.Roots = make([]byte, l.Lengths[0])
	if _, err := f.ReadAt(l.Roots, at); err != nil {
		return l, fmt.Errorf("read the authorities: %w", err)
	}
	at += int64(len(l.Roots))
	l.Credentials = map[string][]byte{}
	for i, n := range l.Lengths[1:] {
		secret, err := readSecret(f, at, n)
		switch {
		case err != nil:
			return l, err
		case i == len(l.Routes):
			l.ProxyCredential = secret
		case secret != nil:
			l.Credentials[l.Routes[i].Name] = secret
		}
		at += int64(n)
	}
	return l, nil
}

// readSecret reads the n bytes at an offset to where secrets are; nil if there are none.
func readSecret(f *os.File, at int64, n int) ([]byte, error) {
	switch {
	case n < 0 || n > wire.MaxSecret:
		return nil, errors.New("read the routes: a credential is too long")
	case n == 0:
		return nil, nil
	}
	secret := wire.Secret(n)
	if _, err := f.ReadAt(secret, at); err != nil {
		return nil, fmt.Errorf("read a credential: %w", err)
	}
	return secret, nil
}
