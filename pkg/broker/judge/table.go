package judge

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// table has the rules of an API: which members each object of a request may have. A member that its object does not list
// is refused, at every depth. Only below a kind that is called free, schema or {plain}, and in what a route lets the provider run, may a client write what it likes.
type table struct {
	objects map[string]*rule
	loose   bool // names are lowerCamelCase or lower_snake_case, and one value stands for a list of one: JSON of protobuf
}

// rule is an object's.
type rule struct {
	family  string // of the provider's tools that it belongs to
	runs    string // "type": a tool of that type; "name": each member is one
	members map[string]kind
	needs   []string
	open    bool // to members of any name, which are not looked at
}

// kind is what the value of a member may be: one of some alternatives.
type kind struct {
	family string // of the provider's tools that any value belongs to
	any    []alternative
	item   bool // of a list or a map
}

func item(of string) kind { return kind{any: []alternative{{of: of}}, item: true} }

// alternative is a scalar kind of scalars, the name of an object's rule, or a list or map of either.
type alternative struct {
	of   string
	each byte // '[' for a list, '{' for an object with any names, or 0
}

// tableOf reads a table when it is first needed. A line is the name of a rule, and what it has:
//
//	NAME        of an object
//	NAME:TYPE   of an object whose member type says so; TYPE is * for any other, and "" for none
//	@FAMILY     what this asks for is run by the provider
//	%type       this is a tool of that type. %name: each of its members is one
//	+NAME       what another rule has, which stands above
//	*           members of any name, which are not looked at
//	MEMBER=A|B  a member of a kind; A is a scalar kind, a rule, [A] or {A}. =A@FAMILY: the provider runs it. A ! behind
//	            the member's name: it has to be there. Without a kind, it is plain
//
// A line that begins with a blank goes on with the one before, and one that begins with # is a comment.
func tableOf(text string, loose bool) func() *table {
	return sync.OnceValue(func() *table {
		t := &table{objects: map[string]*rule{}, loose: loose}
		var s *rule
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			if len(words) == 0 || line[0] == '#' {
				continue
			}
			if line[0] != ' ' {
				s = &rule{members: map[string]kind{}}
				if strings.Contains(words[0], ":") {
					t.word(s, "type")
				}
				t.objects[words[0]] = s
				words = words[1:]
			}
			for _, word := range words {
				t.word(s, word)
			}
		}
		return t
	})
}

func (t *table) word(s *rule, word string) {
	rest := word[1:]
	switch word[0] {
	case '@':
		s.family = rest
	case '%':
		s.runs = rest
	case '+':
		of := t.objects[rest]
		maps.Copy(s.members, of.members)
		s.needs = append(s.needs, of.needs...)
		if of.runs != "" {
			s.runs = of.runs
		}
	case '*':
		s.open = true
	default:
		name, of, ok := strings.Cut(word, "=")
		if !ok {
			of = "plain"
		}
		if bare, needed := strings.CutSuffix(name, "!"); needed {
			name = bare
			s.needs = append(s.needs, bare)
		}
		var k kind
		of, k.family, _ = strings.Cut(of, "@")
		for part := range strings.SplitSeq(of, "|") {
			a := alternative{of: part}
			if part[0] == '[' || part[0] == '{' {
				a = alternative{of: part[1 : len(part)-1], each: part[0]}
			}
			k.any = append(k.any, a)
		}
		s.members[name] = k
	}
}

// request judges the whole body by a rule.
func (t *table) request(q *request, name string) *Refusal {
	if q.root.kind() != object {
		return refuse("json", "the body is not an object")
	}
	return t.members(q, nil, t.objects[name], q.root)
}

// members judges what an object has. What is null is taken as not there.
func (t *table) members(q *request, what []byte, s *rule, v value) *Refusal {
	var seen map[string]bool
	if t.loose {
		seen = map[string]bool{}
	}
	for raw, member := range v.members() {
		name := raw
		if t.loose {
			name = []byte(camel(raw))
			if seen[string(name)] {
				return refuse("json", "field %s of %s stands twice, in two spellings", quote(raw, 64), quote(what, 64))
			}
			seen[string(name)] = true
		}
		if member.none() {
			continue
		}
		k, ok := s.members[string(name)]
		if s.runs == "name" {
			if refusal := q.runs(name, member); refusal != nil {
				return refusal
			}
			if !ok {
				continue // the route names it
			}
		}
		if !ok && (s.open || q.named(raw) || q.named(name)) {
			continue
		}
		if !ok {
			return q.strange(raw, what)
		}
		if refusal := t.judge(q, name, k, member); refusal != nil {
			return refusal
		}
	}
	for _, name := range s.needs {
		if v.get(name).none() {
			if name == "model" {
				return refuse("model", "%s without a model is not allowed", quote(what, 64))
			}
			return refuse("content", "%s without its %s is not allowed", quote(what, 64), name)
		}
	}
	return nil
}

