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
	Roots       []byte            `json:"roots"` // certificate authorities, as PEM
	Credentials map[string][]byte `json:"-"`     // by the names of routes, see wire.Secret
	Lengths     []int             `json:"lengths"`
}

// File holds l: the length of its JSON, that, and then the credentials as they are, so that no reader has more than one
// copy of them.
func (l BrokerLoad) File() (*os.File, error) {
	l.Lengths = nil
	for _, r := range l.Routes {
		l.Lengths = append(l.Lengths, len(l.Credentials[r.Name]))
	}
	head, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return wire.MemfdOf("broker", func(w io.Writer) error {
		_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(head))), head...))
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
	if len(l.Lengths) != len(l.Routes) {
		return l, errors.New("read the routes: other credentials than routes")
	}
	at := int64(4) + int64(binary.BigEndian.Uint32(length[:]))
	l.Credentials = map[string][]byte{}
	for i, r := range l.Routes {
		n := l.Lengths[i]
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
