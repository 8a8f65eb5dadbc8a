package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Poke is the verdict of one operation of cmd/poke, tried inside a box.
type Poke struct {
	Op     string         `json:"op"`
	OK     bool           `json:"ok"`     // the operation did what it was to do
	Err    string         `json:"err"`    // else why not
	Errno  string         `json:"errno"`  // name of the system call's error, as "ECONNREFUSED"; empty if none was behind it
	Detail map[string]any `json:"detail"` // depends on the operation, see cmd/poke
	Ms     float64        `json:"ms"`     // how long it took, in milliseconds
}

// String is one line for messages of tests.
func (p Poke) String() string {
	return fmt.Sprintf("%s ok=%t err=%q errno=%s detail=%v %.1f ms", p.Op, p.OK, p.Err, p.Errno, p.Detail, p.Ms)
}

// Poke runs one operation of cmd/poke in the running box, as "docker exec -u
// uid" would. See that command's documentation for the operations.
func (b *Box) Poke(uid uint32, args ...string) Poke {
	b.lab.tb.Helper()
	r := b.Exec(Cmd{Args: append([]string{"/usr/local/bin/poke"}, args...), UID: uid})
	p, err := ParsePoke(r.Stdout)
	if err != nil {
		b.lab.tb.Fatalf("lab: poke %v: %v: %s", args, err, r)
	}
	return p
}

// ParsePoke reads the line that cmd/poke printed, where something else than
// Box.Poke has run it. It fails on anything but exactly that line.
func ParsePoke(out string) (Poke, error) {
	var p Poke
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		return p, fmt.Errorf("output of poke: %w", err)
	}
	return p, nil
}

// Obedient is a poke in a box that does one operation after another, see
// "poke obey". A start for each takes longer than most of them.
type Obedient struct {
	*Process
	orders *os.File
	done   int // operations

	mu sync.Mutex
}

// ExecObedient starts one as ExecStart would start c, whose last argument is to
// be the poke. Close ends it.
func (b *Box) ExecObedient(c Cmd) (*Obedient, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c.Args, c.Input = append(c.Args, "obey"), r
	p, err := b.tryExec(c)
	if err != nil {
		w.Close()
		return nil, err
	}
	return &Obedient{Process: p, orders: w}, nil
}

// ErrNotDone says that there was nobody to do the operation.
var ErrNotDone = errors.New("another operation is under way, or the poke has ended")

// Poke has one operation done, or returns ErrNotDone.
func (o *Obedient) Poke(args ...string) (p Poke, err error) {
	if !o.mu.TryLock() {
		return p, ErrNotDone
	}
	defer o.mu.Unlock()
	order, err := json.Marshal(args)
	if err == nil {
		_, err = o.orders.Write(append(order, '\n'))
	}
	if err != nil {
		return p, ErrNotDone
	}
	late := time.NewTimer(2 * Patience)
	defer late.Stop()
	for {
		changed := o.out.changed()
		if lines := strings.SplitAfter(o.Stdout(), "\n"); len(lines) > o.done+1 {
			o.done++
			if p, err = ParsePoke(lines[o.done-1]); err == nil && p.Detail == nil && p.Ms == 0 {
				err = fmt.Errorf("it has no verdict: %s: %s", p.Err, o.Stderr())
			}
			return p, err
		}
		select {
		case <-changed:
		case <-o.Done():
			return p, ErrNotDone
		case <-late.C:
			return p, fmt.Errorf("poke %v: no verdict within %v", args, 2*Patience)
		}
	}
}

// Ended says whether it has.
func (o *Obedient) Ended() bool {
	select {
	case <-o.Done():
		return true
	default:
		return false
	}
}

// Close has it end when it has done what it is at.
func (o *Obedient) Close() error { return o.orders.Close() }
