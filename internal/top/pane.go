package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// paneName is one of the lists on the screen.
type paneName uint8

const (
	connections paneName = iota
	requests
	refused
	asked
	ending
	panes int = iota
)

// column of a list. One without a width takes what is left.
type column struct {
	head  string
	width int
	right bool
	start bool // what is too long loses its start
	from  int  // columns of the list from which on it is shown
}

// pane is a list as it can be drawn. Rows are made when they are seen.
type pane struct {
	title   string
	columns []column
	rows    int
	none    string // what is said in place of rows
	row     func(i int) (cells []string, look style)
	id      func(i int) string
	target  func(i int) target
}

// target is what a key is about.
type target struct {
	entry  string // as allow and deny take it
	place  string // as explain takes it
	number uint32 // of a request
}

// of makes a list of what is shown.
func (v *View) of(name paneName, s *Shown) pane {
	switch name {
	case connections:
		return v.ofConnections(s)
	case requests:
		return v.ofRequests(s)
	case refused:
		return v.ofRefused(s)
	case asked:
		return v.ofAsked(s)
	}
	return v.ofEnding(s)
}

// wants says whether the filter lets something through.
func (v *View) wants(words ...string) bool {
	if v.filter == "" {
		return true
	}
	want := strings.ToLower(v.filter)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(w), want) })
}

func (v *View) ofConnections(s *Shown) pane {
	list := v.sorted(s.Connections)
	title := fmt.Sprintf("CONNECTIONS %d", len(list))
	if s.More > 0 {
		title += fmt.Sprintf(" and %d more", s.More)
	}
	if s.Inside > 0 {
		title += fmt.Sprintf(", %d inside", s.Inside)
	}
	title += " by " + v.order.String()
	if v.reverse {
		title += ", the other way round"
	}
	p := pane{title: title, rows: len(list), none: "none is open", columns: []column{
		{head: "NAME", start: true}, {head: "PORT", width: 5, right: true}, {head: "WAY", width: 9, from: 72}, {head: "PROCESS", width: 14, from: 52},
		{head: "OUT", width: 5, right: true}, {head: "IN", width: 5, right: true}, {head: "RATE", width: 7, right: true, from: 78},
		{head: "AGE", width: 5, right: true, from: 64}, {head: "ADDRESS", width: 24, from: 150, start: true}}}
	p.id = func(i int) string { return list[i].id }
	p.row = func(i int) ([]string, style) { return list[i].cells(s) }
	p.target = func(i int) target { return list[i].target() }
	return p
}

// sorted are the connections that the filter lets through.
func (v *View) sorted(all []Connection) []*Connection {
	list := make([]*Connection, 0, len(all))
	for i := range all {
		if c := &all[i]; v.filter == "" || v.wants(c.Name, c.Process, string(c.Way), c.Remote.String(), strconv.Itoa(c.PID)) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *Connection) int {
		n := v.order.compare(a, b)
		if v.reverse {
			n = -n
		}
		return cmp.Or(n, cmp.Compare(a.Name, b.Name), a.Remote.Compare(b.Remote), cmp.Compare(a.id, b.id))
	})
	return list
}

func (c *Connection) cells(s *Shown) ([]string, style) {
	name := cmp.Or(c.Name, c.Remote.Addr().String())
	if c.Others > 0 {
		name += fmt.Sprintf(" (+%d)", c.Others)
	}
	out, in := size(c.Out), size(c.In)
	if !s.Counted || c.Proto == "udp" {
		out, in = "-", "-"
	}
	port := strconv.Itoa(int(c.Remote.Port()))
	if c.Way == inbound {
		port = strconv.Itoa(int(c.Local.Port()))
	}
	if c.Proto == "udp" {
		port += "u"
	}
	age := brief(s.Time.Sub(c.Since))
	if c.Older {
		age = ">" + age
	}
	way, look := c.Way, plain
	if c.Opening {
		way, look = "opening", dim
	} else if c.Way == unknown {
		look = warn
	}
	return []string{name, port, string(way), process(c.PID, c.Process, c.UID), out, in, rate(c.InRate + c.OutRate), age, c.Remote.Addr().String()}, look
}

// process is who has something, as short as it goes.
func process(pid int, name string, uid uint32) string {
	switch {
	case name != "" && pid != 0:
		return name + " " + strconv.Itoa(pid)
	case name != "":
		return name
	case uid != 0:
		return fmt.Sprintf("uid %d", uid)
	}
	return "-"
}

