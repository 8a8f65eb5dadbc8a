package judge

import (
	"bytes"
	"cmp"
	"mime"
	"slices"
	"strconv"

	"github.com/agent-init/agent-init/pkg/route"
)

// Meter reads what an answer says of its cost, as it passes by. Its memory is bounded, whatever passes.
type Meter struct {
	dialect dialect
	feed    func([]byte)
	scan    scanner
	events  events

	counts [slots]int64
	fresh  bool  // nothing was yet added up in this document
	final  bool  // the answer has said what it cost in the end
	text   int64 // bytes that the model has written
}

// bytesPerToken is less than the four that English comes to, by OpenAI's rule of thumb, and about what code has.
const bytesPerToken = 3

// Estimate is how many tokens so many bytes of text are, rather too many than too few.
func Estimate(bytes int64) int64 { return (bytes + bytesPerToken - 1) / bytesPerToken }

// unsaid is what a model may write where the request sets no bound.
const unsaid = 32_000

// Most is how many tokens a request may come to, of a body that was judged: what it says, and the most that it lets the
// model write.
func Most(kind route.Body, body []byte) int64 {
	if len(dialectOf(kind).counts) == 0 {
		return 0
	}
	root, err := parse(body)
	if err != nil {
		return 0 // it would not have passed
	}
	out, answers := int64(0), int64(1)
	for _, of := range []value{
		root, root.get("generationConfig"), root.get("generation_config"), root.get("inferenceConfig"),
	} {
		for name, v := range of.members() {
			n, err := strconv.ParseFloat(string(v.raw()), 64)
			switch {
			case err != nil || n < 1:
			case slices.Contains(mostNames, string(name)):
				out = max(out, int64(min(n, 1<<40)))
			case slices.Contains([]string{"n", "candidateCount", "candidate_count"}, string(name)):
				answers = max(answers, int64(min(n, 1<<10)))
			}
		}
	}
	return Estimate(int64(len(body))) + cmp.Or(out, unsaid)*answers
}

// mostNames are the names that APIs have for the most that a model may write.
var mostNames = []string{
	"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens",
}

// NewMeter makes one for an answer that has no content coding and no error.
func NewMeter(body route.Body, contentType string) *Meter {
	m := &Meter{dialect: dialectOf(body), fresh: true}
	if m.feed = func([]byte) {}; len(m.dialect.counts) == 0 {
		return m
	}
	m.scan.tell = m.tell
	m.feed = m.scan.write
	switch kind, _, _ := mime.ParseMediaType(contentType); {
	case kind == "text/event-stream":
		m.events = events{data: m.scan.write, end: m.end}
		m.feed = m.events.write
	case kind == eventStream && body == route.InvokeModel:
		unpacked := &base64Events{data: m.scan.write, end: m.end}
		m.feed = (&eventMessages{payload: unpacked.write, end: unpacked.flush}).write
	case kind == eventStream:
		m.feed = (&eventMessages{payload: m.scan.write, end: m.end}).write
	}
	return m
}

// Write takes the next bytes of the answer. It never fails.
func (m *Meter) Write(p []byte) (int, error) {
	m.feed(p)
	return len(p), nil
}

// Tokens is what the answer has cost. It is not ok if the answer was cut before it said so. Then in is what it has said
// until then, or 0, and out is at least what the text of its stream comes to.
func (m *Meter) Tokens() (in, out int64, ok bool) {
	c := &m.counts
	in = max(c[slotIn]+c[slotInCreated]+c[slotInCached]+c[slotInTools], c[slotInRounds])
	out = max(c[slotOut]+c[slotOutThought], c[slotOutRounds], c[slotTotal]-in)
	if len(m.dialect.counts) == 0 {
		return 0, 0, true // it costs nothing that is counted
	}
	if ok = m.final && in > 0; !ok {
		out = max(out, Estimate(m.text))
	}
	return in, out, ok
}

// end is the end of an event, or of another document in the answer.
func (m *Meter) end() {
	m.scan.reset()
	m.fresh = true
}

func (m *Meter) tell(path, number []byte, textBytes int) {
	path = bytes.TrimPrefix(path, []byte("[].")) // Gemini's stream that is a list
	for _, prefix := range m.dialect.texts {
		if number == nil && len(path) >= len(prefix) && string(path[:len(prefix)]) == prefix {
			m.text += int64(textBytes)
		}
	}
	for _, last := range m.dialect.final {
		m.final = m.final || string(path) == last
	}
	if to, ok := m.dialect.counts[string(path)]; ok && number != nil {
		if n, err := strconv.ParseInt(string(number), 10, 48); err == nil {
			m.count(to, n)
		}
	}
}

func (m *Meter) count(to slot, n int64) {
	if to != slotInRounds && to != slotOutRounds {
		m.counts[to] = n // what comes later holds
		return
	}
	if m.fresh {
		m.counts[slotInRounds], m.counts[slotOutRounds], m.fresh = 0, 0, false
	}
	m.counts[to] = min(m.counts[to]+n, 1<<48)
}

// events are server-sent events, of which the data is read
// (https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation).
type events struct {
	data func([]byte)
	end  func()

	matched int  // bytes of the line that are those of dataField
	other   bool // the line is of another field
	cr      bool // the last byte has ended a line, and a line feed may follow
}

const dataField = "data:"

func (e *events) write(p []byte) {
	for len(p) > 0 {
		if e.cr && p[0] == '\n' {
			e.cr = false
			p = p[1:]
			continue
		}
		e.cr = false
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			e.part(p)
			return
		}
		e.part(p[:end])
		if e.matched == 0 && !e.other {
			e.end()
		}
		e.matched, e.other, e.cr = 0, false, p[end] == '\r'
		p = p[end+1:]
	}
}

// part takes a part of a line.
func (e *events) part(p []byte) {
	for ; len(p) > 0 && e.matched < len(dataField) && !e.other; p = p[1:] {
		if e.other = p[0] != dataField[e.matched]; !e.other {
			e.matched++
		}
	}
	if !e.other {
		e.data(p)
	}
}
