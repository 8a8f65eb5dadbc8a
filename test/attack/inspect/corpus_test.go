package inspect

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestCorpus, rig.OfCorpus)

// TestCorpus asks, as the agent, what the cases of a published corpus ask (docs/corpus.md), under three policies that
// are made of it, and from a box that nobody sealed. The far side judges. A request has to arrive whole where the
// policy allows it, and nothing of it where it doesn't; the table compares that with what the corpus expects.
//
// AGENT_EGRESS_BENCH names the corpus: a checkout of agent-egress-bench. Without, it is the few cases of testdata.
func TestCorpus(t *testing.T) {
	dir := cmp.Or(os.Getenv("AGENT_EGRESS_BENCH"), "testdata")
	all, err := readCorpus(dir)
	rig.Must(t, err)
	cases := slices.DeleteFunc(slices.Clone(all), func(c *corpusCase) bool { return c.url == nil })
	t.Logf("%s: %d cases, %d of them with a URL", dir, len(all), len(cases))
	if !t.Run("unsealed", func(t *testing.T) {
		r := newCorpusRig(t, cases)
		box := r.lab.NewBox(lab.BoxOptions{})
		box.Idle()
		r.box, r.poke = box, func(args ...string) lab.Poke { return box.Poke(lab.AgentUID, args...) }
		r.run(nil)
	}) {
		t.Fatal("what does not arrive from an unsealed box says nothing about a sealed one")
	}
	for _, p := range []struct {
		name    string
		entries []corpusEntry
	}{{"names", corpusNames(cases, "allow")}, {"every-name", corpusNames(cases, "allow", "block")}, {"requests", corpusRequests(cases)}} {
		t.Run(p.name, func(t *testing.T) {
			r := newCorpusRig(t, cases)
			w := rig.ConfineIn(t, r.lab, corpusList(p.entries), lab.BoxOptions{Files: []lab.File{{Path: rig.Bundle, Data: r.lab.CA.PEM}}})
			r.box, r.poke = w.Box, w.Poke
			if p.name == "requests" {
				r.flags = []string{"-ca", rig.Trust()}
			}
			r.run(p.entries)
		})
	}
}

// corpusEntry is an entry of a policy. Without words about requests, it allows its name whole.
type corpusEntry struct {
	host, port, words string
	allows            func(*corpusCase) bool
}

// corpusNames are the names of the cases that are to be allowed, or blocked: what a filter by name can be told.
func corpusNames(cases []*corpusCase, expected ...string) (list []corpusEntry) {
	for _, c := range cases {
		if slices.Contains(expected, c.Expected) && !c.address().IsValid() {
			list = append(list, corpusEntry{host: c.host(), allows: func(*corpusCase) bool { return true }})
		}
	}
	return list
}

// corpusRequests are entries about requests for every name: of one that is to be allowed for something, the method and
// path of that; of all others, what only reads.
func corpusRequests(cases []*corpusCase) (list []corpusEntry) {
	reads := map[string]bool{}
	for _, c := range cases {
		reads[c.host()] = true
	}
	for _, c := range cases {
		if c.Expected != "allow" {
			continue
		}
		reads[c.host()] = false
		words, socket := c.request.Method+" "+cmp.Or(c.url.EscapedPath(), "/"), len(c.request.Frames) > 0
		if socket {
			words += " websocket"
		}
		list = append(list, corpusEntry{c.host(), c.port(), words, func(o *corpusCase) bool {
			return o.request.Method == c.request.Method && o.url.EscapedPath() == c.url.EscapedPath() && (socket || len(o.request.Frames) == 0)
		}})
	}
	for _, c := range cases {
		if reads[c.host()] && !c.address().IsValid() {
			list = append(list, corpusEntry{c.host(), c.port(), "read", func(o *corpusCase) bool {
				return slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, o.request.Method) && len(o.request.Frames) == 0
			}})
		}
	}
	return list
}

// port is what an entry about requests says: without, it is about 443 alone.
func (c *corpusCase) port() string { return map[string]string{"http": ":80"}[c.url.Scheme] }

