package top

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// Reader looks at what there is to be seen. What it takes is paid by who looks: the keeper, the guard and the broker are
// asked nothing.
type Reader struct {
	dir   state.Dir
	facts Facts
	stamp map[string]os.FileInfo // of published files, as they were read

	sockets sockowner.Table
	finder  *sockowner.Finder // nil: it may not be asked
	blind   string            // why not
	scanner *sockowner.Scanner
	scanned time.Time
	weighed time.Time
	log     *follower
}

// How often is looked at what takes longer.
const (
	scanSoon  = 2 * time.Second // for who has a socket that was not seen before
	scanEvery = 10 * time.Second
	weighTime = 5 * time.Second
)

// NewReader returns a Reader, which reads on until ctx ends.
func NewReader(ctx context.Context) *Reader {
	r := &Reader{stamp: map[string]os.FileInfo{}, log: &follower{}}
	r.log.ctx = ctx
	r.facts.Operator = os.Geteuid() == 0
	f, err := sockowner.Open()
	switch {
	case err == nil:
		r.finder = sockowner.NewFinder(f)
	case r.facts.Operator:
		r.blind = "bytes are not told by this kernel"
	default:
		r.blind = "bytes are told to root alone: docker exec -it -u root CONTAINER /usr/local/bin/agent-init top"
	}
	return r
}

// Look looks once.
func (r *Reader) Look() Facts {
	f := &r.facts
	f.At, f.Unseen = time.Now(), nil
	r.readState()
	f.Events = nil
	if f.State != nil {
		f.Events = r.log.since(f.State)
		if why := r.log.fault(); why != "" {
			f.Unseen = append(f.Unseen, why)
		}
	}
	r.readSockets()
	if f.State != nil && f.At.Sub(r.weighed) >= weighTime {
		r.weighed, f.Parts = f.At, weigh("/proc", f.State)
	}
	return *f
}

// changed says whether a published file is another than before.
func (r *Reader) changed(name string) bool {
	now, err := os.Stat(filepath.Join(string(r.dir), name))
	was := r.stamp[name]
	if err != nil || was != nil && os.SameFile(was, now) && was.ModTime().Equal(now.ModTime()) && was.Size() == now.Size() {
		return false
	}
	r.stamp[name] = now
	return true
}

func (r *Reader) readState() {
	f := &r.facts
	dir, err := state.Find()
	if err != nil {
		f.State, f.Unread, f.Leases, f.Grants, f.Policy = nil, state.NotRunning(err).Error(), nil, nil, nil
		clear(r.stamp)
		return
	}
	if dir != r.dir {
		clear(r.stamp)
	}
	r.dir = dir
	if s := (&state.State{}); r.changed(state.StatusFile) && dir.Read(state.StatusFile, s) == nil {
		f.State = s
	}
	if l := (&lease.Report{}); r.changed(state.LeasesFile) && dir.Read(state.LeasesFile, l) == nil {
		f.Leases = l
	}
	if g := (&grant.Report{}); r.changed(state.GrantsFile) && dir.Read(state.GrantsFile, g) == nil {
		f.Grants = g.Grants
	}
	if r.changed(state.PolicyFile) {
		if p, _, _, err := state.ReadRules(filepath.Join(string(dir), state.PolicyFile)); err == nil {
			f.Policy = p
		}
	}
}

func (r *Reader) readSockets() {
	f := &r.facts
	if r.finder != nil {
		if err := r.finder.Read(&r.sockets); err != nil {
			r.finder, r.blind = nil, "bytes are not told by this kernel"
		}
	}
	if r.finder == nil {
		f.Unseen = append(f.Unseen, r.blind)
		if err := r.sockets.ReadProc(); err != nil {
			f.Unseen = append(f.Unseen, "connections can't be seen: "+err.Error())
		}
	}
	f.Sockets = &r.sockets
	if err := r.readHolders(); err != nil {
		f.Unseen = append(f.Unseen, "processes can't be seen: "+err.Error())
	} else if f.State != nil && f.State.Mode == "sidecar" && len(r.sockets.Conns) > 0 && !r.anyHeld() {
		f.Unseen = append(f.Unseen, "processes of another container can't be seen from a sidecar")
	}
}

// anyHeld says whether a process was found for any of the connections.
func (r *Reader) anyHeld() bool {
	return slices.ContainsFunc(r.sockets.Conns, func(c sockowner.Conn) bool { return r.facts.Holders[c.Inode].PID != 0 })
}