func (c *Connection) target() target {
	addr, port := c.Remote.String(), ":"+strconv.Itoa(int(c.Remote.Port()))
	if c.Proto == "udp" {
		addr, port = addr+"/udp", port+"/udp"
	}
	if c.Way == inbound { // it is the port that is open to others
		return target{place: strconv.Itoa(int(c.Local.Port()))}
	}
	if c.Name == "" || c.Way == byBroker {
		return target{entry: addr, place: addr}
	}
	return target{entry: c.Name, place: c.Name + port}
}

func (v *View) ofRequests(s *Shown) pane {
	list := slices.DeleteFunc(slices.Clone(s.Requests), func(g request) bool { return !v.wants(g.Target, g.Reason) })
	p := pane{title: fmt.Sprintf("REQUESTS %d", len(list)), rows: len(list), none: "none waits", columns: []column{
		{head: "NO", width: 4, right: true}, {head: "TARGET"}, {head: "ASKED", width: 5, right: true, from: 56}, {head: "AGO", width: 4, right: true}, {head: "REASON", width: 0, from: 40}}}
	p.id = func(i int) string { return strconv.Itoa(int(list[i].Number)) }
	p.row = func(i int) ([]string, style) {
		g := &list[i]
		return []string{strconv.Itoa(int(g.Number)), g.Target, strconv.Itoa(g.Asked), brief(s.Time.Sub(g.Made)), g.Reason}, warn
	}
	p.target = func(i int) target {
		return target{entry: list[i].Target, place: placeOf(list[i].Target), number: list[i].Number}
	}
	return p
}

func (v *View) ofRefused(s *Shown) pane {
	list := slices.DeleteFunc(slices.Clone(s.Refused), func(n Name) bool { return !v.wants(n.Name, n.Process, n.Reason) })
	title := fmt.Sprintf("REFUSED %d", s.Refusals)
	if s.Status != nil && s.Status.Monitor {
		title = fmt.Sprintf("LET OUT, AND NOT IN THE POLICY %d", s.Refusals)
	}
	if s.PerSecond >= 0.5 {
		title += fmt.Sprintf(", %.0f/s", s.PerSecond)
	}
	p := pane{title: title, rows: len(list), none: "nothing was", columns: []column{
		{head: "NAME", start: true}, {head: "COUNT", width: 5, right: true}, {head: "AGO", width: 4, right: true}, {head: "PROCESS", width: 14, from: 40}, {head: "REASON", width: 0, from: 90}}}
	p.id = func(i int) string { return list[i].Name }
	p.row = func(i int) ([]string, style) {
		n := &list[i]
		look := plain
		if s.Time.Sub(n.Last) < 10*time.Second {
			look = bad
		}
		return []string{n.Name, size(n.Count), brief(s.Time.Sub(n.Last)), process(n.PID, n.Process, 0), n.Reason}, look
	}
	p.target = func(i int) target {
		return target{entry: list[i].Line, place: list[i].Name}
	}
	return p
}

func (v *View) ofAsked(s *Shown) pane {
	list := slices.DeleteFunc(slices.Clone(s.Asked), func(n Name) bool { return !v.wants(n.Name, n.Process) })
	p := pane{title: fmt.Sprintf("NAMES ASKED %d", len(list)), rows: len(list), none: "none was", columns: []column{
		{head: "NAME", start: true}, {head: "COUNT", width: 5, right: true}, {head: "AGO", width: 4, right: true}, {head: "ANSWER", width: 7}, {head: "PROCESS", width: 14, from: 56}}}
	p.id = func(i int) string { return list[i].Name }
	p.row = func(i int) ([]string, style) {
		n := &list[i]
		answer, look := "refused", bad
		if n.Allowed {
			answer, look = "allowed", plain
		}
		return []string{n.Name, size(n.Count), brief(s.Time.Sub(n.Last)), answer, process(n.PID, n.Process, 0)}, look
	}
	p.target = func(i int) target { return target{entry: list[i].Name, place: list[i].Name} }
	return p
}