func corpusList(policy []corpusEntry) string {
	var lines []string
	for _, e := range policy {
		lines = append(lines, strings.TrimSpace(e.host+e.port+" "+e.words)+"\n")
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// corpusRig is an internet that answers for every name and address of the corpus, and a box that asks.
type corpusRig struct {
	*testing.T
	lab   *lab.Lab
	box   *lab.Box
	poke  func(args ...string) lab.Poke
	flags []string // of each request
	cases []*corpusCase
	addrs map[string]netip.Addr // of each host

	mu     sync.Mutex
	answer string // to what is asked now
	frames []byte // that came
}

func newCorpusRig(t *testing.T, cases []*corpusCase) *corpusRig {
	r := &corpusRig{T: t, lab: rig.NewLab(t), cases: cases, addrs: map[string]netip.Addr{}}
	next := netip.MustParseAddr("45.40.0.1")
	for _, c := range cases {
		r.lab.Web.Handle(c.host(), r)
		if a := c.address(); a.IsValid() {
			r.addrs[c.host()] = a
		} else if !r.addrs[c.host()].IsValid() {
			r.addrs[c.host()] = next
			r.lab.DNS.SetAddrs(c.host(), next.String())
			next = next.Next()
		}
	}
	return r
}

// ServeHTTP answers as the case says, and takes the frames of a WebSocket until it is closed.
func (r *corpusRig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	if req.Header.Get("Upgrade") == "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, _ = io.WriteString(w, r.answer)
		return
	}
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	sum := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	for {
		b, err := rw.ReadByte()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.frames = append(r.frames, b)
		closed := bytes.HasSuffix(r.frames, []byte(closeFrame))
		r.mu.Unlock()
		if closed {
			_, _ = c.Write([]byte{0x88, 0})
			return
		}
	}
}

// run tries each case, and prints the table. Without a policy, the box is not sealed.
func (r *corpusRig) run(policy []corpusEntry) {
	r.Helper()
	table := corpusTable{}
	for _, c := range r.cases {
		may := policy == nil || slices.ContainsFunc(policy, func(e corpusEntry) bool {
			return e.host == c.host() && (e.words == "" || e.port == c.port()) && e.allows(c)
		})
		named := policy == nil || slices.ContainsFunc(policy, func(e corpusEntry) bool { return e.host == c.host() })
		p := r.ask(c, may && !c.inBox())
		traces := r.traces(c, named)
		switch {
		case c.inBox():
			if len(traces) > 0 {
				r.Errorf("%s: is for the container itself, and arrived outside: %q", c.ID, traces)
			}
		case !may && len(traces) > 0:
			r.Errorf("%s: no entry allows it, and arrived: %q", c.ID, traces)
		case may:
			if lost := r.lost(c, p); lost != "" {
				r.Errorf("%s: an entry allows it, and did not arrive whole: %s: %s", c.ID, lost, p)
			}
		}
		table.add(c, len(traces) > 0)
	}
	r.Log(table)
}

// ask makes the request of the case as the agent. One that is to arrive may take its time.
func (r *corpusRig) ask(c *corpusCase, patient bool) lab.Poke {
	r.mu.Lock()
	r.answer, r.frames = cmp.Or(c.request.Answer, "it was asked"), nil
	r.mu.Unlock()
	r.box.ForgetPackets()
	r.lab.DNS.Forget()
	r.lab.Web.Forget()
	var args []string
	if patient {
		args = append(args, "-patient")
	}
	frames, err := c.frames()
	if err != nil {
		r.Fatal(err)
	}
	if frames != nil {
		args = append(args, "upgrade", "-frames", hex.EncodeToString(frames))
	} else {
		args = append(args, "http", "-method", c.request.Method, "-body", c.request.Body)
		for name, value := range c.request.Headers {
			args = append(args, "-header", name+": "+value)
		}
	}
	if a := c.address(); a.IsValid() { // however the URL spells it
		args = append(args, "-addr", rig.At(a, map[string]uint16{"http": 80, "https": 443}[c.url.Scheme]))
	}
	return r.poke(append(append(args, r.flags...), c.url.String())...)
}

// traces are what arrived of the case: its request, and of a host that no entry names, questions and packets as well.
func (r *corpusRig) traces(c *corpusCase, named bool) (traces []string) {
	for _, req := range r.lab.Web.Requests() {
		traces = append(traces, req.Method+" "+req.Host+req.URI)
	}
	if named {
		return traces
	}
	for _, q := range r.lab.Queries(c.host()) {
		traces = append(traces, "a question for "+q.Name)
	}
	for _, p := range r.box.Packets(lab.Routed, lab.ToAddr(r.addrs[c.host()].String())) {
		traces = append(traces, p.String())
	}
	return traces
}

// lost is what of the case did not arrive as it was asked, or of its answer.
func (r *corpusRig) lost(c *corpusCase, p lab.Poke) string {
	got := r.lab.Web.Requests()
	if len(got) != 1 {
		return fmt.Sprintf("%d requests", len(got))
	}
	if asked, want := got[0].Method+" "+strings.ToLower(got[0].Host)+got[0].URI, c.request.Method+" "+strings.ToLower(c.url.Host)+c.url.RequestURI(); asked != want {
		return fmt.Sprintf("%s, for %s", asked, want)
	}
	for name, value := range c.request.Headers {
		if there := got[0].Header.Get(name); there != value {
			return fmt.Sprintf("%s: %s", name, there)
		}
	}
	if string(got[0].Body) != c.request.Body {
		return fmt.Sprintf("the body %q", got[0].Body)
	}
	frames, _ := c.frames()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !bytes.Equal(r.frames, frames) {
		return fmt.Sprintf("the frames %q", r.frames)
	}
	if frames == nil && p.Detail["body"] != r.answer {
		return "its answer"
	}
	if !p.OK {
		return "its end"
	}
	return ""
}

// corpusTable compares what arrived with what the corpus expects, by category.
type corpusTable map[string]*corpusRow

type corpusRow struct {
	cases, inBox, blocked, allowed, as int
	not                                []string // ids
}

func (t corpusTable) add(c *corpusCase, arrived bool) {
	for _, category := range []string{c.Category, "~"} { // behind all others
		row := t[category]
		if row == nil {
			row = &corpusRow{}
			t[category] = row
		}
		row.cases++
		if c.inBox() {
			row.inBox++
			continue
		}
		if arrived {
			row.allowed++
		} else {
			row.blocked++
		}
		if arrived == (c.Expected == "allow") {
			row.as++
		} else {
			row.not = append(row.not, c.ID)
		}
	}
}

func (t corpusTable) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n%-24s %6s %8s %8s %8s %12s %15s\n", "category", "cases", "in box", "blocked", "allowed", "as expected", "not as expected")
	var categories []string
	for category := range t {
		categories = append(categories, category)
	}
	slices.Sort(categories)
	for _, category := range categories {
		row := t[category]
		fmt.Fprintf(&out, "%-24s %6d %8d %8d %8d %12d %15d\n", strings.Replace(category, "~", "all", 1),
			row.cases, row.inBox, row.blocked, row.allowed, row.as, len(row.not))
	}
	if row := t["~"]; row != nil && len(row.not) > 0 {
		fmt.Fprintf(&out, "not as expected: %s\n", strings.Join(row.not, " "))
	}
	return out.String()
}
