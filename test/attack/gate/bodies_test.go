package gate

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestChunkExtensionSmugglesNothing: a chunk's line that a server which knows no chunks
// would take for a request.
func TestChunkExtensionSmugglesNothing(t *testing.T) {
	g := gate(t)
	head := request("POST / HTTP/1.1", "Host: many.test", "Transfer-Encoding: chunked")
	for what, line := range map[string]string{
		"a blank":     "25;x /smuggled HTTP/1.1",
		"a tab":       "25;x\t/smuggled\tHTTP/1.1",
		"quoted":      `25;x=" /smuggled HTTP/1.1"`,
		"not a token": "25;x=/smuggled",
	} {
		t.Run(what, func(t *testing.T) {
			g.of(t).unpassed(head+line+"\r\n"+strings.Repeat("x", 0x25)+"\r\n0\r\n\r\n", "malformed chunk", true)
		})
	}
}

// deaf serves as some servers do that expect no body: what follows a head is the
// next request. It says which hosts were asked for.
func deaf(w *rig.World, a netip.Addr) (hosts func() []string) {
	w.Helper()
	l, err := w.Lab.Internet.Listen("tcp", rig.At(a, 80))
	rig.Must(w.T, err)
	w.Cleanup(func() { l.Close() })
	var mu sync.Mutex
	var asked []string
	serve := func(c net.Conn) {
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		for b := bufio.NewReader(c); ; {
			q, err := http.ReadRequest(b)
			if err != nil {
				return
			}
			mu.Lock()
			asked = append(asked, q.Host)
			mu.Unlock()
			q.Body = nil // which stays where it is
			fmt.Fprint(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
			if q.Close {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
}

// TestIgnoredBodySmugglesNothing: a body that the server overlooks (CL.0) is no request, since
// nothing is one behind the request that has a body.
func TestIgnoredBodySmugglesNothing(t *testing.T) {
	g := gate(t)
	for _, method := range []string{"POST", "DELETE", "OPTIONS", "FROB"} {
		t.Run(method, func(t *testing.T) {
			g := g.of(t)
			a := g.next()
			hosts := deaf(g.World, a)
			send := request(method+" / HTTP/1.1", "Host: many.test", "Connection: keep-alive", fmt.Sprintf("Content-Length: %d", len(smuggled))) + smuggled
			args := g.bytes(rig.At(a, 80), []byte(send), "-all", "-timeout", "2s")
			g.open.Poke(1000, args...)
			if got := hosts(); !slices.Equal(got, []string{"many.test", "shared.test"}) {
				t.Fatalf("proves nothing, without confinement %q were asked for", got)
			}
			p := g.Poke(args...)
			if answer := fmt.Sprint(p.Detail["received"]); !strings.HasPrefix(answer, "HTTP/1.1 404 ") || !strings.Contains(answer, "Connection: close") {
				t.Errorf("the client was not told: %s", p)
			}
			if got := hosts(); !slices.Equal(got, []string{"many.test", "shared.test", "many.test"}) {
				t.Errorf("asked for: %q", got)
			}
		})
	}
}
