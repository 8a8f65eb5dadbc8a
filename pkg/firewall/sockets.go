package firewall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// tcpEstablished is TCP_ESTABLISHED as /proc/net/tcp shows it.
const tcpEstablished = "01"

// connectionsOf returns where the established TCP connections of a uid go, each
// once, but for those that stay here. It stands in for connection tracking where
// there is none to read.
func connectionsOf(uid uint32) ([]Element, error) {
	var out []Element
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) { // the kernel has no IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		es, err := parseConnections(f, uid)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, es...)
	}
	slices.SortFunc(out, compareElements)
	return slices.Compact(out), nil
}

// parseConnections reads what is like /proc/net/tcp (proc_pid_net(5)).
func parseConnections(r io.Reader, uid uint32) ([]Element, error) {
	var out []Element
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 8 || fields[3] != tcpEstablished || fields[7] != strconv.FormatUint(uint64(uid), 10) {
			continue
		}
		local, lerr := parseProcAddr(fields[1])
		remote, rerr := parseProcAddr(fields[2])
		if lerr != nil || rerr != nil {
			return nil, errors.Join(lerr, rerr)
		}
		if remote.Addr().IsLoopback() || local.Addr().IsLoopback() || remote.Addr() == local.Addr() {
			continue
		}
		out = append(out, Element{Addr: remote.Addr(), Proto: plan.ProtoTCP, Port: remote.Port()})
	}
	return out, sc.Err()
}

// guardFlows returns where the guard is connected to: nobody else is connected to
// anything outside.
func (f *Firewall) guardFlows(ctx context.Context) ([]Use, error) {
	var out []Use
	err := f.rules.do(ctx, func() error {
		if f.last == nil {
			return nil
		}
		es, err := connectionsOf(f.last.Guard)
		for _, e := range es {
			out = append(out, Use{Element: e})
		}
		return nfnetlink.Explain("list flows", err)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
