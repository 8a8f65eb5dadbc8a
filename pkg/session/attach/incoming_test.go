package attach

import (
	"bytes"
	"testing"

	"github.com/agent-init/agent-init/pkg/session/internal/protocol"
)

// FuzzServerMessage: whatever the server sends, a client shows the same however
// it is cut.
func FuzzServerMessage(f *testing.F) {
	f.Add(protocol.AppendFrame(protocol.AppendFrame(nil, protocol.KindOutput, []byte("hello")), protocol.KindEnded, protocol.EncodeCode(3)), 2)
	f.Add(protocol.AppendFrame(nil, protocol.KindWindow, []byte(`{"id":1}`)), 1)
	f.Add(protocol.AppendHeader(nil, protocol.KindScreen, protocol.MaxFromServer+1), 5)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		feed := func(step int) (shown []byte, handled []string, err error) {
			var in incoming
			for rest := b; len(rest) > 0 && err == nil; rest = rest[min(step, len(rest)):] {
				err = in.feed(rest[:min(step, len(rest))], func(p []byte) error {
					shown = append(shown, p...)
					return nil
				}, func(k protocol.Kind, p []byte) error {
					handled = append(handled, string(k)+string(p))
					return nil
				})
			}
			return shown, handled, err
		}
		shown, handled, err := feed(max(1, len(b)))
		shown2, handled2, err2 := feed(max(1, cut&0xff))
		if !bytes.Equal(shown, shown2) || len(handled) != len(handled2) || (err == nil) != (err2 == nil) {
			t.Fatalf("at once %q %q %v, in pieces %q %q %v", shown, handled, err, shown2, handled2, err2)
		}
	})
}
