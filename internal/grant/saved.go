package grant

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
)

// maxSaved is how many entries may be saved. Who has more of them writes files of a policy. What a person has written
// into the file beyond maxRead is in force as well, but not listed.
const (
	maxSaved = 256
	maxRead  = 4 * maxSaved
)

// savedHead begins a file that a save has made.
const savedHead = `# What people have allowed and denied for good, by agent-init allow --save and deny --save.
# It is read behind the files of /etc/agent-init. Edit it as you like: it is in force within three seconds.
`

// ReadSaved are the entries of data, a file of what was saved, in its order and without numbers. What is no entry is left
// out: whoever reads the policy says so.
func ReadSaved(data []byte) (out []Grant) {
	for line := range strings.Lines(string(data)) {
		if len(out) == maxRead {
			break
		}
		if g, ok := readSaved(line); ok {
			out = append(out, g)
		}
	}
	return out
}

func readSaved(line string) (g Grant, ok bool) {
	entry, comment, _ := strings.Cut(strings.TrimPrefix(line, "\ufeff"), "#")
	l, err := policy.ParseLine(strings.TrimRight(entry, "\r\n"), allowlist.Files)
	if err != nil {
		return g, false
	}
	g = Grant{Kind: Allow, Target: l.Text, Saved: true}
	if l.Deny {
		g.Kind, g.Target = Deny, strings.TrimPrefix(l.Text, "!")
	}
	g.readComment(strings.TrimSpace(comment))
	return g, true
}

// comment says behind an entry when it was saved, by whom and why: 2026-11-23T10:04:05Z by uid 0: the reason.
func (g Grant) comment() string {
	s := fmt.Sprintf("%s by %s", g.Made.UTC().Format(time.RFC3339), g.By())
	if g.Reason != "" {
		s += ": " + text.Clean(g.Reason)
	}
	return s
}

// readComment reads what comment writes. What a person has written by hand is a reason.
func (g *Grant) readComment(s string) {
	g.Reason = text.Clean(s)
	whole, reason, _ := strings.Cut(s, ": ")
	when, who, _ := strings.Cut(whole, " by ")
	made, err := time.Parse(time.RFC3339, when)
	number, _ := strings.CutPrefix(who, "uid ")
	uid, e := strconv.ParseUint(number, 10, 32)
	seat := who == by(0, true, nil)
	if err == nil && (e == nil || seat) {
		g.Made, g.UID, g.Seat, g.Reason = made, uint32(uid), seat, text.Clean(reason)
	}
}

// EditSaved is data without the lines of gone, and with those of made behind the rest. All others stay as they are.
func EditSaved(data []byte, gone, made []Grant) []byte {
	var b bytes.Buffer
	if len(data) == 0 {
		b.WriteString(savedHead)
	}
	for line := range strings.Lines(string(data)) {
		if g, ok := readSaved(line); !ok || !slices.ContainsFunc(gone, g.says) {
			b.WriteString(line)
		}
	}
	if n := b.Len(); n > 0 && b.Bytes()[n-1] != '\n' {
		b.WriteByte('\n')
	}
	for _, g := range made {
		entry := g.Target
		if g.Kind == Deny {
			entry = "!" + entry
		}
		fmt.Fprintf(&b, "%-40s # %s\n", entry, g.comment())
	}
	return b.Bytes()
}

// says whether two grants say the same.
func (g Grant) says(other Grant) bool { return g.Kind == other.Kind && g.Target == other.Target }

// Adopt takes in what was read of a file as the saved grants of b. One that b has already keeps its number.
func (b *Book) Adopt(saved []Grant) {
	var has, list []Grant
	for _, g := range b.List {
		if !g.Saved {
			list = append(list, g)
		} else {
			has = append(has, g)
		}
	}
	for i, g := range saved {
		if slices.ContainsFunc(saved[:i], g.says) {
			continue
		}
		if j := slices.IndexFunc(has, g.says); j >= 0 {
			g.Number, g.PID = has[j].Number, has[j].PID
		} else {
			b.last++
			g.Number = b.last
		}
		list = append(list, g)
	}
	b.List = list
}

// SavedSince are the saved grants that b has and old has not, and those that b has no more.
func (b Book) SavedSince(old Book) (made, gone []Grant) {
	lacks := func(from, in Book) (out []Grant) {
		for _, g := range from.List {
			if g.Saved && !slices.ContainsFunc(in.List, func(h Grant) bool { return h.Saved && h.Number == g.Number }) {
				out = append(out, g)
			}
		}
		return out
	}
	return lacks(b, old), lacks(old, b)
}
