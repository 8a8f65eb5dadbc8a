package judge

import (
	"bytes"
	"mime"
	"net/url"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// maxGraphQL bounds the operations of a batch.
const maxGraphQL = 100

// graphQLFields are the parameters of a request (https://graphql.github.io/graphql-over-http/draft, section 5.1), and
// what each has to be. Others are refused: servers know requests that are stored by documentId, doc_id, id, hash, ….
var graphQLFields = map[string]bool{"query": true, "operationName": true, "variables": true, "extensions": true}

// graphQLExtensions say nothing of what is done: Apollo's client tells its own name. persistedQuery is not among them.
var graphQLExtensions = map[string]bool{"clientLibrary": true}

// GraphQL judges a request to an API of GraphQL, unpacked, by the word graphql=query: each operation that it has is a
// query, whichever is asked for by its name. Documents that are stored at the server, and uploads, can't be judged.
func GraphQL(contentType, rawQuery string, body []byte) *Refusal {
	if len(body) == 0 {
		return graphQLByQuery(rawQuery)
	}
	if rawQuery != "" {
		return refuse("graphql", "a request of GraphQL has a query in its address and a body: servers take one or the other")
	}
	if len(body) > route.MaxBody {
		return refuse("size", "the body has more than %d bytes", route.MaxBody)
	}
	if refusal := graphQLType(contentType, body); refusal != nil {
		return refusal
	}
	root, err := parse(body)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "jsontext: ")
		return refuse("graphql", "the body is not JSON that can be judged: %s", quote(why, 200))
	}
	if root.kind() != array {
		return graphQLRequest(root)
	}
	n := 0
	for one := range root.items() {
		if n++; n > maxGraphQL {
			return refuse("graphql", "a batch has more than %d operations", maxGraphQL)
		}
		if refusal := graphQLRequest(one); refusal != nil {
			return refusal
		}
	}
	if n == 0 {
		return refuse("graphql", "a batch has no operation")
	}
	return nil
}

// graphQLType refuses what is not JSON in UTF-8. Many post JSON as a form, as curl does; then nothing in it may be
// read as a second field of the form.
func graphQLType(contentType string, body []byte) *Refusal {
	kind, parameters, err := mime.ParseMediaType(contentType)
	charset, ok := parameters["charset"]
	plain := err == nil && (len(parameters) == 0 || len(parameters) == 1 && ok && strings.EqualFold(charset, "utf-8"))
	if plain && (kind == "application/json" || kind == "application/x-www-form-urlencoded" && !bytes.ContainsAny(body, "&;")) {
		return nil
	}
	return refuse("graphql", "a request of GraphQL has to be of the type application/json in UTF-8, and not %s",
		quote(contentType, 64))
}

// graphQLRequest judges one request in JSON.
func graphQLRequest(v value) *Refusal {
	if v.kind() != object {
		return refuse("graphql", "a request of GraphQL is not an object")
	}
	for name, field := range v.members() {
		if !graphQLFields[string(name)] {
			return refuse("graphql", "field %s of a request of GraphQL is not known to agent-init", quote(name, 64))
		}
		if string(name) != "extensions" {
			continue
		}
		if refusal := graphQLExtended(field); refusal != nil {
			return refusal
		}
	}
	if name := v.get("operationName"); !name.none() && name.kind() != text {
		return refuse("graphql", "operationName is not a text")
	}
	if vars := v.get("variables"); !vars.none() && vars.kind() != object {
		return refuse("graphql", "variables is not an object")
	}
	if v.get("query").kind() != text {
		return refuse("graphql", "a request of GraphQL without its document can't be judged: persisted queries are refused")
	}
	return graphQLDocument(string(v.get("query").str()))
}

func graphQLExtended(v value) *Refusal {
	if !v.none() && v.kind() != object {
		return refuse("graphql", "extensions is not an object")
	}
	for name, extension := range v.members() {
		if !graphQLExtensions[string(name)] && !extension.none() {
			return refuse("graphql", "extension %s is not known to agent-init; persisted queries are refused", quote(name, 64))
		}
	}
	return nil
}

// graphQLByQuery judges a request that has all in its address.
func graphQLByQuery(rawQuery string) *Refusal {
	seen := map[string]string{}
	if rawQuery == "" {
		return refuse("graphql", "a request of GraphQL has no document")
	}
	for part := range strings.SplitSeq(rawQuery, "&") {
		escaped, text, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(escaped)
		if err == nil {
			text, err = url.QueryUnescape(text)
		}
		_, twice := seen[name]
		if err != nil || twice || !graphQLFields[name] || strings.Contains(part, ";") {
			return refuse("graphql", "parameter %s of a request of GraphQL is not known to agent-init, or stands there twice",
				quote(escaped, 64))
		}
		seen[name] = text
	}
	for _, name := range []string{"variables", "extensions"} {
		if seen[name] == "" {
			continue
		}
		v, err := parse([]byte(seen[name]))
		if err != nil || !v.none() && v.kind() != object {
			return refuse("graphql", "%s is not an object", name)
		}
		if name == "extensions" {
			if refusal := graphQLExtended(v); refusal != nil {
				return refusal
			}
		}
	}
	if _, ok := seen["query"]; !ok {
		return refuse("graphql", "a request of GraphQL without its document can't be judged: persisted queries are refused")
	}
	return graphQLDocument(seen["query"])
}

// graphQLDocument refuses a document with an operation that is no query.
func graphQLDocument(text string) *Refusal {
	operations, err := parseDocument(text)
	if err != nil {
		return refuse("graphql", "the query %v", err)
	}
	for _, operation := range operations {
		if operation != route.GraphQLQuery {
			return refuse("graphql", "the document has a %s, and only queries are allowed (graphql=query)", operation)
		}
	}
	return nil
}
