package route

import (
	"slices"
	"strconv"
	"strings"
)

// Inspected is a name whose connections the broker looks into: TLS ends there, and it judges each request. All other
// names are relayed as they are.
type Inspected struct {
	Name     string `json:"name"`               // lower case, A-labels, no trailing dot
	Wildcard bool   `json:"wildcard,omitempty"` // Name stands for itself and every name below it
	Port     uint16 `json:"port"`
	Plain    bool   `json:"plain,omitempty"`   // HTTP without TLS
	Private  bool   `json:"private,omitempty"` // the name may resolve to private addresses
	Observe  bool   `json:"observe,omitempty"` // monitor mode: what no rule allows passes, and is recorded

	Allow []Request `json:"allow,omitempty"` // in file order: the first that fits counts
	Deny  []Request `json:"deny,omitempty"`  // wins

	Within []Request `json:"within,omitempty"` // of the ceiling: what passes fits one of these, too; none: no ceiling is about it
}

// FindInspected returns the one of all that says which requests may be asked of name, which is canonical, on port: the
// most specific, which has what the others say too; nil if the name is not inspected.
func FindInspected(all []Inspected, name string, port uint16) (found *Inspected) {
	for i := range all {
		at := &all[i]
		covers := at.Name == name || at.Wildcard && strings.HasSuffix(name, "."+at.Name)
		if at.Port != port || !covers {
			continue
		}
		if found == nil || len(at.Name) > len(found.Name) || len(at.Name) == len(found.Name) && found.Wildcard {
			found = at
		}
	}
	return found
}

// Request is which requests a rule is about.
type Request struct {
	Methods   []string `json:"methods,omitempty"`    // in upper case; none: any
	Path      string   `json:"path,omitempty"`       // of Endpoint's form; a last ** stands for no segment as well; "": any
	GraphQL   string   `json:"graphql,omitempty"`    // Query: only operations that read pass; "": not looked at
	MaxUpload int64    `json:"max_upload,omitempty"` // bytes of a body, as sent and unpacked; 0: no limit; -1: no body
	WebSocket bool     `json:"websocket,omitempty"`  // the connection may become one
	Rule      string   `json:"rule"`                 // where it is written: FILE:LINE
}

// GraphQLQuery is the one word that Request.GraphQL has.
const GraphQLQuery = "query"

// Reading are the methods that the word read stands for: they change nothing (RFC 9110, section 9.2.1).
func Reading() []string { return []string{"GET", "HEAD", "OPTIONS"} }

// String returns what stands behind the name in an entry; "" for all requests.
func (q *Request) String() string {
	var words []string
	switch {
	case q.Path == "" && slices.Equal(q.Methods, Reading()):
		words = append(words, "read")
	case q.Path != "" && len(q.Methods) == 0:
		words = append(words, "*", q.Path)
	case q.Path != "":
		words = append(words, strings.Join(q.Methods, ","), q.Path)
	}
	if q.GraphQL != "" {
		words = append(words, "graphql="+q.GraphQL)
	}
	if q.MaxUpload != 0 {
		words = append(words, "max_upload="+sizeString(max(q.MaxUpload, 0)))
	}
	if q.WebSocket {
		words = append(words, "websocket")
	}
	return strings.Join(words, " ")
}

// sizeString returns bytes in the largest unit that they are a whole number of.
func sizeString(n int64) string {
	unit := ""
	for _, larger := range []string{"KiB", "MiB", "GiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, larger
	}
	return strconv.FormatInt(n, 10) + unit
}
