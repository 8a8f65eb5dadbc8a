package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Config is what a Server works with. Policy and Held are needed.
type Config struct {
	// Policy returns the policy in force. It is called for each decision, and
	// must return the same pointer until the policy changes.
	Policy func() *policy.Policy

	// Held says whether addr is leased to that very name on that port. An error
	// refuses the connection. It is asked when a connection is first used for a
	// name, concurrently; name is lower case and has no trailing dot.
	Held func(ctx context.Context, name string, addr netip.AddrPort) (bool, error)

	// Monitor lets a name through that the policy does not allow, or that has no
	// lease of the address, and records both verdicts. What has no name that
	// can be judged is refused as ever.
	Monitor bool

	// Direct, if set, says whether a connection to addr may pass without a look
	// inside: because the policy allows the address itself, or, on a port that the
	// gate can't look into, because the address is leased to a name, which is then
	// returned. An error refuses the connection. Nil means that the kernel lets
	// such connections pass by themselves: those that come here are refused.
	Direct func(ctx context.Context, addr netip.AddrPort) (name string, ok bool, err error)

	// Dial connects onward, always to the original destination. Nil is plain
	// TCP.
	Dial func(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error)

	// Original returns where a redirected connection was going to. Nil asks the
	// kernel (SO_ORIGINAL_DST), which needs listeners that don't speak MPTCP.
	Original func(*net.TCPConn) (netip.AddrPort, error)

	// Record takes one event per connection at its end, and one per HTTP
	// request; nil discards them.
	Record audit.Recorder

	// Find says who has made a connection that is refused, before it is cut:
	// behind it, the client may be gone. FindAllowed says it of connections that
	// are passed on, beside them. Nil finds nobody.
	Find, FindAllowed audit.Finder

	// Aside says that connections to name, or to addr, are not the clients' own doing
	// now, and not to be counted. Nil counts all.
	Aside func(name string, addr netip.Addr) bool

	Log    *slog.Logger // nil discards
	Limits Limits
}

// Limits bounds what clients may use up. Zero values mean the defaults.
type Limits struct {
	Connections int           // open at once; default 4096. A newer one is reset
	Sniffing    int           // of those: not judged yet; default 512. The oldest makes room
	HelloTime   time.Duration // for the whole ClientHello; default 5 s
	HeadTime    time.Duration // for a whole HTTP request head; default 10 s
	DialTime    time.Duration // for the onward connection; default 10 s
	HeldTime    time.Duration // for Held; default 2 s

	// Idle is how long a connection may carry nothing either way; default 2 h.
	// Peers that vanish are noticed within 2.5 minutes by TCP keep-alive.
	Idle time.Duration
}

// setDefaults fills in what is zero.
func (l *Limits) setDefaults() error {
	if l.Connections < 0 || l.Sniffing < 0 || l.HelloTime < 0 || l.HeadTime < 0 || l.DialTime < 0 || l.HeldTime < 0 || l.Idle < 0 {
		return errors.New("a limit is negative")
	}
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&l.Connections, 4096)
	orInt(&l.Sniffing, 512)
	orTime(&l.HelloTime, 5*time.Second)
	orTime(&l.HeadTime, 10*time.Second)
	orTime(&l.DialTime, 10*time.Second)
	orTime(&l.HeldTime, 2*time.Second)
	orTime(&l.Idle, 2*time.Hour)
	return nil
}

func (c *Config) setDefaults() error {
	switch {
	case c.Policy == nil:
		return errors.New("gateway: no policy is given")
	case c.Held == nil:
		return errors.New("gateway: no way to ask about leases is given")
	}
	if err := c.Limits.setDefaults(); err != nil {
		return fmt.Errorf("gateway: %v", err)
	}
	if c.Dial == nil {
		c.Dial = dial
	}
	if c.Original == nil {
		c.Original = originalDestination
	}
	if c.Record == nil {
		c.Record = audit.Discard
	}
	if c.Find == nil {
		c.Find = audit.Nobody
	}
	if c.FindAllowed == nil {
		c.FindAllowed = audit.Nobody
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
