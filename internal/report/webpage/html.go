package webpage

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
)

// word is text of this program's own: the name of an element or an attribute, a sentence. A plain string is never one,
// since only constants turn into it by themselves. So what the agent chose can't become markup, whoever writes a section.
type word string

// node is an element. Its children are nodes, words, strings, numbers, and lists of nodes.
type node struct {
	tag  word
	attr []attribute
	kids []any
}

type attribute struct {
	name  word
	value string
}

// raw is what stands in style: this program's own file, as it is.
type raw string

// el is an element. The tag may have classes behind it, as in CSS: "td.num.wide".
func el(tag word, kids ...any) *node {
	name, class, has := strings.Cut(string(tag), ".")
	n := &node{tag: word(name)}
	if has {
		n = n.with("class", strings.ReplaceAll(class, ".", " "))
	}
	n.kids = append(n.kids, kids...)
	return n
}

// with puts an attribute on an element.
func (n *node) with(name word, value any) *node {
	n.attr = append(n.attr, attribute{name, said(value)})
	return n
}

// add puts more into an element.
func (n *node) add(kids ...any) *node {
	n.kids = append(n.kids, kids...)
	return n
}

func said(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case word:
		return string(v)
	case float64:
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
	}
	return fmt.Sprint(v)
}

var (
	escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")
	void    = map[word]bool{"meta": true}
)

// out writes nodes until one can't be written.
type out struct{ w *bufio.Writer }

func (o out) put(parts ...string) {
	for _, p := range parts {
		_, _ = o.w.WriteString(p) // a fault stays until Flush
	}
}

func (o out) node(n *node) {
	o.put("<", string(n.tag))
	for _, a := range n.attr {
		o.put(" ", string(a.name), `="`, escapes.Replace(text.Clean(a.value)), `"`)
	}
	o.put(">")
	if void[n.tag] {
		return
	}
	for _, k := range n.kids {
		o.kid(k)
	}
	o.put("</", string(n.tag), ">")
	switch n.tag {
	case "tr", "p", "section", "li", "h2", "rect", "style", "details":
		o.put("\n")
	}
}

func (o out) kid(k any) {
	switch k := k.(type) {
	case *node:
		o.node(k)
	case []*node:
		for _, n := range k {
			o.node(n)
		}
	case raw:
		o.put(string(k))
	case word:
		o.put(escapes.Replace(string(k)))
	case nil:
	default: // whatever it is, the agent may have chosen it
		o.put(escapes.Replace(text.Clean(said(k))))
	}
}

// document writes a page.
func document(w io.Writer, n *node) error {
	o := out{bufio.NewWriterSize(w, 64<<10)}
	o.put("<!doctype html>\n")
	o.node(n)
	o.put("\n")
	return o.w.Flush()
}
