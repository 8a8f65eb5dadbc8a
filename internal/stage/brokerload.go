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
	Roots       []byte            `json:"-"`      // certificate authorities, as PEM
	Credentials map[string][]byte `json:"-"`      // by the names of routes, see wire.Secret
	Logins      []string          `json:"logins"` // the routes whose credential is the file of a login
	Lengths     []int             `json:"lengths"`
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
	if len(l.Lengths) != 1+len(l.Routes) || l.Lengths[0] < 0 || l.Lengths[0] > maxRoots {
		return l, errors.New("read the routes: other credentials than routes")
	}
	at := int64(4) + int64(binary.BigEndian.Uint32(length[:]))
	l.Roots = make([]byte, l.Lengths[0])
	if _, err := f.ReadAt(l.Roots, at); err != nil {
		return l, fmt.Errorf("read the authorities: %w", err)
	}
	at += int64(len(l.Roots))
	l.Credentials = map[string][]byte{}
	for i, r := range l.Routes {
		n := l.Lengths[1+i]
		if n < 0 || n > wire.MaxSecret {
			return l, errors.New("read the routes: a credential is too long")
		}
		if n == 0 {
			continue
		}
		secret := wire.Secret(n)
		if _, err := f.ReadAt(secret, at); err != nil {
			return l, fmt.Errorf("read a credential: %w", err)
		}
		l.Credentials[r.Name] = secret
		at += int64(n)
	}
	return l, nil
}
