package race

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// line is a connection that says when it is closed.
type line struct{ closed chan struct{} }

func (l line) Close() error {
	close(l.closed)
	return nil
}

func addrs(all string) (list []netip.Addr) {
	for _, s := range strings.Fields(all) {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

const never = time.Hour

// net is where addresses that begin with 1 refuse, those with 3 answer, and all others say nothing.
type net struct {
	mu          sync.Mutex
	tried       []netip.Addr
	under, most int
	closed      chan struct{}
}

func (n *net) dial(ctx context.Context, a netip.Addr) (line, error) {
	n.mu.Lock()
	n.tried = append(n.tried, a)
	n.under++
	n.most = max(n.most, n.under)
	n.mu.Unlock()
	defer func() { n.mu.Lock(); n.under--; n.mu.Unlock() }()
	switch a.String()[0] {
	case '1':
		return line{}, syscall.ECONNREFUSED
	case '3':
		return line{n.closed}, nil
	}
	<-ctx.Done()
	return line{}, ctx.Err()
}

func (n *net) race(others string, after time.Duration, room Room) Race[line] {
	return Race[line]{Dial: n.dial, Others: func(context.Context) []netip.Addr { return addrs(others) }, After: after, Room: room}
}

// TestConnect: the first address is tried first, those that refuse are followed at once, and silent ones in their time.
func TestConnect(t *testing.T) {
	for _, tt := range []struct {
		what, first, others string
		after               time.Duration
		want, tried         string
	}{
		{"it answers", "3::1", "300::1 3.0.0.1", never, "3::1", "3::1"},
		{"refused, the other family follows at once", "1::1", "1::2 3.0.0.1 3::1", never, "3.0.0.1", "1::1 3.0.0.1"},
		{"all of them but the last", "1::1", "1::2 1.0.0.1 1::1 1.0.0.2 3::9", never, "3::9", "1::1 1.0.0.1 1::2 1.0.0.2 3::9"},
		{"silent", "2::1", "2.0.0.1 3::1", time.Millisecond, "3::1", "2::1 2.0.0.1 3::1"},
	} {
		n := &net{}
		_, at, err := n.race(tt.others, tt.after, nil).Connect(t.Context(), addrs(tt.first)[0])
		if err != nil || at.String() != tt.want || !slices.Equal(n.tried, addrs(tt.tried)) {
			t.Errorf("%s: %v, %v, tried %v; want %s after %s", tt.what, at, err, n.tried, tt.want, tt.tried)
		}
	}
}

// TestNobodyAnswers: the failure is that of the first, with how many more there were.
func TestNobodyAnswers(t *testing.T) {
	n := &net{}
	_, _, err := n.race("1.0.0.1 1.0.0.2", never, nil).Connect(t.Context(), addrs("1::1")[0])
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.HasSuffix(err.Error(), ", and 2 more failed") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := n.race("2.0.0.1", never, nil).Connect(ctx, addrs("2::1")[0]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if _, _, err := (Race[line]{Dial: n.dial, After: never}).Connect(t.Context(), addrs("1::1")[0]); err == nil || strings.Contains(err.Error(), "more") {
		t.Error(err)
	}
}

// TestRoom: where there is no room, one attempt at a time is under way, and each that ends makes place for the next.
func TestRoom(t *testing.T) {
	full := make(Room, 1)
	full <- struct{}{}
	n := &net{}
	if _, at, err := n.race("1.0.0.1 1.0.0.2 3.0.0.1", never, full).Connect(t.Context(), addrs("1::1")[0]); err != nil || at.String() != "3.0.0.1" || n.most != 1 {
		t.Errorf("%v, %v, %d at once", at, err, n.most)
	}
	<-full
	n = &net{}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := n.race("2.0.0.1 2.0.0.2 2.0.0.3 2::2", time.Millisecond, full).Connect(ctx, addrs("2::1")[0])
	full <- struct{}{} // what was given up has made room
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || n.most > 2 {
		t.Errorf("%v, %d at once", err, n.most)
	}
}

// TestLateConnection: one that is made after another has won is closed.
func TestLateConnection(t *testing.T) {
	closed := make(chan struct{})
	r := Race[line]{After: time.Millisecond, Others: func(context.Context) []netip.Addr { return addrs("3.0.0.1") }}
	r.Dial = func(ctx context.Context, a netip.Addr) (line, error) {
		if a.Is6() {
			<-ctx.Done()
		}
		return line{closed}, nil
	}
	if _, at, err := r.Connect(t.Context(), addrs("2::1")[0]); err != nil || !at.Is4() {
		t.Errorf("%v, %v", at, err)
	}
	<-closed
}
