package broker

import (
	"cmp"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/broker/authority"
	"github.com/agent-init/agent-init/pkg/route"
)

// certify has an authority for the names that are looked into, and tells the keeper what programs are to trust. It comes
// before the names are served. Without names, what programs trust stays: their variables lead there.
func (p *process) certify(inspected []route.Inspected) error {
	names := namesOf(inspected)
	if len(names) == 0 {
		return nil
	}
	a := p.authority.Load()
	var err error
	if a == nil {
		a, err = authority.New(names)
	} else {
		err = a.Rename(names)
	}
	if err != nil {
		return fmt.Errorf("make an authority for inspected names: %w", err)
	}
	p.authority.Store(a)
	var certificates [][]byte
	for block, rest := pem.Decode(a.Certificate()); block != nil; block, rest = pem.Decode(rest) {
		certificates = append(certificates, block.Bytes)
	}
	trust := wire.Pieces(certificates...)
	if trust == p.trust {
		return nil
	}
	if err := p.channel.Deliver(wire.Message{Op: wire.OpTrust, Text: trust}); err != nil {
		return fmt.Errorf("tell the keeper what is to be trusted: %w", err)
	}
	p.trust = trust
	return nil
}

// leaf is the certificate that is shown for an inspected name.
func (p *process) leaf(name string) (*tls.Certificate, error) {
	a := p.authority.Load()
	if a == nil {
		return nil, authority.ErrName
	}
	return a.Leaf(name)
}

// namesOf are the names that a certificate is shown for. What is below a wildcard needs no word of its own: a denial
// there makes no other certificate.
func namesOf(inspected []route.Inspected) (names []authority.Name) {
	for _, i := range inspected {
		above := func(w route.Inspected) bool {
			return w.Wildcard && !w.Plain && (w.Name == i.Name && !i.Wildcard || strings.HasSuffix(i.Name, "."+w.Name))
		}
		if !i.Plain && !slices.ContainsFunc(inspected, above) {
			names = append(names, authority.Name{Name: i.Name, Wildcard: i.Wildcard})
		}
	}
	slices.SortFunc(names, func(a, b authority.Name) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(names)
}
