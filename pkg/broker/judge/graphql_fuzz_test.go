package judge

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// spoken is how a server reads a document. It shares no code with the judge.
type spoken struct {
	lineEnds string // that end a comment, besides \n
	blocks   bool   // """ begins a block string
	blanks   string // besides the usual ones
}

var dialects = []spoken{
	{"\r", true, "\ufeff"}, {"", true, ""}, {"\r", false, ""}, {"", false, ""}, {"\r\u2028\u2029\u0085\v\f", true, "\u2028\u2029\u00a0\v\f"}, {"\r\u2028\u2029", false, "\u00a0"},
}

// definitions are the first words of the definitions in a document, or none if the server takes it for wrong. Where it
// is not sure, it goes on.
func (d spoken) definitions(document string) []string {
	var words []string
	depth, begins := 0, true
	runes := []rune(document)
	at := func(i int, what string) bool { return strings.HasPrefix(string(runes[i:min(len(runes), i+3)]), what) }
	for i := 0; i < len(runes); i++ {
		c := runes[i]
		switch {
		case c == '#':
			for i+1 < len(runes) && runes[i+1] != '\n' && !strings.ContainsRune(d.lineEnds, runes[i+1]) {
				i++
			}
		case d.blocks && at(i, `"""`):
			for i += 3; ; i++ {
				if i >= len(runes) {
					return nil
				}
				if runes[i] == '\\' && at(i+1, `"""`) {
					i += 3
				} else if at(i, `"""`) {
					i += 2
					break
				}
			}
		case c == '"':
			for i++; ; i++ {
				if i >= len(runes) || runes[i] == '\n' {
					return nil
				}
				if runes[i] == '\\' {
					i++
				} else if runes[i] == '"' {
					break
				}
			}
		case strings.ContainsRune("{([", c):
			if depth == 0 && begins {
				words, begins = append(words, "{"), false
			}
			depth++
		case strings.ContainsRune("})]", c):
			if depth--; depth < 0 {
				return nil
			}
			begins = depth == 0 && c == '}' || begins
		case depth == 0 && begins && (c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'):
			from := i
			for i+1 < len(runes) && (runes[i+1] == '_' || runes[i+1] >= 'a' && runes[i+1] <= 'z' || runes[i+1] >= 'A' && runes[i+1] <= 'Z') {
				i++
			}
			words, begins = append(words, string(runes[from:i+1])), false
		}
	}
	if depth != 0 {
		return nil
	}
	return words
}

// FuzzDocument holds that no document passes in which a server of any dialect finds what is no query.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		"{a}", "query Q($a:Int=1){a(b:\"x\")} fragment F on T{b}", `{a(x:[""" " ])} mutation M{z} query Q{b(y:[" """])}`, "# a\rmutation{b}\n{c}",
		"{a(x:#\r\"\"\"\n\"y\")} mutation{z} query B{b(y:\"\"\")}", "{a} #\u2028mutation{b}", `{a(b:"""\"""} mutation{c} {d(e:""")}`, "{a(b:\"\"\"x\"\"\")}",
		"{a{b(c:[1,{d:$e}])@f ...G ...on H{i}}}", "{a(b:\"\\\"} mutation{c}\")}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		if graphQLDocument(document) != nil {
			return
		}
		for _, d := range dialects {
			for _, word := range d.definitions(document) {
				if !slices.Contains([]string{"{", "query", "fragment"}, word) {
					t.Errorf("%q passes, and has a %s in the dialect %+v", document, word, d)
				}
			}
		}
	})
}

// TestDialectsNotice shows that the fuzz target's servers find what the judge is to refuse.
func TestDialectsNotice(t *testing.T) {
	for _, document := range []string{
		"{a} mutation{b}", "# a\rmutation{b}\n{c}", `{a(x:[""" " ])} mutation M{z} query Q{b(y:[" """])}`, "{a} #\u2028mutation{b}",
	} {
		if !slices.ContainsFunc(dialects, func(d spoken) bool { return slices.Contains(d.definitions(document), "mutation") }) {
			t.Errorf("no dialect finds the mutation in %q", document)
		}
	}
}

// FuzzGraphQL holds that a request that passes has its document where all servers look for it.
func FuzzGraphQL(f *testing.F) {
	f.Add("application/json", "", `{"query":"{a}","variables":{}}`)
	f.Add("application/x-www-form-urlencoded", "", `[{"query":"{a}"}]`)
	f.Add("", "query=%7Ba%7D&operationName=x", "")
	f.Fuzz(func(t *testing.T, kind, query, body string) {
		if GraphQL(kind, query, []byte(body)) != nil {
			return
		}
		if form, _ := url.ParseQuery(body); body != "" && len(form) > 1 || strings.Contains(kind, "multipart") {
			t.Errorf("%q with %q passes", kind, body)
		}
		values, err := url.ParseQuery(query)
		if err != nil || query != "" && body != "" {
			t.Fatalf("%q passes beside %q: %v", query, body, err)
		}
		documents := values["query"]
		if body != "" {
			top := second(t, []byte(body))
			list, ok := top.([]any)
			if !ok {
				list = []any{top}
			}
			for _, one := range list {
				for name, field := range one.(map[string]any) {
					if document, ok := field.(string); strings.EqualFold(name, "query") && ok {
						documents = append(documents, document)
					}
				}
			}
			if len(documents) != len(list) {
				t.Errorf("%q passes with %d documents", body, len(documents))
			}
		}
		if len(documents) == 0 {
			t.Errorf("%q, %q passes without a document", query, body)
		}
		for _, document := range documents {
			if graphQLDocument(document) != nil {
				t.Errorf("%q passes", document)
			}
		}
	})
}

// FuzzForm holds that Go's own readers of forms find no parameter in what passes that changes the method, and that it
// does not matter in which pieces a body comes.
func FuzzForm(f *testing.F) {
	f.Add("application/x-www-form-urlencoded", "a=b&_method=DELETE", 3)
	f.Add(multi, "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n", 5)
	f.Add("application/json", `{"a":{},"\u005fmethod":1}`, 2)
	f.Fuzz(func(t *testing.T, kind, body string, step int) {
		if form, refusal := NewForm(kind); form == nil || refusal != nil {
			return
		}
		found := changesMethod(t, kind, body, 1<<20)
		if changesMethod(t, kind, body, max(1, step%64)) != found {
			t.Errorf("%q of %s, in pieces of %d, is judged otherwise", body, kind, step)
		}
		if found {
			return
		}
		media, parameters, err := mime.ParseMediaType(kind)
		switch {
		case err != nil:
		case media == "application/x-www-form-urlencoded":
			values, _ := url.ParseQuery(body)
			for name := range values {
				if name == "_method" {
					t.Errorf("%q passes", body)
				}
			}
		case media == "multipart/form-data":
			for parts := multipart.NewReader(strings.NewReader(body), parameters["boundary"]); ; {
				part, err := parts.NextRawPart()
				if errors.Is(err, io.EOF) || err != nil {
					break
				}
				if part.FormName() == "_method" {
					t.Errorf("%q passes", body)
				}
			}
		case media == "application/json":
			if v, err := parse([]byte(body)); err == nil && v.get("_method").kind() != absent {
				t.Errorf("%q passes", body)
			}
		}
	})
}
