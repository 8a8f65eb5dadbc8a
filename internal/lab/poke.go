package lab

import (
	"encoding/json"
	"fmt"
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