// readHolders looks for who has a socket that is new, and now and then at all: a process may hand one on.
func (r *Reader) readHolders() error {
	f := &r.facts
	if f.State == nil {
		return nil
	}
	if r.scanner == nil {
		uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
		if f.Operator {
			agent, err := state.ReadAgent()
			if err != nil {
				return err
			}
			uid, gid = agent.Identity.UID, agent.Identity.GID
		}
		s, err := sockowner.NewScanner(uid, gid)
		if err != nil {
			return err
		}
		r.scanner = s
	}
	unknown := false
	for i := range r.sockets.Conns {
		if _, known := f.Holders[r.sockets.Conns[i].Inode]; !known {
			unknown = true
			break
		}
	}
	if since := f.At.Sub(r.scanned); since < scanSoon || !unknown && since < scanEvery {
		return nil
	}
	r.scanned, f.Holders = f.At, r.scanner.Holders()
	for i := range r.sockets.Conns {
		if inode := r.sockets.Conns[i].Inode; f.Holders[inode].PID == 0 {
			f.Holders[inode] = sockowner.Process{} // nobody that can be seen, and not to be looked for again at once
		}
	}
	return nil
}

// maxChildren bounds whom of the keeper's children is looked at: it has the agent's orphans as well.
const maxChildren = 64

// weigh says how much memory agent-init's own processes have (proc(5): status, and children of a thread).
func weigh(proc string, s *state.State) (parts []Part) {
	keeper := strconv.Itoa(s.Keeper.PID)
	names := map[string]string{}
	for uid, name := range map[uint32]string{s.Guard.UID: "guard", s.Broker.UID: "broker", s.Session.UID: "sessions"} {
		if uid != 0 {
			names[strconv.FormatUint(uint64(uid), 10)] = name
		}
	}
	pids := []string{keeper}
	tasks, _ := os.ReadDir(filepath.Join(proc, keeper, "task"))
	for _, t := range tasks[:min(len(tasks), maxChildren)] {
		children, _ := os.ReadFile(filepath.Join(proc, keeper, "task", t.Name(), "children"))
		pids = append(pids, strings.Fields(string(children))...)
	}
	for i, pid := range pids[:min(len(pids), maxChildren)] {
		uid, resident := weighed(filepath.Join(proc, pid, "status"))
		name := names[uid]
		if i == 0 {
			name = "keeper"
		}
		if number, err := strconv.Atoi(pid); err == nil && name != "" && resident > 0 {
			parts = append(parts, Part{name, number, resident})
		}
	}
	return parts
}

func weighed(file string) (uid string, resident uint64) {
	data, _ := os.ReadFile(file)
	for line := range bytes.Lines(data) {
		switch f := strings.Fields(string(line)); {
		case len(f) > 1 && f[0] == "Uid:":
			uid = f[1]
		case len(f) > 1 && f[0] == "VmRSS:":
			kib, _ := strconv.ParseUint(f[1], 10, 48)
			resident = kib << 10
		}
	}
	return uid, resident
}

// follower reads the log as it grows.
type follower struct {
	ctx     context.Context
	mu      sync.Mutex
	running bool
	events  []audit.Event
	lost    int
	why     string
	last    uint64 // number of the last event that was read of the past
}

const (
	maxWaiting = 8192    // events that wait to be taken
	pastBytes  = 1 << 20 // of the log, that are read at the start
)

// fault is what can't be told of the log, "" if there is nothing.
func (l *follower) fault() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.why != "":
		return "the log can't be read: " + l.why
	case l.lost > 0:
		return fmt.Sprintf("the log has grown too fast: %d of its lines are not counted", l.lost)
	}
	return ""
}

// since returns what was logged since the last call; at the first, what the end of the log has.
func (l *follower) since(s *state.State) []audit.Event {
	l.mu.Lock()
	start := !l.running
	l.running = true
	l.mu.Unlock()
	if start {
		l.start(s.Audit.File)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	return events
}

// start follows first and reads the past then, so that nothing is missed; what both have counts once.
func (l *follower) start(file string) {
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := audit.Follow(l.ctx, file, begun, l.take)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.running = false; err != nil {
			l.why = fmt.Sprint(err)
		}
	}()
	select {
	case <-begun:
	case <-ended:
		return
	}
	var past []audit.Event
	err := audit.Tail(file, pastBytes, func(raw []byte) {
		if e, err := audit.Decode(raw); err == nil {
			past = append(past, e)
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why = ""; err != nil {
		l.why = err.Error()
	}
	for _, e := range past {
		l.last = max(l.last, e.Seq)
	}
	for _, e := range l.events {
		if e.Seq > l.last {
			past = append(past, e)
		}
	}
	l.events = past
}

func (l *follower) take(raw []byte) {
	e, err := audit.Decode(raw)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || e.Seq <= l.last {
		return
	}
	if len(l.events) >= maxWaiting {
		l.lost++
		return
	}
	l.events = append(l.events, e)
}
