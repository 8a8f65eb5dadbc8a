package judge

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// settings refuses what names a place, or could.
func (q *request) settings(name []byte, v value) *Refusal {
	switch v.kind() {
	case text:
		if remote(v.str()) {
			return refuse("content", "an address in %s is not allowed, since the provider could fetch it",
				quote(name, 64))
		}
	case array:
		return q.list(v, name, false, func(item value) *Refusal { return q.settings(name, item) })
	case object:
		for inner, member := range v.members() {
			if placing(inner) && !member.none() && !q.named(inner) {
				return q.strange(inner, name)
			}
			if refusal := q.settings(inner, member); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// schema refuses a reference to another document, which some readers of schemas fetch.
func (q *request) schema(v value) *Refusal {
	for name, member := range v.members() {
		switch string(name) {
		case "$ref", "$dynamicRef", "$recursiveRef":
			if remote(member.str()) {
				return refuse("content", "a schema by its address is not allowed, since the provider could fetch it")
			}
		}
		if refusal := q.schema(member); refusal != nil {
			return refusal
		}
	}
	for item := range v.items() {
		if refusal := q.schema(item); refusal != nil {
			return refusal
		}
	}
	return nil
}

// remote says whether a text begins as an address does.
func remote(s []byte) bool {
	s = bytes.TrimLeft(s[:min(len(s), 64)], " \t\r\n")
	scheme, _, ok := bytes.Cut(s, []byte(":"))
	if !ok {
		return bytes.HasPrefix(s, []byte("//"))
	}
	switch strings.ToLower(string(scheme)) {
	case "http", "https", "ftp", "file", "gs", "s3", "ws", "wss":
		return true
	}
	return false
}

// placing says whether a name is one that names of places have, or of what has the provider go to some. One beyond
// ASCII could be any: to a server that is written in Go, “ſ” is an “s”.
func placing(name []byte) bool {
	s := folded(name)
	for _, c := range name {
		if c >= utf8.RuneSelf {
			return true
		}
	}
	for _, part := range places {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

// places are parts of names, folded.
var places = []string{
	"url", "uri", "href", "endpoint", "location", "source", "server", "container", "connector", "vectorstore",
	"apibase", "fileid", "filedata", "cachedcontent", "conversation", "responseid", "prompt",
	"search", "tools", "systemtool", "plugin", "background",
}

// respelt says whether a name is one of a rule's in another spelling.
func respelt(name []byte, members map[string]look) bool {
	for member := range members {
		if alike(string(name), member) {
			return true
		}
	}
	return false
}

// alike says whether names differ in case, hyphens and underscores at most.
func alike(a, b string) bool {
	for {
		a, b = strings.TrimLeft(a, "_-"), strings.TrimLeft(b, "_-")
		if a == "" || b == "" {
			return a == b
		}
		if lower(a[0]) != lower(b[0]) {
			return false
		}
		a, b = a[1:], b[1:]
	}
}

// folded is what names have in common that are alike.
func folded[T ~string | ~[]byte](name T) string {
	folded := make([]byte, 0, len(name))
	for _, c := range []byte(name) {
		if c != '_' && c != '-' {
			folded = append(folded, lower(c))
		}
	}
	return string(folded)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
