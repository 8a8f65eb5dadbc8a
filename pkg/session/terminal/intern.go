package terminal

import "unicode/utf8"

// Bounds at which the tables of styles and clusters are swept.
const (
	internEntries = 8192    // entries
	internBytes   = 1 << 20 // of strings in them; at twice as many, new links are dropped
	internMisses  = 4096    // new entries between two sweeps, so that many share a sweep's cost
)

// interner numbers values, so that a cell is small and compares fast. Number 0 is
// the zero value.
type interner[T comparable] struct {
	size   func(T) int // of the strings in a value
	ids    map[T]uint32
	values []T
	bytes  int // that the values hold in strings
	misses int // since the last sweep
}

func newInterner[T comparable](size func(T) int) interner[T] {
	var zero T
	return interner[T]{size: size, ids: map[T]uint32{zero: 0}, values: []T{zero}}
}

func (n *interner[T]) value(id uint32) T { return n.values[id] }

func (n *interner[T]) add(v T) uint32 {
	id := uint32(len(n.values))
	n.ids[v] = id
	n.values = append(n.values, v)
	n.bytes += n.size(v)
	n.misses++
	return id
}

func (n *interner[T]) full() bool {
	return n.misses >= internMisses && (len(n.values) >= internEntries || n.bytes >= internBytes)
}

// sweep returns an empty interner, and what copies a value of n to it by its number.
func (n *interner[T]) sweep() (young *interner[T], keep func(*uint32)) {
	empty := newInterner(n.size)
	to := make([]uint32, len(n.values)) // new numbers by old ones, 0 where not copied
	return &empty, func(id *uint32) {
		if *id != 0 && to[*id] == 0 {
			to[*id] = empty.add(n.values[*id])
		}
		*id = to[*id]
	}
}

func (t *Terminal) internStyle(s look) uint32 {
	if id, ok := t.styles.ids[s]; ok {
		return id
	}
	if t.styles.full() {
		t.sweep()
	}
	if s.Link != "" && t.styles.bytes+len(s.Link) > 2*internBytes {
		s.Link = ""
		if id, ok := t.styles.ids[s]; ok {
			return id
		}
	}
	return t.styles.add(s)
}

// packText returns what a cell keeps of a non-empty text.
func (t *Terminal) packText(s string) uint32 {
	if r, n := utf8.DecodeRuneInString(s); n == len(s) {
		return uint32(r)
	}
	if id, ok := t.clusters.ids[s]; ok {
		return cluster | id
	}
	if t.clusters.full() {
		t.sweep()
	}
	return cluster | t.clusters.add(s)
}

// sweep forgets the styles and clusters that no cell has any more.
func (t *Terminal) sweep() {
	t.styles.misses, t.clusters.misses = 0, 0
	if t.resizing {
		return // cells are on their way between two screens
	}
	styles, keepStyle := t.styles.sweep()
	clusters, keepCluster := t.clusters.sweep()
	visit := func(c *cell) {
		keepStyle(&c.style)
		if c.text&cluster != 0 {
			c.text &^= cluster
			keepCluster(&c.text)
			c.text |= cluster
		}
	}
	for _, s := range []*screen{t.main, t.alt} {
		for _, r := range s.rows {
			for x := range r.cells {
				visit(&r.cells[x])
			}
			visit(&r.fill)
		}
	}
	visit(&t.blank)
	keepStyle(&t.penID)
	t.styles, t.clusters = *styles, *clusters
	t.styles.misses, t.clusters.misses = 0, 0
}
