package session

import (
	"testing"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// What the last client's terminal told is answered when there is none.
func TestLearn(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(protocol.Request{Cols: 80, Rows: 24})
	v.got(frame.Screen)
	v.send(frame.Input, "\x1b]10;rgb:ffff/eeee/dddd\x1b\\\x1b]11;rgb:10/20/30\x07\x1b[?0u")
	p.typed("\x1b[?0u")
	v.send(frame.Detach, "")
	v.got(frame.Done)
	p.print("\x1b]11;?\x1b\\")
	p.typed("\x1b]11;rgb:1010/2020/3030\x1b\\")
	p.print("\x1b[?u")
	p.typed("\x1b[?0u")
}
