package selftest

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// titles say for people what a check tries. Checks for whose name there is none
// are shown by their target.
func title(name string) string {
	switch name {
	case "dns-system":
		return "denied name, system's DNS"
	case "dns-direct":
		return "denied name, public DNS"
	case "denied-name":
		return "denied name, connection"
	case "tcp":
		return "TCP to public addresses"
	case "udp":
		return "UDP/443 (QUIC)"
	case "ping":
		return "ICMP echo"
	case "metadata":
		return "cloud metadata"
	case "raw-socket":
		return "raw sockets"
	case "packet-socket":
		return "packet sockets"
	case "vsock-socket":
		return "host sockets (vsock)"
	case "net-admin":
		return "network administration"
	case "become-root":
		return "becoming root"
	case "other-network":
		return "other networks' processes"
	}
	return ""
}

// row is one line of the table: one failed check, or all good ones of a kind.
type row struct {
	ok     bool
	title  string
	count  int
	result string
	millis float64

	details []string // of the checks that a row stands for, each once
	seen    map[string]int
}

// WriteTable writes the report for people: what failed first, each on a line
// of its own, then what is well, one line for each kind and family, which fits in
// 80 columns. With color it uses the terminal's red and green.
func (r Report) WriteTable(w io.Writer, color bool) error {
	rows := r.rows()
	var titles, results int
	for _, rw := range rows {
		titles = max(titles, utf8.RuneCountInString(rw.title))
		results = max(results, utf8.RuneCountInString(rw.result))
	}
	var b strings.Builder
	for _, rw := range rows {
		fmt.Fprintf(&b, "%s  %-*s  %-*s  %9s\n", mark(rw.ok, color), titles, rw.title, results, rw.result, fmt.Sprintf("%.1f ms", rw.millis))
	}
	failed := 0
	for _, c := range r.Checks {
		if !c.OK {
			failed++
		}
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
	index := make(map[string]int) // into good
	for _, c := range r.Checks {
		if !c.OK {
			failed = append(failed, row{title: c.Target, result: "must be " + c.Want + ": " + c.Detail, millis: c.Millis})
			continue
		}
		key := c.Name + " " + c.Family
		t := title(c.Name)
		if t == "" {
			key, t = key+" "+c.Target, c.Target
		}
		i, ok := index[key]
		if !ok {
			i = len(good)
			index[key] = i
			if c.Family != "" {
				t += ", " + c.Family
			}
			good = append(good, row{ok: true, title: t, seen: make(map[string]int)})
		}
		good[i].add(c)
	}
	for i := range good {
		good[i].finish()
	}
	return append(failed, good...)
}

func (rw *row) add(c Check) {
	rw.count++
	rw.millis = max(rw.millis, c.Millis)
	if rw.seen[c.Detail] == 0 {
		rw.details = append(rw.details, c.Detail)
	}
	rw.seen[c.Detail]++
}

// finish puts the counts into words, where there is more than one to count.
func (rw *row) finish() {
	if rw.count > 1 {
		rw.title = fmt.Sprintf("%s (%d)", rw.title, rw.count)
	}
	var parts []string
	for _, d := range rw.details {
		if len(rw.details) > 1 {
			d = fmt.Sprintf("%d %s", rw.seen[d], d)
		}
		parts = append(parts, d)
	}
	rw.result = strings.Join(parts, ", ")
}
