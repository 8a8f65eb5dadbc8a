package terminal

import (
	"math"
	"unicode/utf8"
)

// Bounds at which the table of looks is swept.
const (
	internEntries = 8192    // entries
	internBytes   = 1 << 20 // of strings in them; at twice as many, new links are dropped
	internMisses  = 4096    // new entries between two sweeps, so that many share a sweep's cost
)

// interner numbers looks, so that a cell is small and compares fast, and the texts of
// clusters, as a look's link. Number 0 is the zero value.
type interner struct {
	ids    map[look]uint32
	values []look
	bytes  int // that the values hold in strings
	misses int // since the last sweep
}

func newInterner() interner { return interner{ids: map[look]uint32{{}: 0}, values: []look{{}}} }

func (n *interner) add(v look) uint32 {
	id := uint32(len(n.values))
	n.ids[v] = id
	n.values = append(n.values, v)
	n.bytes += len(v.Link)
	n.misses++
	return id
}

func (t *Terminal) look(id uint32) look { return t.looks.values[id] }

func (t *Terminal) internStyle(s look) uint32 { return t.intern(s, 2*internBytes) }

// intern returns the number of s; of s without its link if all would take more than most bytes.
func (t *Terminal) intern(s look, most int) uint32 {
	if id, ok := t.looks.ids[s]; ok {
		return id
	}
	if s.Link != "" && t.looks.bytes+len(s.Link) > most {
		s.Link = ""
		return t.intern(s, most)
	}
	return t.looks.add(s)
}

// packText returns what a cell keeps of a non-empty text.
func (t *Terminal) packText(s string) uint32 {
	if r, n := utf8.DecodeRuneInString(s); n == len(s) {
		return uint32(r)
	}
	return cluster | t.intern(look{Link: s}, math.MaxInt)
}

// sweep forgets the looks that no cell has any more, when there are many. All cells must be on a screen.
func (t *Terminal) sweep() {
	if n := &t.looks; n.misses < internMisses || len(n.values) < internEntries && n.bytes < internBytes {
		return
	}
	young := newInterner()
	to := make([]uint32, len(t.looks.values)) // new numbers by old ones, 0 where not copied
	keep := func(id uint32) uint32 {
		if id != 0 && to[id] == 0 {
			to[id] = young.add(t.look(id))
		}
		return to[id]
	}
	visit := func(c *cell) {
		if c.style = keep(c.style); c.text&cluster != 0 {
			c.text = cluster | keep(c.text&^cluster)
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
	t.penID = keep(t.penID)
	young.misses = 0
	t.looks = young
}
