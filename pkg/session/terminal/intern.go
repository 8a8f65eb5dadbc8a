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
	ids    map[T]uint32
	values []T
	bytes  int // that the values hold in strings
	misses int // since the last sweep
}

func newInterner[T comparable]() interner[T] {
	var zero T
	return interner[T]{ids: map[T]uint32{zero: 0}, values: []T{zero}}
}

func (n *interner[T]) value(id uint32) T { return n.values[id] }

func (n *interner[T]) add(v T, size int) uint32 {
	id := uint32(len(n.values))
	n.ids[v] = id
	n.values = append(n.values, v)
	n.bytes += size
	n.misses++
	return id
}

func (n *interner[T]) full() bool {
	return n.misses >= internMisses && (len(n.values) >= internEntries || n.bytes >= internBytes)
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
	return t.styles.add(s, len(s.Link))
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
	return cluster | t.clusters.add(s, len(s))
}

// sweep forgets the styles and clusters that no cell has any more.
func (t *Terminal) sweep() {
	t.styles.misses, t.clusters.misses = 0, 0
	if t.resizing {
		return // cells are on their way between two screens
	}
	styles, clusters := newSweeper(&t.styles), newSweeper(&t.clusters)
	visit := func(c *cell) {
		c.style = styles.keep(c.style, func(s look) int { return len(s.Link) })
		if c.text&cluster != 0 {
			c.text = cluster | clusters.keep(c.text&^cluster, func(s string) int { return len(s) })
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
	pen := cell{' ', t.penID}
	visit(&pen)
	t.penID = pen.style
	t.styles, t.clusters = styles.young, clusters.young
	t.styles.misses, t.clusters.misses = 0, 0
}

// sweeper copies what is kept of an interner to a new one.
type sweeper[T comparable] struct {
	old   *interner[T]
	young interner[T]
	to    []uint32 // new numbers by old ones, 0 where not copied
}

func newSweeper[T comparable](old *interner[T]) sweeper[T] {
	return sweeper[T]{old: old, young: newInterner[T](), to: make([]uint32, len(old.values))}
}

func (s *sweeper[T]) keep(id uint32, size func(T) int) uint32 {
	if id != 0 && s.to[id] == 0 {
		v := s.old.values[id]
		s.to[id] = s.young.add(v, size(v))
	}
	return s.to[id]
}
