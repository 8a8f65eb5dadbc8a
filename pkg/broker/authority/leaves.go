package authority

import (
	"container/list"
	"crypto/tls"
	"time"
)

// leaves are those that were made last. A wildcard has more names than there is memory for.
type leaves struct {
	by  map[string]*list.Element
	use list.List // of *kept, the last used in front
}

type kept struct {
	name        string
	certificate *tls.Certificate
}

const maxLeaves = 1024

// get is nil if there is none, or none that holds long enough.
func (l *leaves) get(name string, now time.Time) *tls.Certificate {
	e := l.by[name]
	if e == nil {
		return nil
	}
	c := e.Value.(*kept).certificate
	if now.Before(c.Leaf.NotBefore) || c.Leaf.NotAfter.Sub(now) < leafLeft { // a clock may also go back
		return nil
	}
	l.use.MoveToFront(e)
	return c
}

func (l *leaves) put(name string, c *tls.Certificate) {
	if l.by == nil {
		l.by = map[string]*list.Element{}
	}
	if e := l.by[name]; e != nil {
		e.Value = &kept{name, c}
		l.use.MoveToFront(e)
		return
	}
	if len(l.by) >= maxLeaves {
		delete(l.by, l.use.Remove(l.use.Back()).(*kept).name)
	}
	l.by[name] = l.use.PushFront(&kept{name, c})
}
