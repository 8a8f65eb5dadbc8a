package judge

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/agent-init/agent-init/pkg/route"
)

// spelling is a way to write a document that means the same.
type spelling struct {
	reverse bool   // members in the other order
	names   bool   // escaped
	texts   bool   // likewise
	blank   string // between what it consists of
}

var spellings = map[string]spelling{
	"as it is":      {},
	"reversed":      {reverse: true},
	"escaped names": {names: true},
	"escaped":       {names: true, texts: true, reverse: true},
	"spread out":    {blank: " \r\n\t"},
}

func (s spelling) write(b *strings.Builder, v value) {
	switch v.kind() {
	case object:
		var members []string
		for name, member := range v.members() {
			var m strings.Builder
			fmt.Fprintf(&m, "%s%s%s:%s", s.blank, s.text(name, s.names), s.blank, s.blank)
			s.write(&m, member)
			members = append(members, m.String()+s.blank)
		}
		if s.reverse {
			slices.Reverse(members)
		}
		fmt.Fprintf(b, "{%s}", strings.Join(members, ","))
	case array:
		var items []string
		for item := range v.items() {
			var i strings.Builder
			s.write(&i, item)
			items = append(items, s.blank+i.String()+s.blank)
		}
		fmt.Fprintf(b, "[%s]", strings.Join(items, ","))
	case text:
		b.WriteString(s.text(v.str(), s.texts))
	default:
		b.Write(v.raw())
	}
}

func (s spelling) text(of []byte, escaped bool) string {
	if !escaped {
		return fmt.Sprintf("%q", string(of)) // what the tests have in texts is written alike in Go and JSON
	}
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(string(of))) {
		fmt.Fprintf(&b, `\u%04X`, unit)
	}
	return `"` + b.String() + `"`
}

// verdict is that on a body in all spellings, which have to agree. It is "" for one that passes.
func verdict(t *testing.T, r *route.Route, e *route.Endpoint, path, body string) string {
	t.Helper()
	v, err := parse([]byte(body))
	if err != nil {
		t.Fatalf("the test's own body: %v: %s", err, body)
	}
	what := ""
	for i, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range spellings {
			yield(name)
		}
	}) {
		var b strings.Builder
		spellings[name].write(&b, v)
		told, refusal := Body(r, e, path, []byte(b.String()))
		got := ""
		if refusal != nil {
			got = refusal.What
			if told != (Told{}) {
				t.Errorf("%s: a refusal tells %+v", name, told)
			}
		}
		if i > 0 && got != what {
			t.Errorf("%s: %q, and %q before: %s", name, got, what, b.String())
		}
		what = got
	}
	return what
}

// pack compresses a body.
func pack(t *testing.T, encoding string, body []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&packed)
	case "deflate":
		w = zlib.NewWriter(&packed)
	default:
		return body
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}
