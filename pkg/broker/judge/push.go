package judge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agent-init/agent-init/pkg/route"
)

// Push is what a request to git-receive-pack says before the pack: https://git-scm.com/docs/pack-protocol.
type Push struct {
	Refs []string // that are to be created, changed or deleted

	reports  bool // the client reads what has come of each ref
	sideband bool // in a stream of several
	options  bool // more follows that asks the server for something
}

const (
	// MaxCommands are the bytes of all commands: some 8,000 refs.
	MaxCommands = 1 << 20
	maxLine     = 65520 // of a pkt-line: https://git-scm.com/docs/protocol-common
	maxRef      = 1024
)

// ReadPush reads up to the end of the commands, of which nothing has gone on yet, and judges all of them. One that may
// not pass has none pass. err says that not all of them came.
func ReadPush(r *route.Route, from io.Reader) (p *Push, refused *Refusal, err error) {
	p = &Push{}
	limited := &io.LimitedReader{R: from, N: MaxCommands}
	for {
		line, flush, err := readLine(limited)
		switch {
		case err != nil && limited.N <= 0:
			return p, refuse("size", "the push has more than %d bytes of commands: push fewer refs at once", MaxCommands), nil
		case errors.Is(err, errPktLine):
			return p, notCommands(), nil
		case err != nil:
			return p, nil, err
		case flush:
			return p, p.Judge(r), nil
		}
		if refused := p.command(line); refused != nil {
			return p, refused, nil
		}
	}
}

func notCommands() *Refusal { return refuse("push", "the push does not begin with commands of git's") }

// errPktLine is one that is none.
var errPktLine = errors.New("no pkt-line")

// readLine reads one pkt-line, or the flush behind all.
func readLine(from io.Reader) (line []byte, flush bool, err error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, false, err
	}
	n := 0
	for _, c := range size {
		digit := strings.IndexByte("0123456789abcdef", c)
		if digit < 0 {
			return nil, false, errPktLine
		}
		n = n<<4 | digit
	}
	switch {
	case n == 0:
		return nil, true, nil
	case n <= len(size) || n > maxLine:
		return nil, false, errPktLine
	}
	line = make([]byte, n-len(size))
	_, err = io.ReadFull(from, line)
	return line, false, err
}

// command takes one line: "OLD NEW REF", the first one with capabilities behind a NUL. git reads them behind any, so
// they are refused there.
func (p *Push) command(line []byte) *Refusal {
	text, capabilities, capable := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte{0})
	if id, ok := bytes.CutPrefix(text, []byte("shallow ")); ok && !capable && isObject(id) {
		return nil // where the history of who pushes ends
	}
	if bytes.HasPrefix(text, []byte("push-cert")) {
		return refuse("push", "a signed push is not read by agent-init: push without --signed (push.gpgSign)")
	}
	from, rest, _ := bytes.Cut(text, []byte(" "))
	to, ref, _ := bytes.Cut(rest, []byte(" "))
	if !isObject(from) || !isObject(to) || len(from) != len(to) || capable && len(p.Refs) > 0 {
		return notCommands()
	}
	if !isRef(string(ref)) {
		return refuse("push", "%s is not the name of a ref, as in refs/heads/main", quote(ref, 100))
	}
	p.Refs = append(p.Refs, string(ref))
	if capable {
		return p.capable(string(capabilities))
	}
	return nil
}

// capable takes what the client can. What nobody here knows might have the server read the rest in another way. git
// takes a tab or the end of a line for a blank, too.
func (p *Push) capable(capabilities string) *Refusal {
	if strings.ContainsFunc(capabilities, func(c rune) bool { return c < ' ' || c > '~' }) {
		return notCommands()
	}
	for word := range strings.SplitSeq(capabilities, " ") {
		name, _, _ := strings.Cut(word, "=")
		switch name {
		case "report-status", "report-status-v2":
			p.reports = true
		case "side-band-64k":
			p.sideband = true
		case "push-options":
			p.options = true
		case "", "delete-refs", "quiet", "atomic", "ofs-delta", "object-format", "agent", "session-id":
		default:
			return refuse("push", "capability %s of git's is not known to agent-init", quote(name, 64))
		}
	}
	return nil
}

// Judge judges all commands together.
func (p *Push) Judge(r *route.Route) *Refusal {
	if len(r.Git.Branches) == 0 {
		return nil
	}
	if p.options {
		return refuse("push", "push options could have the server merge or more, and route %s limits what may be pushed (branches)", r.Name)
	}
	for _, ref := range p.Refs {
		if !r.Git.Pushes(ref) {
			return refuse("push", "%s is not among what route %s may push (branches: %s)", quote(ref, 100), r.Name, strings.Join(r.Git.Branches, ", "))
		}
	}
	return nil
}

// isObject says whether a text is the name of an object, in SHA-1 or SHA-256.
func isObject(id []byte) bool {
	return (len(id) == 40 || len(id) == 64) && len(bytes.Trim(id, "0123456789abcdef")) == 0
}

// isRef says whether a name is one that git takes for a ref (git-check-ref-format(1)), in UTF-8.
func isRef(name string) bool {
	if !strings.HasPrefix(name, "refs/") || len(name) > maxRef || !utf8.ValidString(name) || strings.HasSuffix(name, ".") ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return !unicode.IsPrint(c) || strings.ContainsRune(" ~^:?*[\\", c) // IsPrint: no control, and nothing that turns text around
	})
}

// Refused is the answer of a server that takes none of the refs, in which git shows the reason for each. It is not ok
// for a client that reads no such answer.
func (p *Push) Refused(refused *Refusal) (answer []byte, ok bool) {
	if !p.reports || len(p.Refs) == 0 {
		return nil, false
	}
	why := "refused by agent-init: " + refused.Text
	var report bytes.Buffer
	report.Write(pktLine("unpack ok\n"))
	for _, ref := range p.Refs {
		report.Write(pktLine("ng " + ref + " " + why + "\n"))
	}
	report.WriteString("0000")
	if !p.sideband {
		return report.Bytes(), true
	}
	for report.Len() > 0 {
		answer = append(answer, pktLine("\x01"+string(report.Next(maxLine/2)))...)
	}
	return append(answer, "0000"...), true
}

// pktLine frames a text, which is not longer than a line may be.
func pktLine(text string) []byte { return fmt.Appendf(nil, "%04x%s", len(text)+4, text) }
