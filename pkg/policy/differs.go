package policy

import (
	"bytes"
	"slices"
)

// Differs returns the names of the files that are others in b than in old: changed,
// new, or gone. The hosts file is "hosts".
func (b *Bundle) Differs(old *Bundle) []string {
	var names []string
	for _, pair := range [][2]*Bundle{{b, old}, {old, b}} {
		for _, f := range pair[0].Files {
			i := slices.IndexFunc(pair[1].Files, func(g File) bool { return g.Name == f.Name })
			if (i < 0 || !bytes.Equal(f.Data, pair[1].Files[i].Data)) && !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	if !bytes.Equal(b.Hosts, old.Hosts) || (b.Hosts == nil) != (old.Hosts == nil) {
		names = append(names, "hosts")
	}
	if len(names) == 0 && !slices.Equal(b.Warnings, old.Warnings) {
		names = append(names, "what is not read")
	}
	return names
}