// judge judges a value that is there by the alternative of its form.
func (t *table) judge(q *request, name []byte, k kind, v value) *Refusal {
	if k.family != "" {
		if refusal := q.provided(name, k.family); refusal != nil {
			return refusal
		}
	}
	for _, a := range k.any {
		form, scalar := scalars[a.of]
		switch {
		case a.each == '[' && (v.kind() == array || t.loose):
			return t.list(q, name, a.of, v)
		case a.each == '{' && v.kind() == object:
			for inner, one := range v.members() {
				if refusal := t.judge(q, inner, item(a.of), one); refusal != nil {
					return refusal
				}
			}
			return nil
		case a.each != 0:
		case !scalar && v.kind() == object:
			return t.object(q, name, a.of, v)
		case scalar && (v.scalar() || form.deep):
			return form.judge(q, name, v)
		}
	}
	return t.misfit(name, k)
}

// misfit says what a value should have been.
func (t *table) misfit(name []byte, k kind) *Refusal {
	want := "an object"
	if _, scalar := scalars[k.any[0].of]; scalar {
		want = "a plain value"
	}
	if k.any[len(k.any)-1].each == '[' {
		want = "a list"
	}
	if k.item {
		return refuse("content", "%s has what is not %s", quote(name, 64), want)
	}
	return refuse("content", "%s is not %s", quote(name, 64), want)
}

// list judges the items of a list.
func (t *table) list(q *request, name []byte, of string, v value) *Refusal {
	if v.kind() != array {
		return t.judge(q, name, item(of), v)
	}
	for one := range v.items() {
		if refusal := t.judge(q, name, item(of), one); refusal != nil {
			return refusal
		}
	}
	return nil
}

// object judges an object by its rule, or by that of its type.
func (t *table) object(q *request, name []byte, of string, v value) *Refusal {
	if s := t.objects[of]; s != nil {
		return t.ruled(q, name, s, v)
	}
	typed := v.get("type")
	kind := typed.str()
	s := t.objects[of+":"+string(kind)]
	if s == nil || kind != nil && len(kind) == 0 {
		s = t.objects[of+":*"]
	}
	if s == nil || !typed.none() && typed.kind() != text {
		return unknown(of, typed)
	}
	if s.runs == "type" {
		if refusal := q.runs(kind, v); refusal != nil {
			return refusal
		}
	}
	if kind == nil {
		kind = []byte(cmp.Or(inWords[of], of))
	}
	return t.ruled(q, kind, s, v)
}

func (t *table) ruled(q *request, what []byte, s *rule, v value) *Refusal {
	if s.family != "" {
		if refusal := q.provided(what, s.family); refusal != nil {
			return refusal
		}
	}
	return t.members(q, what, s, v)
}

// inWords are rules in words, where their names are none that a person knows.
var inWords = map[string]string{
	"block": "content", "part": "content", "item": "an item", "tool": "a tool", "source": "a source", "call": "a call",
	"edit": "an edit of the context", "addition": "a change of tools", "page": "a result of web_fetch",
	"annotation": "an annotation", "choice": "tool_choice",
}

// unknown refuses an object by its type.
func unknown(of string, kind value) *Refusal {
	what := cmp.Or(inWords[of], of)
	switch word := string(kind.str()); {
	case kind.none():
		return refuse("content", "%s without a type is not allowed", what)
	case kind.kind() != text && of == "tool":
		return refuse("tool", "%s of a type that is not a text is not allowed", what)
	case kind.kind() != text:
		return refuse("content", "%s of a type that is not a text is not allowed", what)
	case of == "source" && word == "url":
		return refuse("content", "a source by url is not allowed, since the provider would fetch it; base64 is")
	case of == "source" && word == "file":
		return refuse("content", "a source by file is not allowed, since the provider keeps such files; base64 is")
	case of == "item" && word == "item_reference":
		return refuse("content", "an item that only refers to another is not allowed, since it can't be judged")
	}
	return refuse("content", "%s of the type %s is not allowed, or not known to agent-init", what, quote(kind.str(), 64))
}

// form is a scalar kind.
type form struct {
	judge func(q *request, name []byte, v value) *Refusal
	deep  bool // of any value
}

// scalars are the kinds that a table may name besides its rules.
var scalars map[string]form

