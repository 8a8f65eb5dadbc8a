package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
)

// maxRoots bounds the certificate authorities. Mozilla's are 220 kB.
const maxRoots = 64 << 20

// ReadBrokerLoad reads what BrokerLoad.File holds, and closes it.
func ReadBrokerLoad(f *os.File) (l stage.BrokerLoad, err error) {
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
