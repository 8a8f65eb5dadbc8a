package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Each line has the SHA-256 of the line before it, without the newline. Who alters, removes, adds or moves one breaks
// the chain there, unless all that follows is made anew. What the last line was is noted in a file beside the log, which
// a log that begins again is held against, and where others can see it.

// HeadName is the file beside the log that says which lines it has.
const HeadName = "audit.head"

// Tampered begins the reason of an event that says that the log is not as its writer left it.
const Tampered = "the audit log was changed by somebody else"

const noteSize = 160 // of a note: it is written in one place, over the one before

var noHash = strings.Repeat("0", 2*sha256.Size) // stands in the first line of all

// Head is a place in the log: the number of a line, and its SHA-256.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// note says which lines a log has: from the first that is kept to its head.
type note struct {
	First uint64 `json:"first"`
	Head
}

// link is what the chain needs of a line. Fields of a later version are none of its business.
type link struct {
	Seq        uint64  `json:"seq"`
	Kind       Kind    `json:"event"`
	Verdict    Verdict `json:"verdict"`
	Reason     string  `json:"reason"`
	Suppressed uint64  `json:"suppressed"`
	Prev       string  `json:"prev"` // "": a version without hashes wrote it
}

// linkOf reads a line, which may be anything.
func linkOf(line []byte) (l link, ok bool) {
	err := json.Unmarshal(line, &l)
	return l, err == nil && l.Seq > 0 && l.Seq <= math.MaxInt64
}

func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// Head is the last line that was written.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// resume goes on where the log ended, which is where its note says. Where it is not, that is for the next line to say.
func (l *Log) resume() error {
	last, hash, rest, err := l.lastLine()
	if err != nil {
		return err
	}
	n, err := readNote(OpenFile(l.dir, HeadName, unix.O_RDONLY, 0))
	if missing := errors.Is(err, unix.ENOENT); err != nil && (!missing || last.Prev != "") {
		l.found = fmt.Sprintf("what its last line was is not known any more: %v", err)
	}
	l.seq, l.head, l.first = last.Seq, Head{last.Seq, hash}, n.First
	if err == nil {
		if l.found = n.differs(last, hash); l.found != "" && last.Prev != n.Hash {
			l.seq, l.head = max(n.Seq, last.Seq), n.Head
		}
	}
	if l.found == "" && rest {
		l.found = fmt.Sprintf("behind its line %d stands something that is no line of it, or the line was cut", last.Seq)
	}
	if l.first == 0 {
		l.first = l.oldest(l.files - 1)
	}
	return nil
}

// differs says what is wrong with the last line of a log.
func (n note) differs(last link, hash string) string {
	switch {
	case last.Seq < n.Seq:
		return fmt.Sprintf("its last line was %d, and is %d", n.Seq, last.Seq)
	case last.Seq > n.Seq:
		return fmt.Sprintf("its last line was %d, and is %d, if that was not written in the moment in which agent-init was killed", n.Seq, last.Seq)
	case hash != n.Hash:
		return fmt.Sprintf("its last line, %d, is another one", n.Seq)
	}
	return ""
}

// lastLine finds the last event in the present file or, if that was just begun, in the one before it: Seq 0 if there is
// none. rest says that something else stands behind it, or that it has no end: a crash or a full disk may have cut it.
func (l *Log) lastLine() (last link, hash string, rest bool, err error) {
	last, hash, rest, err = lastOf(l.file)
	if err != nil || last.Seq > 0 {
		return last, hash, rest, err
	}
	old, err := OpenFile(l.dir, numbered(FileName, 1), unix.O_RDONLY, 0)
	if err != nil {
		return last, hash, rest, there(err)
	}
	defer old.Close()
	last, hash, cut, err := lastOf(old)
	return last, hash, rest || cut, err
}

const tailSize = 64 << 10 // how much of a file's end is read to find its last event: many times a line

func lastOf(f *os.File) (last link, hash string, rest bool, err error) {
	st, err := f.Stat()
	if err != nil {
		return last, noHash, false, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	tail := make([]byte, min(st.Size(), tailSize))
	if _, err := f.ReadAt(tail, st.Size()-int64(len(tail))); err != nil && len(tail) > 0 {
		return last, noHash, false, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	whole, ended := bytes.CutSuffix(tail, []byte{'\n'})
	rest = len(tail) > 0 && !ended
	for _, line := range slices.Backward(bytes.Split(whole, []byte{'\n'})) {
		if last, ok := linkOf(line); ok {
			return last, hashOf(line), rest, nil
		}
		rest = len(tail) > 0
	}
	return link{}, noHash, rest, nil
}

// oldest is the number of the first line in the oldest of the files up to the one of that number, 0 if there is none.
func (l *Log) oldest(of int) uint64 {
	for i := of; i >= 0; i-- {
		f, err := OpenFile(l.dir, numbered(FileName, i), unix.O_RDONLY, 0)
		if err != nil {
			continue
		}
		start := make([]byte, maxEncoded+1)
		n, _ := io.ReadFull(f, start)
		f.Close()
		line, _, _ := bytes.Cut(start[:n], []byte{'\n'})
		if first, ok := linkOf(line); ok {
			return first.Seq
		}
	}
	return 0
}

// chain takes a line that was written, and notes it.
func (l *Log) chain(seq uint64, line []byte) {
	l.head = Head{seq, hashOf(line)}
	if l.first == 0 {
		l.first = seq
	}
	before := l.unnoted
	if l.unnoted = l.note(); (before == nil) != (l.unnoted == nil) {
		l.tell()
	}
}

// note writes down which lines there are. It is found out if somebody has removed the file.
func (l *Log) note() error {
	var st unix.Stat_t
	if l.noted != nil && (unix.Fstat(int(l.noted.Fd()), &st) != nil || st.Nlink == 0) {
		l.found = HeadName + " was removed or replaced"
		l.closeNote()
	}
	if l.noted == nil {
		f, err := OpenFile(l.dir, HeadName, unix.O_RDWR|unix.O_CREAT, 0o644)
		if err != nil {
			return err
		}
		l.noted = f
	}
	text := fmt.Appendf(nil, `{"first":%d,"seq":%d,"hash":"%s"}`, l.first, l.head.Seq, l.head.Hash)
	text = append(append(text, bytes.Repeat([]byte{' '}, noteSize-1-len(text))...), '\n')
	if _, err := l.noted.WriteAt(text, 0); err != nil {
		return fmt.Errorf("note the last line: %w", err)
	}
	return nil
}

func (l *Log) closeNote() {
	if l.noted != nil {
		l.noted.Close()
	}
	l.noted = nil
}

// readNote reads the note in a file that was opened, and closes it.
func readNote(f *os.File, err error) (n note, _ error) {
	if err != nil {
		return n, err
	}
	defer f.Close()
	text := make([]byte, noteSize)
	size, _ := io.ReadFull(f, text)
	err = json.Unmarshal(text[:size], &n)
	if sum, bad := hex.DecodeString(n.Hash); err == nil && (bad != nil || len(sum) != sha256.Size || n.Seq == 0 || n.Seq > math.MaxInt64) {
		err = errors.New("it has no number and hash")
	}
	if err != nil {
		return note{}, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return n, nil
}
