package terminal

// kittyDepth bounds a stack of keyboard modes, as the protocol asks for.
const kittyDepth = 32

// keyModes are the two protocols by which programs ask for more of the keyboard:
// kitty's, of which each screen has a stack of flags, and xterm's modifyOtherKeys.
type keyModes struct {
	main, alternate kittyStack
	modified        [8]uint8 // by resource of XTMODKEYS: the value set, plus 1
}

// kittyStack is the flags in use, last, and those below. The first is what is in
// use when everything has been popped; an empty one stands for a single 0.
type kittyStack []uint8

func (s kittyStack) flags() uint8 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1]
}

func (k *keyModes) stack(alternate bool) *kittyStack {
	if alternate {
		return &k.alternate
	}
	return &k.main
}

func (k *keyModes) push(alternate bool, flags int) {
	s := k.stack(alternate)
	if len(*s) == 0 {
		*s = kittyStack{0}
	}
	if len(*s) == kittyDepth {
		*s = append((*s)[:1], (*s)[2:]...) // the oldest is lost
	}
	*s = append(*s, uint8(flags&31))
}

func (k *keyModes) pop(alternate bool, n int) {
	s := k.stack(alternate)
	if n >= len(*s) {
		*s = nil
		return
	}
	*s = (*s)[:len(*s)-n]
	if len(*s) == 1 && (*s)[0] == 0 {
		*s = nil
	}
}

// change replaces the flags in use (how 1), adds to them (2) or removes some (3).
func (k *keyModes) change(alternate bool, flags, how int) {
	s := k.stack(alternate)
	if len(*s) == 0 {
		*s = kittyStack{0}
	}
	top := &(*s)[len(*s)-1]
	switch f := uint8(flags & 31); how {
	case 1:
		*top = f
	case 2:
		*top |= f
	case 3:
		*top &^= f
	}
	if len(*s) == 1 && *top == 0 {
		*s = nil
	}
}

// modify is XTMODKEYS: CSI > resource ; value m; without the value, the default.
func (k *keyModes) modify(p *params) {
	if p.n == 0 {
		clear(k.modified[:])
		return
	}
	resource := p.get(0, 0)
	if resource >= len(k.modified) {
		return
	}
	k.modified[resource] = 0
	if p.n > 1 && p.v[1] >= 0 && p.v[1] <= 9 {
		k.modified[resource] = uint8(p.v[1]) + 1
	}
}
