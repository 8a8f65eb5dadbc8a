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

// full is the stack with the flags in use.
func (s *kittyStack) full() kittyStack {
	if len(*s) == 0 {
		*s = kittyStack{0}
	}
	return *s
}

// tidy has one way to say that nothing is in use.
func (s *kittyStack) tidy() {
	if len(*s) == 0 || len(*s) == 1 && (*s)[0] == 0 {
		*s = nil
	}
}

func (s *kittyStack) push(flags int) {
	if *s = append(s.full(), uint8(flags&31)); len(*s) > kittyDepth {
		*s = append((*s)[:1], (*s)[2:]...) // the oldest is lost
	}
}

func (s *kittyStack) pop(n int) {
	*s = (*s)[:max(len(*s)-n, 0)]
	s.tidy()
}

// change replaces the flags in use (how 1), adds to them (2) or removes some (3).
func (s *kittyStack) change(flags, how int) {
	top := &s.full()[len(*s)-1]
	switch f := uint8(flags & 31); how {
	case 1:
		*top = f
	case 2:
		*top |= f
	case 3:
		*top &^= f
	}
	s.tidy()
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
