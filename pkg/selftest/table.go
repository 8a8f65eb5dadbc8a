package selftest

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// titles say for people what a check tries. The others are shown by their target.
var titles = map[string]string{
	"dns-system": "denied name, system's DNS", "dns-direct": "denied name, public DNS", "denied-name": "denied name, connection",
	"tcp": "TCP to public addresses", "udp": "UDP/443 (QUIC)", "ping": "ICMP echo", "metadata": "cloud metadata",
	"raw-socket": "raw sockets", "packet-socket": "packet sockets", "vsock-socket": "host sockets (vsock)",
	"net-admin": "network administration", "become-root": "becoming root", "other-network": "other networks' processes",
}

// row is one line of the table: one failed check, or all good ones of a kind.
type row struct {
	ok            bool
	title, result string
	count         int
	millis        float64

	details []string // of the checks that a row stands for, each once
	seen    map[string]int
}

// WriteTable writes the report for people: what failed first, each on a line of its own, then what is well, one line
// for each kind and family, which fits in 80 columns. With color it uses the terminal's red and green.
func (r Report) WriteTable(w io.Writer, color bool) error {
	rows := r.rows()
	var titles, results, failed int
	for _, rw := range rows {
		titles = max(titles, utf8.RuneCountInString(rw.title))
		results = max(results, utf8.RuneCountInString(rw.result))
		if !rw.ok {
			failed++
		}
	}
	var b strings.Builder
	for _, rw := range rows {
		fmt.Fprintf(&b, "%s  %-*s  %-*s  %9s\n", mark(rw.ok, color), titles, rw.title, results, rw.result, fmt.Sprintf("%.1f ms", rw.millis))
	}
	verdict := "self-test passed"
	if !r.OK {
		verdict = fmt.Sprintf("self-test FAILED: %d not as it must be", failed)
	}
	fmt.Fprintf(&b, "%s (%d checks, %.0f ms)\n", verdict, len(r.Checks), r.Millis)
	_, err := io.WriteString(w, b.String())
	return err
}

func mark(ok, color bool) string {
	text, code := "ok  ", "32"
	if !ok {
		text, code = "FAIL", "31;1"
	}
	if color {
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	return text
}

func (r Report) rows() []row {
	var failed, good []row
	index := make(map[[2]string]int) // into good
	for _, c := range r.Checks {
		if !c.OK {
			failed = append(failed, row{title: c.Target, result: "must be " + c.Want + ": " + c.Detail, millis: c.Millis})
			continue
		}
		t, ok := titles[c.Name]
		if !ok {
			t = c.Target
		}
		if c.Family != "" {
			t += ", " + c.Family
		}
		key := [2]string{c.Name, t}
		i, ok := index[key]
		if !ok {
			i = len(good)
			index[key] = i
			good = append(good, row{ok: true, title: t, seen: make(map[string]int)})
		}
		rw := &good[i]
		rw.count++
		rw.millis = max(rw.millis, c.Millis)
		if rw.seen[c.Detail]++; rw.seen[c.Detail] == 1 {
			rw.details = append(rw.details, c.Detail)
		}
	}
	for i := range good {
		good[i].finish()
	}
	return append(failed, good...)
}

// finish puts the counts into words, where there is more than one to count.
func (rw *row) finish() {
	if rw.count > 1 {
		rw.title = fmt.Sprintf("%s (%d)", rw.title, rw.count)
	}
	if len(rw.details) > 1 {
		for i, d := range rw.details {
			rw.details[i] = fmt.Sprintf("%d %s", rw.seen[d], d)
		}
	}
	rw.result = strings.Join(rw.details, ", ")
}
