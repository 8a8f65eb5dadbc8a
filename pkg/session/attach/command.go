package attach

import (
	"cmp"
	"time"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
)

// command does what a key means that was pressed after the prefix.
func (a *attachment) command(key byte) {
	plain, read := a.o.Request.Plain, a.o.Request.Read
	switch {
	case key == 'd':
		a.leave()
	case key == '?' || key == '/': // the same key on many keyboards
		a.overlay(a.help())
	case key == 'a' && a.o.Requests.List != nil:
		a.overlay(a.requests())
	case key == '[' && !plain:
		a.overlay(a.scroll())
	case key == 'x' && !read:
		a.overlay(&ending{a})
	case key == 'c' || key == 't' || key == 'n' || key == 'p' || key >= '0' && key <= '9':
		a.send(frame.Switch, []byte{key})
		if a.over != nil {
			a.fault = cmp.Or(a.fault, a.shut())
		}
	}
}

func (a *attachment) overlay(v view) { a.fault = cmp.Or(a.fault, a.open(v)) }

func (a *attachment) leave() {
	if a.over != nil {
		a.fault = cmp.Or(a.fault, a.shut())
	}
	a.leaving = time.Now().Add(detachTime)
	if !a.retry.IsZero() { // nobody has to let us go
		a.retry, a.leaving = time.Time{}, time.Now()
	}
	a.send(frame.Detach, nil)
}

// took shows what came of an answer, if that is still what is looked at.
func (a *attachment) took(c came) error {
	if a.over == nil {
		return nil
	}
	if v, ok := a.over.view.(*requests); ok {
		v.take(c)
		return a.paint()
	}
	return nil
}
