package text

import (
	"io"
	"strings"
)

// Table is rows under a head, in columns. Where a terminal is too narrow for it, the last column is broken between
// words, and what is too wide even then goes below its row. A file or a pipe gets each row in one line.
type Table struct {
	head []string
	rows []tableRow
}

type tableRow struct {
	cells []string // none: notes alone
	notes []string // below the row, each a line of its own
}

// NewTable begins a table. A name that begins with a blank stands at the right, as numbers do.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Row adds a row. Cells may have colours; a missing one is empty.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, tableRow{cells: cells}) }

// Note adds a line below the last row.
func (t *Table) Note(line string) {
	last := &t.rows[len(t.rows)-1]
	last.notes = append(last.notes, line)
}

const between = "  " // columns

// Write writes the table as wide as w is.
func (t *Table) Write(w io.Writer) error {
	widths := make([]int, len(t.head))
	for i, name := range t.head {
		widths[i] = Columns(strings.TrimSpace(name))
		for _, r := range t.rows {
			widths[i] = max(widths[i], Columns(r.cell(i)))
		}
	}
	full, last := WidthOf(w), len(widths)-1
	before := 0
	for _, n := range widths[:last] {
		before += n + len(between)
	}
	below := full > 0 && full-before < minLast && widths[last] > full-before
	var b strings.Builder
	t.line(&b, tableRow{cells: trimmed(t.head)}, widths, before, full, below)
	for _, r := range t.rows {
		t.line(&b, r, widths, before, full, below)
		for _, note := range r.notes {
			b.WriteString(Fold(hangNote+note, full, hangNote+between) + "\n")
		}
	}
	if f, ok := w.(*folder); ok {
		w = f.w // each line is folded already
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const (
	minLast  = 16 // columns that a last column must have to stay beside the others
	hangNote = "      "
)

// line writes one row; its last cell goes below it where there is no room beside.
func (t *Table) line(b *strings.Builder, r tableRow, widths []int, before, full int, below bool) {
	last := len(widths) - 1
	var out strings.Builder
	for i := range last {
		cell := r.cell(i)
		pad := strings.Repeat(" ", max(0, widths[i]-Columns(cell)))
		if strings.HasPrefix(t.head[i], " ") {
			out.WriteString(pad + cell + between)
		} else {
			out.WriteString(cell + pad + between)
		}
	}
	switch end := r.cell(last); {
	case end == "":
		b.WriteString(Fold(strings.TrimRight(out.String(), " "), full, hangNote) + "\n")
	case below:
		b.WriteString(Fold(strings.TrimRight(out.String(), " "), full, hangNote) + "\n")
		b.WriteString(Fold(hangNote+end, full, hangNote) + "\n")
	default:
		if strings.HasPrefix(t.head[last], " ") {
			end = strings.Repeat(" ", max(0, widths[last]-Columns(end))) + end
		}
		b.WriteString(Fold(out.String()+end, full, strings.Repeat(" ", before)) + "\n")
	}
}

func (r tableRow) cell(i int) string {
	if i < len(r.cells) {
		return r.cells[i]
	}
	return ""
}

func trimmed(head []string) []string {
	out := make([]string, len(head))
	for i, name := range head {
		out[i] = strings.TrimSpace(name)
	}
	return out
}
