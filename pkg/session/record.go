package session

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// RecordSpec describes the file that a window is recorded to.
type RecordSpec struct {
	Window uint32
	File   *os.File // for appending; the server takes it over
	Begun  time.Time
	Size   int64 // bytes that are in it already; 0: it needs a header
	Limit  int64 // bytes at which Host.Full is told
}

// recorder writes what a window prints as an asciicast, version 2
// (docs.asciinema.org/manual/asciicast/v2). Input is never in it: people type
// secrets. It belongs to its window's lock.
type recorder struct {
	file  io.WriteCloser
	out   *bufio.Writer
	begun time.Time
	size  int64
	limit int64
	tail  []byte // the beginning of a character whose end has not come yet
	line  []byte
	full  func()
	broke func(error)

	// Who replays a record is asked nothing, and keeps their clipboard.
	filter terminal.Filter
	passed []byte
}

// flushEvery is how long an event stays in memory.
const flushEvery = time.Second

func newRecorder(spec RecordSpec, full func(), broke func(error)) *recorder {
	return &recorder{file: spec.File, out: bufio.NewWriterSize(spec.File, 64<<10), begun: spec.Begun, size: spec.Size, limit: spec.Limit, full: full, broke: broke}
}

// header begins a file, with the screen as it is, if there is one.
func (r *recorder) header(cols, rows int, name string, screen []byte) {
	if r.size > 0 {
		return
	}
	b, err := json.Marshal(struct {
		Version   int               `json:"version"`
		Width     int               `json:"width"`
		Height    int               `json:"height"`
		Timestamp int64             `json:"timestamp"`
		Title     string            `json:"title"`
		Env       map[string]string `json:"env"`
	}{2, cols, rows, r.begun.Unix(), name, map[string]string{"TERM": "xterm-256color"}})
	if err == nil {
		r.write(append(b, '\n'))
		if len(screen) > 0 {
			r.event('o', screen)
		}
	}
}

func (r *recorder) output(b []byte) {
	r.passed = r.filter.Write(r.passed[:0], b)
	r.text(r.passed)
	if cap(r.passed) > 4*readAtOnce {
		r.passed = nil
	}
	if r.size > r.limit {
		r.limit += r.limit/4 + 1 // to ask again, should nothing come of it
		r.flush()                // who is asked looks at the file
		r.full()
	}
}

// text writes what was let through.
func (r *recorder) text(b []byte) {
	if len(r.tail) > 0 {
		b = append(r.tail, b...)
	}
	whole := len(b) - incomplete(b)
	rest := append([]byte(nil), b[whole:]...)
	if whole > 0 {
		r.event('o', b[:whole])
	}
	r.tail = rest
}

func (r *recorder) resize(cols, rows int) { r.event('r', fmt.Appendf(nil, "%dx%d", cols, rows)) }

// incomplete is how many bytes at the end of b are the beginning of a character.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// event writes one line. What is not UTF-8 becomes U+FFFD, since JSON has
// nothing else.
func (r *recorder) event(code byte, data []byte) {
	r.line = append(r.line[:0], '[')
	r.line = strconv.AppendFloat(r.line, time.Since(r.begun).Seconds(), 'f', 6, 64)
	r.line = append(r.line, ", \""...)
	r.line = append(r.line, code)
	r.line = append(r.line, "\", "...)
	r.line = appendJSONString(r.line, data)
	r.line = append(r.line, "]\n"...)
	r.write(r.line)
}

const hex = "0123456789abcdef"

func appendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	for len(s) > 0 {
		c := s[0]
		if c >= utf8.RuneSelf {
			char, n := utf8.DecodeRune(s)
			dst = utf8.AppendRune(dst, char)
			s = s[n:]
			continue
		}
		s = s[1:]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c < 0x20 || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

func (r *recorder) write(b []byte) {
	if r.out == nil {
		return
	}
	n, err := r.out.Write(b)
	r.size += int64(n)
	if err != nil {
		r.out = nil
		r.broke(err)
	}
}

// flush writes what is in memory.
func (r *recorder) flush() {
	if r.out != nil {
		if err := r.out.Flush(); err != nil {
			r.out = nil
			r.broke(err)
		}
	}
}

// close ends the record.
func (r *recorder) close() {
	r.text(r.filter.Close(nil))
	r.flush()
	r.out = nil
	r.file.Close()
}
