package filter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestRelatedFlowsAreJudged, rig.Everywhere)

// TestRelatedFlowsAreJudged: a helper of connection tracking reads FTP and expects the
// data connections that it speaks of. Expected isn't allowed.
func TestRelatedFlowsAreJudged(t *testing.T) {
	w := rig.Confine(t, "ok.test:21\n", lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	w.Lab.Claim("tcp", 21)
	l, err := w.Lab.Internet.Listen("tcp4", "0.0.0.0:21")
	rig.Must(t, err)
	defer l.Close()
	active := make(chan error, 2)
	go serveFTP(w, l, active)
	for _, b := range []*lab.Box{w.Box, open} {
		rig.Must(t, b.Net.Do(ftpHelper))
		const passive = `exec 3<>/dev/tcp/$0/21; read hello <&3; printf 'PASV\r\n' >&3; read reply <&3; exec 4<>/dev/tcp/$0/5555 && echo through`
		cmd := []string{"bash", "-c", passive, ok4.String()}
		run := func(cmd []string) string {
			t.Helper()
			c := lab.Cmd{Args: cmd, UID: lab.AgentUID}
			if b == w.Box {
				c = lab.Cmd{Args: append([]string{"agent-init", "exec", "--"}, cmd...)}
			}
			r := b.Exec(c)
			if r.TimedOut {
				t.Errorf("open box: %t: hangs: %s", b == open, r)
			}
			return r.Stdout
		}
		if got := run(cmd); (got == "through\n") != (b == open) {
			t.Errorf("open box: %t: passive: %q", b == open, got)
		}
		w.AsAgent(b, "listen", "-for", "60s", ":5001")
		w.Bound(b, "tcp6", 5001)
		port := fmt.Sprintf("PORT %s,19,137", strings.ReplaceAll(b.Addr4().String(), ".", ","))
		got := run([]string{"bash", "-c", `exec 3<>/dev/tcp/$0/21; read hello <&3; printf 'NOOP\r\n' >&3; read ok <&3; printf '%s\r\n' "$1" >&3; read reply <&3`, ok4.String(), port})
		select {
		case err := <-active:
			if (err == nil) != (b == open) {
				t.Errorf("open box: %t: active: %v", b == open, err)
			}
		case <-time.After(lab.Patience):
			t.Fatalf("proves nothing: open box: %t: the server did not come: %s", b == open, got)
		}
		// The helper must have done its work, else this shows nothing.
		out, in, err := related(w, b)
		rig.Must(t, err)
		if out == 0 || in == 0 {
			t.Errorf("proves nothing: open box: %t: %d related packets out, %d in", b == open, out, in)
		}
	}
	w.Sealed(lab.ToPort(unix.IPPROTO_TCP, 5555))
	w.Sealed(func(p *lab.Packet) bool { return p.SrcPort == 5001 })
}

// serveFTP says what a server would say, and makes an active data connection.
func serveFTP(w *rig.World, l net.Listener, active chan<- error) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			server := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			client := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			fmt.Fprint(c, "220 ready\r\n")
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				switch {
				case lines.Text() == "PASV":
					fmt.Fprintf(c, "227 Entering Passive Mode (%s,21,179).\r\n", strings.ReplaceAll(server.String(), ".", ","))
				case strings.HasPrefix(lines.Text(), "PORT "):
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					data, err := w.Lab.Internet.Dial(ctx, "tcp", netip.AddrPortFrom(client, 5001).String(), netip.AddrPortFrom(server, 20))
					cancel()
					if err == nil {
						data.Close()
					}
					active <- err
					fmt.Fprint(c, "200 done\r\n")
				default:
					fmt.Fprint(c, "200 fine\r\n")
				}
			}
		}()
	}
}

const helperTable = "ftp"

// ftpHelper has the thread's network namespace watch port 21, and counts what
// is related to its flows.
func ftpHelper() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: helperTable})
	c.AddObj(&nftables.NamedObj{Table: table, Name: "ftp", Type: nftables.ObjTypeCtHelper,
		Obj: &expr.CtHelper{Name: "ftp", L3Proto: unix.NFPROTO_IPV4, L4Proto: unix.IPPROTO_TCP}})
	for name, hook := range map[string]*nftables.ChainHook{"output": nftables.ChainHookOutput, "input": nftables.ChainHookInput} {
		chain := c.AddChain(&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityRef(-150)}) // after conntrack, before the filters
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0, 21}},
			&expr.Objref{Type: int(nftables.ObjTypeCtHelper), Name: "ftp"},
		}})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitRELATED), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Counter{},
		}})
	}
	return c.Flush()
}

// related is how many TCP packets of expected flows ftpHelper counted.
func related(w *rig.World, b *lab.Box) (out, in uint64, err error) {
	err = b.Net.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: helperTable}
		for name, n := range map[string]*uint64{"output": &out, "input": &in} {
			rules, err := c.GetRules(table, &nftables.Chain{Table: table, Name: name})
			if err != nil {
				return err
			}
			if len(rules) != 2 {
				return errors.New("the counting rules are gone")
			}
			for _, e := range rules[1].Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					*n = counter.Packets
				}
			}
		}
		return nil
	})
	return out, in, err
}
