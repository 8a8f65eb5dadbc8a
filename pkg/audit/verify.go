package audit

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What is wrong with a place in the log.
const (
	Missing   = "missing"   // lines that were written are not there
	Altered   = "altered"   // a line is not the one that was written
	Reordered = "reordered" // lines stand behind later ones
	Added     = "added"     // a line that the log's writer has not written, or the rest of one
	Noticed   = "noticed"   // the log's writer found it changed, and says so in this line
)

// maxFindings is how many a Verification lists.
const maxFindings = 1000

// Finding is what is wrong with the lines of some numbers: 0, if they have none.
type Finding struct {
	Kind string `json:"kind"`
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
	File string `json:"file,omitempty"` // where it shows, with Line
	Line int    `json:"line,omitempty"`
	Why  string `json:"why"`
}

// Verification is what the chain of a log's lines says.
type Verification struct {
	Whole    bool      `json:"whole"` // nothing was found
	Lines    uint64    `json:"lines"`
	First    uint64    `json:"first"`              // the number of the first line
	Head     Head      `json:"head"`               // the last line
	Unhashed uint64    `json:"unhashed,omitempty"` // lines at the beginning, of a version without hashes
	Lost     uint64    `json:"lost,omitempty"`     // events that could not be written, as a line of the log says
	Unjudged []Head    `json:"unjudged,omitempty"` // heads that are older than the first line
	Findings []Finding `json:"findings"`
	More     int       `json:"more,omitempty"` // findings that are not listed
}

// Verify reads the log at path, older files included, and holds it against its own chain, and against heads that are
// known from elsewhere: their hashes may be cut short. With noted, the note beside the log says where it begins and ends.
func Verify(path string, noted bool, known ...Head) (Verification, error) {
	v := &verifier{out: Verification{Findings: []Finding{}}, last: Head{Hash: noHash}}
	var bad error
	if noted {
		if v.noted, bad = noteAt(path); bad == nil {
			known = append(known, v.noted.Head)
		}
	}
	v.known, v.met = known, make([]string, len(known))
	files, err := openAll(path)
	defer closeAll(files)
	for i := len(files) - 1; i >= 0 && err == nil; i-- {
		err = v.file(files[i], i == 0)
	}
	if err != nil {
		return v.out, err
	}
	if noted {
		v.ends(path, bad)
	}
	v.judge()
	v.out.Head, v.out.Whole = v.last, len(v.out.Findings) == 0
	return v.out, nil
}

func noteAt(path string) (note, error) {
	return readNote(os.Open(filepath.Join(filepath.Dir(path), HeadName)))
}

const (
	settle  = 20 * time.Millisecond // what is being written is there then, and noted
	settles = 10
)

// ends holds the log against its note. Meanwhile it may have grown, and lost its oldest file.
func (v *verifier) ends(path string, bad error) {
	var n note
	err := bad
	for i := 0; i < settles && err == nil; i++ {
		if n, err = noteAt(path); err != nil || n.Seq >= v.last.Seq {
			break
		}
		time.Sleep(settle)
	}
	switch {
	case err != nil && !v.chained: // it is of a version without
	case err != nil:
		v.find(Finding{Kind: Missing, Why: "what the last line was is not known: " + err.Error()})
	case n.Seq < v.last.Seq:
		v.find(Finding{Kind: Added, From: n.Seq + 1, To: v.last.Seq, Why: HeadName + " knows no such line"})
	}
	if err == nil {
		v.forget(n.First)
	}
}

// spot is a line of a file.
type spot struct {
	file string
	line int
}

// file reads a file of the log. In the last one a line may be under way.
func (v *verifier) file(f *os.File, last bool) error {
	at := spot{file: f.Name()}
	r := bufio.NewReaderSize(f, 4*maxEncoded)
	var line []byte
	for waited := 0; ; {
		piece, err := r.ReadSlice('\n')
		if line = append(line, piece...); len(line) > 2*maxEncoded { // it is no line, and need not be kept
			line = line[:2*maxEncoded]
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0 && last && waited < settles:
			waited++
			time.Sleep(settle)
		case errors.Is(err, io.EOF):
			if at.line++; len(line) > 0 {
				v.line(line, at)
				v.found(Finding{Kind: Added, Why: "the last line has no end"}, at)
			}
			return nil
		case err != nil:
			return err
		default:
			at.line++
			v.line(strip(line), at)
			line = line[:0]
		}
	}
}

// strip takes the newline off, if the line was not cut.
func strip(line []byte) []byte {
	if line[len(line)-1] == '\n' {
		return line[:len(line)-1]
	}
	return line
}

// Short is h as people copy it: enough of the hash that nobody finds another line that has it.
func (h Head) Short() string { return h.Hash[:min(len(h.Hash), MinHash)] }

// MinHash is how many digits of a hash tell a line from all others.
const MinHash = 24

// is says whether h has that hash, or its beginning.
func (h Head) is(hash string) bool { return strings.HasPrefix(hash, h.Hash) }
