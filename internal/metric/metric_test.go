package metric

import (
	"strings"
	"testing"
)

// TestText: a family is its help, its type and then its points. Of a label's value, three signs have an escape.
func TestText(t *testing.T) {
	var b strings.Builder
	err := WriteText(&b, []Metric{
		{Name: "a_total", Kind: "counter", Help: "As.", Points: []Point{Is(3, "by", `a"b\c`+"\nd"), Is(uint64(1)<<48-1, "by", "é")}},
		{Name: "b_seconds", Kind: "summary", Help: "Bs.", Points: Took(2_500_000_000, 7)},
		{Name: "c", Kind: "gauge", Help: "None."},
	})
	want := `# HELP a_total As.
# TYPE a_total counter
a_total{by="a\"b\\c\nd"} 3
a_total{by="é"} 281474976710655
# HELP b_seconds Bs.
# TYPE b_seconds summary
b_seconds_sum 2.5
b_seconds_count 7
# HELP c None.
# TYPE c gauge
`
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}