func (v *View) ofEnding(s *Shown) pane {
	list := slices.DeleteFunc(slices.Clone(s.Ending), func(l Lease) bool { return !v.wants(l.Name, l.Addr.String()) })
	p := pane{title: "LEASES THAT END NEXT", rows: len(list), none: "nothing is open by name", columns: []column{
		{head: "NAME", start: true}, {head: "ADDRESS", width: 22, start: true, from: 44}, {head: "PORTS", width: 14, from: 56}, {head: "IN", width: 4, right: true}}}
	p.id = func(i int) string { return list[i].Name + list[i].Addr.String() }
	p.row = func(i int) ([]string, style) {
		l := &list[i]
		left := l.Expires.Sub(s.Time)
		look := plain
		if left < 30*time.Second {
			look = dim
		}
		return []string{l.Name, l.Addr.String(), l.Ports, brief(left)}, look
	}
	p.target = func(i int) target { return target{entry: list[i].Name, place: list[i].Name} }
	return p
}

func placeOf(entry string) string {
	place, _, _ := strings.Cut(entry, " ")
	return place
}

// widths shares n columns among those of a list that are shown; -1: not shown.
func (p *pane) widths(n int) []int {
	out := make([]int, len(p.columns))
	left, flexible := n+len(gap), 0
	for i, c := range p.columns {
		switch {
		case n < c.from:
			out[i] = -1
			continue
		case c.width == 0:
			flexible++
		}
		out[i] = c.width
		left -= c.width + len(gap)
	}
	for i, c := range p.columns {
		if c.width == 0 && out[i] == 0 {
			out[i] = max(1, left/flexible)
			left -= out[i]
			flexible--
		}
	}
	return out
}

const gap = " "

// draw is one row in columns.
func (p *pane) draw(cells []string, widths []int, look style) line {
	var b strings.Builder
	for i, c := range p.columns {
		if widths[i] < 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(gap)
		}
		if c.right {
			b.WriteString(right(cells[i], widths[i]))
		} else {
			b.WriteString(fit(cells[i], widths[i], c.start))
		}
	}
	return line{{b.String(), look}}
}

func (p *pane) head(widths []int) line {
	var cells []string
	for _, c := range p.columns {
		cells = append(cells, c.head)
	}
	return p.draw(cells, widths, dim)
}

// lines are the title and as many rows as there is room for, with what is selected among them.
func (p *pane) lines(c *cursor, focused bool, width, height int) (out []line) {
	look := bold
	if focused {
		look = bar
	}
	title := " " + p.title + " "
	if p.rows > height-2 && focused {
		title += fmt.Sprintf("(row %d) ", c.at+1)
	}
	out = append(out, line{{title, look}}.cut(width))
	if p.rows == 0 {
		return append(out, line{{fit("  "+p.none, width, false), dim}})
	}
	widths := p.widths(width)
	if height > 2 {
		out = append(out, p.head(widths).cut(width))
	}
	room := height - len(out)
	if c.see(p, room); focused {
		c.id = p.id(c.at) // a key is about what was seen
	}
	for i := c.from; i < min(p.rows, c.from+room); i++ {
		cells, look := p.row(i)
		if focused && i == c.at {
			look = selected
		}
		out = append(out, p.draw(cells, widths, look).cut(width))
	}
	return out
}

// cursor is what is selected in a list. It stays with the row, wherever that goes.
type cursor struct {
	id   string
	at   int
	from int // the first row that is seen
}

func (c *cursor) see(p *pane, room int) {
	if p.rows == 0 {
		c.at, c.from = 0, 0
		return
	}
	if c.id != "" && (c.at >= p.rows || p.id(c.at) != c.id) {
		for i := range p.rows {
			if p.id(i) == c.id {
				c.at = i
				break
			}
		}
	}
	c.at = min(max(0, c.at), p.rows-1)
	room = max(1, room)
	c.from = min(max(c.from, c.at-room+1), c.at)
	c.from = max(0, min(c.from, p.rows-room))
}

// move selects another row.
func (c *cursor) move(p *pane, by int) {
	if p.rows == 0 {
		return
	}
	c.at = min(max(0, c.at+by), p.rows-1)
	c.id = p.id(c.at)
}

// order is what connections are sorted by.
type order uint8

const (
	byRate order = iota
	byBytes
	byAge
	byName
	byProcess
	orders int = iota
)

func (o order) String() string { return [...]string{"rate", "bytes", "age", "name", "process"}[o] }

func (o order) compare(a, b *Connection) int {
	switch o {
	case byRate:
		return cmp.Or(cmp.Compare(b.InRate+b.OutRate, a.InRate+a.OutRate), cmp.Compare(b.In+b.Out, a.In+a.Out))
	case byBytes:
		return cmp.Compare(b.In+b.Out, a.In+a.Out)
	case byAge:
		return a.Since.Compare(b.Since)
	case byName:
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Remote.Compare(b.Remote))
	}
	return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.PID, b.PID))
}