func init() {
	scalars = map[string]form{
		"plain":  {judge: func(*request, []byte, value) *Refusal { return nil }}, // a text, a number, true or false
		"free":   {judge: func(*request, []byte, value) *Refusal { return nil }, deep: true},
		"word":   {judge: setting},
		"model":  {judge: func(q *request, _ []byte, v value) *Refusal { _, r := q.model(v); return r }, deep: true},
		"schema": {judge: func(q *request, _ []byte, v value) *Refusal { return q.schema(v) }, deep: true},

		"data":   {judge: within},
		"base64": {judge: encoded},
		"fetched": {judge: func(_ *request, name []byte, _ value) *Refusal {
			return refuse("content", "%s is not allowed, since the provider would fetch it", quote(name, 64))
		}, deep: true},
		"kept": {judge: kept, deep: true},
		"search": {judge: func(q *request, name []byte, v value) *Refusal {
			if v.kind() == 'f' {
				return nil
			}
			return q.provided(name, "web_search")
		}, deep: true},
		"served":    {judge: served, deep: true},
		"tooled":    {judge: tooled, deep: true},
		"role":      {judge: role, deep: true},
		"fallbacks": {judge: fallbacks},
		"plugin":    {judge: plugin, deep: true},
		"upstream":  {judge: upstream, deep: true},
	}
}

// setting is a plain value that names no place.
func setting(_ *request, name []byte, v value) *Refusal {
	if remote(v.str()) {
		return refuse("content", "an address in %s is not allowed, since the provider could fetch it", quote(name, 64))
	}
	return nil
}

// within is a URL that has its content in itself.
func within(_ *request, name []byte, v value) *Refusal {
	if !inline(v.str()) {
		return refuse("content", "%s by an address is not allowed, since the provider would fetch it; one that "+
			"begins with data: has its content in itself", quote(name, 64))
	}
	return nil
}

func encoded(_ *request, name []byte, v value) *Refusal {
	if v.kind() != text || bytes.IndexByte(v.str(), ':') >= 0 && !inline(v.str()) {
		return refuse("content", "%s is not in base64", quote(name, 64))
	}
	return nil
}

func kept(q *request, name []byte, _ value) *Refusal {
	if q.named(name) {
		return nil
	}
	return refuse("content", "%s refers to what the provider keeps, which can't be judged; "+
		"route %s lets it pass with fields: [%[1]s]", quote(name, 64), q.route.Name)
}

// runs refuses a tool that the client does not run on this route, unless the route names it.
func (q *request) runs(kind []byte, tool value) *Refusal {
	family := families[string(kind)]
	switch string(kind) {
	case "": // OpenAI's and Anthropic's type where none is said
		if kind == nil && !tool.get("function").none() {
			kind = []byte("function")
		} else if kind == nil {
			kind = []byte("custom")
		}
	case "shell":
		if string(tool.get("environment").get("type").str()) != "local" {
			return q.provided(kind, family)
		}
	case "systemTool":
		kind = tool.get("name").str()
	}
	if q.client(string(kind)) {
		return nil
	}
	if q.cached(tool, string(kind)) && !slices.Contains(q.route.ProviderTools, family) {
		family = "web_search_cached"
	}
	return q.provided(kind, family)
}

// client says whether the client runs tools of a type on this route.
func (q *request) client(kind string) bool { return slices.Contains(q.route.ClientTools, kind) }

// cached says whether a search is of OpenAI's index alone. By default it is not.
func (q *request) cached(tool value, kind string) bool {
	return strings.HasSuffix(q.path, "/responses") && (kind == "web_search" || kind == "web_search_2025_08_26") &&
		tool.get("external_web_access").kind() == 'f'
}

// families of tools that a provider runs, by their types. A type without one is named in full.
var families = map[string]string{
	"web_search": "web_search", "web_search_2025_08_26": "web_search", "web_search_preview": "web_search",
	"web_search_preview_2025_03_11": "web_search", "file_search": "file_search", "code_interpreter": "code_interpreter",
	"image_generation": "image_generation", "mcp": "mcp", "programmatic_tool_calling": "programmatic_tool_calling",
	"shell": "shell", "local_shell": "shell",

	"web_search_20250305": "web_search", "web_search_20260209": "web_search", "web_search_20260318": "web_search",
	"web_fetch_20250910": "web_fetch", "web_fetch_20260209": "web_fetch", "web_fetch_20260309": "web_fetch",
	"web_fetch_20260318": "web_fetch", "code_execution_20250522": "code_execution",
	"code_execution_20250825": "code_execution", "code_execution_20260120": "code_execution",
	"code_execution_20260521": "code_execution", "advisor_20260301": "advisor", "mcp_toolset": "mcp",

	"web_search_premium": "web_search", "document_library": "document_library", "connector": "connector", // Mistral's
	"browser_search": "web_search",                                                                        // Groq's
	"x_search":       "x_search", "collections_search": "file_search", "code_execution": "code_execution", // xAI's
	"builtin_function": "builtin_function", // Kimi's, of which one is $web_search

	"googleSearch": "google_search", "googleSearchRetrieval": "google_search", "enterpriseWebSearch": "google_search",
	"urlContext": "url_context", "codeExecution": "code_execution", "googleMaps": "google_maps",
	"fileSearch": "file_search", "mcpServers": "mcp", "retrieval": "retrieval", "exaAiSearch": "exa_ai_search",
	"parallelAiSearch": "parallel_ai_search",
}
