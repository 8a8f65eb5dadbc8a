package terminal

import "slices"

// kittyDepth bounds a stack of keyboard modes, as the protocol asks for.
const kittyDepth = 32

// keyboard is what programs asked for by kitty's protocol: the flags in use, and those
// that come back when these are popped. The first of all are for when nothing is left.
type keyboard struct {
	flags uint8
	below []uint8
}

func (k *keyboard) push(flags int) {
	if k.below = append(k.below, k.flags); len(k.below) == kittyDepth {
		k.below = slices.Delete(k.below, 1, 2) // the oldest is lost
	}
	k.flags = uint8(flags & 31)
}

func (k *keyboard) pop(n int) {
	for ; n > 0 && len(k.below) > 0; n-- {
		last := len(k.below) - 1
		k.flags, k.below = k.below[last], k.below[:last]
	}
	if n > 0 {
		k.flags = 0
	}
}

// change replaces the flags in use (how 1), adds to them (2) or removes some (3).
func (k *keyboard) change(flags, how int) {
	switch f := uint8(flags & 31); how {
	case 1:
		k.flags = f
	case 2:
		k.flags |= f
	case 3:
		k.flags &^= f
	}
}

// keyResources are what XTMODKEYS set, by resource: the value, plus 1.
type keyResources [8]uint8

// modifyKeys is XTMODKEYS: CSI > resource ; value m; without the value, the default.
func modifyKeys(t *Terminal, p *params) {
	if p.n == 0 {
		t.modified = keyResources{}
		return
	}
	t.modified[p.get(0, 0)] = 0
	if p.n > 1 {
		t.modified[p.get(0, 0)] = uint8(p.v[1] + 1)
	}
}
