package scorecard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// Scene is what can happen to a container besides what its agent does. What is
// nil can't happen to it.
type Scene struct {
	// Restart ends the container and starts it again; the agent is another process
	// then.
	Restart func() error
	// Enter is one operation, as the agent's user, by a process that comes from
	// outside ("docker exec"). It may find no container.
	Enter func(args ...string) (lab.Poke, error)
	// Reload has the allowlist be this from now on.
	Reload func(list string) error
	// Fresh starts another container of the same kind, without one of the options
	// and with others, whose command is an operation. ran is false if it wasn't.
	Fresh func(change []string, args ...string) (p lab.Poke, ran bool, err error)
	// Log is what the agent can see of the log of decisions.
	Log func() (string, error)
}

// missing says in a word why an event can't happen here; "" if it can.
func (s *Setting) missing(event string, args []string) string {
	switch event {
	case "restart", "raced-restart":
		if s.Restart == nil || event == "raced-restart" && s.Enter == nil {
			return "not restarted"
		}
	case "reload":
		if s.Reload == nil && !s.Open {
			return "no reload"
		}
	case "guard":
		if !s.Guarded && !s.Open {
			return "no guard"
		}
	case "fresh":
		if s.Fresh == nil {
			return "starts no agent"
		}
		if !s.Engine && slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "+--pid=") }) {
			return "no engine"
		}
	case "log":
		if s.Log == nil {
			return "no log"
		}
	case "sleep", "forget", "flows", "send", "latency", "foreign", "needs":
	default:
		panic(fmt.Sprintf("scorecard: unknown event @%s", event))
	}
	return ""
}

// happen has an event take place. What the agent could do in it is appended to
// said.
func (s *Setting) happen(a *Attack, event []string, said *[]Said) error {
	args := event[1:]
	switch event[0] {
	case "restart":
		return s.Restart()
	case "raced-restart":
		return s.race(args, said)
	case "reload":
		if s.Reload == nil {
			return nil // nobody to change the mind of
		}
		list := allowlist
		if len(args) > 0 {
			list = strings.Join(args, "\n") + "\n"
		}
		return s.Reload(list)
	case "guard":
		return s.killGuard()
	case "fresh":
		change, op := args, []string(nil)
		for i, arg := range args {
			if arg == "do" {
				change, op = args[:i], args[i+1:]
			}
		}
		p, ran, err := s.Fresh(change, op...)
		if ran {
			*said = append(*said, Said{op, p})
		}
		return err
	case "sleep":
		d, err := time.ParseDuration(args[0])
		time.Sleep(d)
		return err
	case "forget":
		s.forget()
		return nil
	case "flows":
		return s.flows(args)
	case "send":
		return s.send(a, args[0])
	case "latency":
		d, err := time.ParseDuration(args[0])
		s.Lab.DNS.SetLatency(d)
		return err
	case "foreign":
		return s.Box.Net.Do(func() error { return foreign(len(args) == 0, s.Backend) })
	}
	return nil // @log and @needs: they are only needed
}

// flows waits for a packet to an address: for as long as it takes where one has to come, which is everywhere if no time is
// named, else in a container that nothing confines. Elsewhere it waits for that time.
func (s *Setting) flows(args []string) error {
	wait := lab.Patience
	if len(args) > 1 && !s.Open {
		var err error
		if wait, err = time.ParseDuration(args[1]); err != nil {
			return err
		}
	}
	to, err := netip.ParseAddr(args[0])
	for end := time.Now().Add(wait); err == nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if slices.ContainsFunc(s.Box.Packets(lab.Routed), func(p lab.Packet) bool { return p.Dst == to }) {
			break
		}
	}
	return err
}

// race restarts the container while others come in from outside, as fast as
// they can.
func (s *Setting) race(args []string, said *[]Said) error {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var got []Said
			for over := false; !over; {
				over = ctx.Err() != nil                     // once more when it has started
				if p, err := s.Enter(args...); err == nil { // else there was none to come in to
					got = append(got, Said{args, p})
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			*said = append(*said, got...)
		})
	}
	err := s.Restart()
	cancel()
	wg.Wait()
	return err
}

// send has the attack's server send datagrams from its port 53 to a port of the
// container.
func (s *Setting) send(a *Attack, port string) error {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	for range 10 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		c, err := s.Lab.Internet.Dial(ctx, "udp", netip.AddrPortFrom(s.Box.Addr4(), uint16(number)).String(), netip.AddrPortFrom(a.bad().v4, 53))
		cancel()
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("an order"))
		if err := errors.Join(err, c.Close()); err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, net.ErrClosed) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // until somebody listens
	}
	return nil
}

// killGuard kills the process of agent-init that speaks to the network.
func (s *Setting) killGuard() error {
	if !s.Guarded {
		return nil
	}
	inode, err := s.Box.Net.Inode()
	if err != nil {
		return err
	}
	want := fmt.Sprintf("net:[%d]", inode)
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range lines {
		dir := filepath.Dir(path)
		link, err := os.Readlink(dir + "/ns/net")
		if err != nil || link != want {
			continue
		}
		line, err := os.ReadFile(path)
		if args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"); err != nil || args[len(args)-1] != "guard" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}
		return unix.Kill(pid, unix.SIGKILL)
	}
	return errors.New("there is no guard to kill")
}
