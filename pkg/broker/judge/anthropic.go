package judge

// anthropic is a body that is judged by the tables of messages.go.
type anthropic struct{ *request }

func (q anthropic) fits(v value, what []byte, r rule) *Refusal {
	return q.members(v, what, r, anthropicCommon, q.look)
}

// look judges a member. What is null is taken as not there.
func (q anthropic) look(how look, name []byte, v value) *Refusal {
	if v.none() {
		return nil
	}
	switch how {
	case asContent:
		return q.list(v, name, v.kind() == text, q.block)
	case asMessages:
		return q.list(v, name, false, q.message)
	case asTools:
		return q.list(v, name, false, q.tool)
	case asAdditions:
		return q.list(v, name, false, q.block)
	case asFallbacks:
		return q.fallbacks(v)
	case asPlain:
		if !v.scalar() {
			return refuse("content", "%s is not a plain value", quote(name, 64))
		}
	case asSource:
		return q.source(v)
	case asFetched:
		return q.fetched(v)
	case asServed:
		return q.byFamily(v, anthropicServed)
	case asModel:
		_, refusal := q.model(v)
		return refusal
	case asTarget:
		_, refusal := q.model(v.get("model"))
		return refusal
	case asAddition:
		return q.addition(v)
	case asSettings:
		return q.settings(name, v)
	case asSchema:
		return q.schema(v)
	case asManagement:
		return q.fits(v, name, anthropicManagement)
	case asEdits:
		return q.list(v, name, false, q.edit)
	case asServers:
		return q.list(v, name, false, func(value) *Refusal { return q.provided(name, "mcp") })
	case asContainer:
		return q.container(v)
	case asSummarize:
		if string(v.get("type").str()) != "summarize" {
			return unknown("compaction", v.get("type"))
		}
		return q.fits(v, name, anthropicSummary)
	}
	return nil
}

// list judges the items of a list. What is no list is refused, unless it passes as it is.
func (q *request) list(v value, name []byte, passes bool, judge func(value) *Refusal) *Refusal {
	if passes {
		return nil
	}
	if v.kind() != array {
		return refuse("content", "%s is not a list", quote(name, 64))
	}
	for item := range v.items() {
		if refusal := judge(item); refusal != nil {
			return refusal
		}
	}
	return nil
}

func unknown(what string, kind value) *Refusal {
	if kind.kind() != text {
		return refuse("content", "%s without a type is not allowed", what)
	}
	return refuse("content", "%s of the type %s is not allowed, or not known to agent-init", what, quote(kind.str(), 64))
}

func (q anthropic) message(v value) *Refusal {
	switch role := v.get("role"); string(role.str()) {
	case "user", "assistant", "system":
		return q.fits(v, role.str(), anthropicMessage)
	default:
		return refuse("content", "a message of the role %s is not known to agent-init", quote(role.raw(), 64))
	}
}

func (q anthropic) block(v value) *Refusal {
	kind := v.get("type").str()
	r, ok := anthropicBlocks[string(kind)]
	if !ok {
		return unknown("content", v.get("type"))
	}
	if r.family != "" {
		if refusal := q.provided(kind, r.family); refusal != nil {
			return refusal
		}
	}
	return q.fits(v, kind, r)
}

// source is that of an image or a document.
func (q anthropic) source(v value) *Refusal {
	kind := v.get("type").str()
	switch r, ok := anthropicSources[string(kind)]; {
	case ok:
		return q.fits(v, kind, r)
	case string(kind) == "url":
		return refuse("content", "a source by url is not allowed, since the provider would fetch it; base64 is")
	case string(kind) == "file":
		return refuse("content", "a source by file is not allowed, since the provider keeps such files; base64 is")
	}
	return unknown("a source", v.get("type"))
}

// fetched is the result of web_fetch. The document in it has a source like any other.
func (q anthropic) fetched(v value) *Refusal {
	switch kind := v.get("type"); string(kind.str()) {
	case "web_fetch_tool_result_error":
		return nil
	case "web_fetch_result":
		return q.block(v.get("content"))
	default:
		return unknown("a result of web_fetch", kind)
	}
}

// byFamily judges a name or a type that the provider may run.
func (q anthropic) byFamily(v value, known map[string]string) *Refusal {
	family, ok := known[string(v.str())]
	if ok && family == "" {
		return nil
	}
	return q.provided(v.str(), family)
}

func (q anthropic) tool(v value) *Refusal {
	kind := v.get("type")
	if kind.none() {
		return q.fits(v, []byte("a tool"), anthropicTool)
	}
	if refusal := q.byFamily(kind, anthropicTools); refusal != nil {
		return refusal
	}
	if anthropicTools[string(kind.str())] == "advisor" && v.get("model").none() {
		return refuse("model", "an advisor without a model is not allowed")
	}
	return q.fits(v, kind.str(), anthropicTool)
}

// addition is what tool_addition and tool_removal have: a reference to a tool that is told elsewhere, or a whole one.
func (q anthropic) addition(v value) *Refusal {
	kind := v.get("type")
	if string(kind.str()) == "tool_definition" {
		return q.tool(v.get("definition"))
	}
	if _, ok := anthropicReferences[string(kind.str())]; !ok {
		return unknown("a change of tools", kind)
	}
	return q.byFamily(kind, anthropicReferences)
}

func (q anthropic) edit(v value) *Refusal {
	if kind := v.get("type"); !anthropicEdits[string(kind.str())] {
		return unknown("an edit of the context", kind)
	}
	return q.settings(nil, v)
}

// fallbacks are other models that the provider asks. By "default" it chooses them itself.
func (q anthropic) fallbacks(v value) *Refusal {
	if v.kind() != array {
		if len(q.route.Models) > 0 {
			return refuse("model", "fallbacks that the provider chooses are not on the list of route %s (models)",
				q.route.Name)
		}
		return q.look(asPlain, []byte("fallbacks"), v)
	}
	return q.list(v, nil, false, func(item value) *Refusal {
		if item.get("model").none() {
			return refuse("model", "a fallback without a model is not allowed")
		}
		return q.fits(item, []byte("a fallback"), anthropicFallback)
	})
}

// container is where the provider runs code. One with skills brings code of its own.
func (q anthropic) container(v value) *Refusal {
	if refusal := q.provided([]byte("container"), "code_execution"); refusal != nil {
		return refusal
	}
	if v.kind() == object {
		return q.fits(v, []byte("container"), anthropicContainer)
	}
	return q.look(asPlain, []byte("container"), v)
}
