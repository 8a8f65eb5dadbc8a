package firewall

import (
	"context"
	"maps"
	"slices"
)

// Unlease ends the leases of elements, and leaves their flows to a later Revoke:
// nothing new can start, and a proxy can still tell both ends of what is open
// that it is over.
func (f *Firewall) Unlease(ctx context.Context, elements []Element) error {
	_, err := f.unlease(ctx, elements)
	return err
}

// unlease returns the elements as the kernel knows them.
func (f *Firewall) unlease(ctx context.Context, elements []Element) (map[Element]bool, error) {
	set := make(map[Element]bool, len(elements))
	for _, e := range elements {
		e, err := e.clean()
		if err != nil {
			return nil, err
		}
		set[e] = true
	}
	if len(set) == 0 {
		return nil, nil
	}
	return set, f.rules.do(ctx, func() error { return f.be.unlease(slices.Collect(maps.Keys(set))) })
}
