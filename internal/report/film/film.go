// Package film makes pictures of an asciicast, so that a page can show it without a terminal of its own: the screen is
// drawn here, by the model that sessions use, and the page has text and looks alone.
package film

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// The bounds of a film. A longer record has its pictures further apart.
const (
	maxPictures = 1500
	maxSpans    = 120_000 // of all pictures
	maxLooks    = 400     // more of them are shown plain
	maxCols     = 400
	maxRows     = 150
	maxLine     = 4 << 20 // of the record, in bytes
	beginStep   = 100 * time.Millisecond
)

// Film is a record as pictures, each of which says what has changed.
type Film struct {
	File     string           `json:"file"`
	Title    string           `json:"title,omitempty"`
	Begun    time.Time        `json:"begun,omitzero"`
	Seconds  float64          `json:"seconds"`
	Cols     int              `json:"cols"` // the most there were
	Rows     int              `json:"rows"`
	Looks    []terminal.Style `json:"-"`   // by number. The first is the default
	Pictures []Picture        `json:"-"`   // of which pages are made
	Cut      bool             `json:"cut"` // the record goes on with what is no asciicast
}

// Picture is what has changed on the screen, at a time.
type Picture struct {
	At   float64       `json:"at"` // seconds
	Rows map[int][]Run `json:"rows"`
}

// Run is text of one look.
type Run struct {
	Text string `json:"text"`
	Look int    `json:"look"`
	Wide bool   `json:"wide,omitempty"`
}

// Read makes a film of an asciicast of version 2 (docs.asciinema.org/manual/asciicast/v2).
func Read(r io.Reader) (*Film, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	line, err := readLine(in)
	if err != nil {
		return nil, fmt.Errorf("the record has no first line: %w", err)
	}
	var head struct {
		Version, Width, Height int
		Timestamp              int64
		Title                  string
	}
	if json.Unmarshal(line, &head) != nil || head.Version != 2 || !sized(head.Width, head.Height) {
		return nil, errors.New("it is no asciicast of version 2")
	}
	c := &camera{
		film: &Film{Title: head.Title, Looks: []terminal.Style{{}}, Pictures: []Picture{}},
		term: terminal.New(terminal.Options{Cols: head.Width, Rows: head.Height, Scrollback: -1}),
		step: beginStep, looks: map[terminal.Style]int{{}: 0},
	}
	if head.Timestamp > 0 && head.Timestamp < 1<<35 {
		c.film.Begun = time.Unix(head.Timestamp, 0).UTC()
	}
	for err == nil {
		if line, err = readLine(in); err == nil {
			err = c.event(line)
		}
	}
	c.film.Cut = !errors.Is(err, io.EOF)
	c.shoot()
	return c.film, nil
}

func sized(cols, rows int) bool { return cols >= 1 && cols <= maxCols && rows >= 1 && rows <= maxRows }

// readLine reads a line that has an end. A record that is being written may have one without, which is not read yet.
func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		piece, err := in.ReadSlice('\n')
		line = append(line, piece...)
		if len(line) > maxLine {
			return nil, errors.New("a line is longer than that of any record")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// camera takes a picture of a terminal whenever one is due.
type camera struct {
	film  *Film
	term  *terminal.Terminal
	step  time.Duration // between two pictures
	now   float64
	due   bool // the screen may have changed since the last picture
	spans int
	shown [][]Run // on the last picture
	looks map[terminal.Style]int
}

// event takes in a line: [seconds, "o", output] or [seconds, "r", "80x24"]. Others are passed over.
func (c *camera) event(line []byte) error {
	var fields []json.RawMessage
	var at float64
	var code, data string
	if json.Unmarshal(line, &fields) != nil || len(fields) != 3 || json.Unmarshal(fields[0], &at) != nil ||
		json.Unmarshal(fields[1], &code) != nil || json.Unmarshal(fields[2], &data) != nil || at < 0 || at > 1e9 {
		return errors.New("it is no event")
	}
	if at = max(at, c.now); c.due && at-c.last() >= c.step.Seconds() {
		c.shoot()
	}
	c.now, c.film.Seconds = at, at
	switch code {
	case "o":
		_, _ = c.term.Write([]byte(data)) // it takes everything
		c.term.Replies()
		c.due = true
	case "r":
		w, h, _ := strings.Cut(data, "x")
		cols, err := strconv.Atoi(w)
		rows, err2 := strconv.Atoi(h)
		if err == nil && err2 == nil && sized(cols, rows) {
			c.shoot()
			c.term.Resize(cols, rows)
			c.due = true
		}
	}
	return nil
}

// last is when the last picture was taken.
func (c *camera) last() float64 {
	if n := len(c.film.Pictures); n > 0 {
		return c.film.Pictures[n-1].At
	}
	return -1e9
}

// shoot takes a picture of what has changed.
func (c *camera) shoot() {
	if !c.due {
		return
	}
	c.due = false
	cols, rows := c.term.Size()
	c.film.Cols, c.film.Rows = max(c.film.Cols, cols), max(c.film.Rows, rows)
	p := Picture{At: c.now, Rows: map[int][]Run{}}
	for y := range max(rows, len(c.shown)) {
		var line []Run
		if y < rows {
			line = c.runs(y)
		}
		if y == len(c.shown) {
			c.shown = append(c.shown, nil)
		}
		if !slices.Equal(line, c.shown[y]) {
			p.Rows[y], c.shown[y] = line, line
			c.spans += len(line) + 1
		}
	}
	if len(p.Rows) == 0 {
		return
	}
	c.film.Pictures = append(c.film.Pictures, p)
	for len(c.film.Pictures) > maxPictures || c.spans > maxSpans && len(c.film.Pictures) > 2 {
		c.thin()
	}
}

func (c *camera) runs(y int) (line []Run) {
	for _, s := range c.term.Spans(y) {
		look, known := c.looks[s.Style]
		if !known && len(c.film.Looks) < maxLooks {
			look = len(c.film.Looks)
			c.looks[s.Style] = look
			c.film.Looks = append(c.film.Looks, s.Style)
		}
		line = append(line, Run{text.Clean(s.Text), look, s.Wide})
	}
	return line
}

// thin makes one picture of each two, and has later ones be further apart.
func (c *camera) thin() {
	half := c.film.Pictures[:0]
	all := c.film.Pictures
	for i := 0; i < len(all); i += 2 {
		p := all[i]
		if i+1 < len(all) {
			for y, line := range all[i+1].Rows {
				p.Rows[y] = line
			}
			p.At = all[i+1].At
		}
		half = append(half, p)
	}
	c.film.Pictures, c.step, c.spans = half, c.step*2, 0
	for _, p := range half {
		for _, line := range p.Rows {
			c.spans += len(line) + 1
		}
	}
}

// Screen is what the screen shows at picture n, by rows.
func (f *Film) Screen(n int) [][]Run {
	rows := make([][]Run, f.Rows)
	for _, p := range f.Pictures[:min(n+1, len(f.Pictures))] {
		for y, line := range p.Rows {
			if y >= 0 && y < len(rows) {
				rows[y] = line
			}
		}
	}
	return rows
}
