package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// recorder writes what a window prints as an asciicast, version 2 (docs.asciinema.org/manual/asciicast/v2). Input is
// never in it: people type secrets. It belongs to its window's lock.
type recorder struct {
	file  io.WriteCloser
	out   *bufio.Writer
	begun time.Time
	size  int64
	limit int64
	line  bytes.Buffer
	full  func()
	broke func(error)

	// Who replays a record is asked nothing, and keeps their clipboard. What passes is UTF-8, and ends between
	// characters.
	filter terminal.Filter
	passed []byte
}

// flushEvery is how long an event stays in memory.
const flushEvery = time.Second

func newRecorder(m wire.Message, file *os.File, limit int64) *recorder {
	return &recorder{file: file, out: bufio.NewWriterSize(file, 64<<10), begun: time.Unix(0, m.Value), size: int64(m.Arg), limit: limit}
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
		r.event("o", screen)
	}
}

func (r *recorder) output(b []byte) {
	r.passed = r.filter.Write(r.passed[:0], b)
	r.event("o", r.passed)
	if cap(r.passed) > 4*readAtOnce {
		r.passed = nil
	}
	if r.size > r.limit {
		r.limit += r.limit/4 + 1 // to ask again, should nothing come of it
		r.flush()                // who is asked looks at the file
		r.full()
	}
}

func (r *recorder) resize(cols, rows int) { r.event("r", fmt.Appendf(nil, "%dx%d", cols, rows)) }

func (r *recorder) event(code string, data []byte) {
	if len(data) == 0 {
		return
	}
	r.line.Reset()
	fmt.Fprintf(&r.line, "[%.6f, %q, ", time.Since(r.begun).Seconds(), code)
	e := json.NewEncoder(&r.line)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(data)); err == nil { // it ends the line
		r.line.Truncate(r.line.Len() - 1)
		r.line.WriteString("]\n")
		r.write(r.line.Bytes())
	}
}

func (r *recorder) write(b []byte) {
	if r.out != nil {
		n, err := r.out.Write(b)
		r.size += int64(n)
		r.failed(err)
	}
}

func (r *recorder) flush() {
	if r.out != nil {
		r.failed(r.out.Flush())
	}
}

func (r *recorder) failed(err error) {
	if err != nil {
		r.out = nil
		r.broke(err)
	}
}

func (r *recorder) close() {
	r.event("o", r.filter.Close(nil))
	r.flush()
	r.out = nil
	r.file.Close()
}
