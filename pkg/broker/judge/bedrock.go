package judge

import (
	"net/url"
	"strings"

	"github.com/agent-init/agent-init/internal/lazy"
)

// converse is a body of Bedrock's Converse:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html. Of each union there is one member,
// whose name is its type.
type converse struct{ *request }

const (
	asBlocks     look = iota + 96 // a list of blocks
	asBytes                       // {"bytes": …}, or for a document {"text": …} or {"content": […]}
	asWhole                       // {"source": …}, with its format and name
	asResult                      // of a tool
	asConfigured                  // {"tools": […], "toolChoice": …}
	asAdditional                  // fields for the model alone
	asGuarded                     // what a guardrail looks at
	asSearched                    // {"source": a label, "content": a list of texts}
)

// converseFields are those of Converse and ConverseStream. Left out is promptVariables, of a prompt that is kept.
var converseFields = map[string]look{
	"messages": asMessages, "system": asBlocks, "toolConfig": asConfigured,
	"inferenceConfig": asSettings, "performanceConfig": asSettings, "serviceTier": asSettings, "outputConfig": asSchema,
	"requestMetadata": asInert, "guardrailConfig": asSettings, "additionalModelResponseFieldPaths": asInert,
	"additionalModelRequestFields": asAdditional,
}

var converseMessage = only(has{"role": asPlain, "content": asBlocks})

// converseBlocks are what a block may be: of a message, of the system's, or of a tool's result.
var converseBlocks = map[string]look{
	"text": asPlain, "json": asInert, "cachePoint": asSettings,
	"image": asWhole, "document": asWhole, "video": asWhole, "audio": asWhole,
	"toolUse": asInert, "toolResult": asResult, "reasoningContent": asInert, "guardContent": asGuarded,
	"citationsContent": asInert, "searchResult": asSearched,
}

// Left out of a source is s3Location, which the provider would fetch.
var (
	converseWhole = only(has{
		"format": asPlain, "name": asPlain, "source": asBytes, "citations": asSettings, "context": asPlain})
	converseSource = only(has{"bytes": asEncoded, "text": asPlain, "content": asBlocks})
	converseResult = only(has{
		"toolUseId": asPlain, "content": asBlocks, "status": asPlain, "type": asPlain})
	converseGuarded  = only(has{"text": asInert, "image": asWhole})
	converseSearched = only(has{
		"source": asPlain, "title": asPlain, "content": asBlocks, "citations": asSettings})
	converseTools = only(has{"tools": asTools, "toolChoice": asSettings})

	// What Anthropic's and Amazon's models know besides.
	converseAdditional = only(has{
		"thinking": asSettings, "reasoning_config": asSettings, "reasoningConfig": asSettings,
		"reasoning_effort": asPlain, "inferenceConfig": asSettings, "anthropic_beta": asSettings,
		"top_k": asPlain, "output_config": asSettings})
)

// converse judges the body of a request to converse or converse-stream.
func (q *request) converse() (Told, *Refusal) {
	told, refusal := q.inPath()
	if refusal != nil {
		return Told{}, refusal
	}
	if refusal = fields(q, converseFields); refusal != nil {
		return Told{}, refusal
	}
	for name, field := range q.root.members() {
		if refusal := (converse{q}).look(converseFields[string(name)], name, field); refusal != nil {
			return Told{}, refusal
		}
	}
	return told, nil
}

// invoke judges the body of a request to invoke or invoke-with-response-stream. Only what is for Anthropic's models has
// rules, and it is the body of the Messages API without the model, which the path names, and with the version and the
// betas, which are headers there.
func (q *request) invoke() (Told, *Refusal) {
	told, refusal := q.inPath()
	if refusal != nil {
		return Told{}, refusal
	}
	if !strings.Contains(told.Model, "anthropic.") {
		return Told{}, refuse("model", "model %s is not Anthropic's, and agent-init judges no other body by invoke: "+
			"converse takes all of them", quote(told.Model, 64))
	}
	for _, name := range []string{"model", "stream"} {
		if !q.root.get(name).none() {
			return Told{}, refuse("field", "field %s is not allowed, since the path says it", name)
		}
	}
	known := map[string]look{"anthropic_version": asPlain, "anthropic_beta": asInert}
	for name, how := range anthropicFields {
		known[name] = how
	}
	if refusal := q.anthropic(known); refusal != nil {
		return Told{}, refusal
	}
	return told, nil
}

// modelARN are the names of resources that are a model, and one in several regions
// (https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonbedrock.html).
var modelARN = lazy.Pattern(
	`^arn:aws[a-z-]*:bedrock:[a-z0-9-]*:[0-9]*:(foundation-model|inference-profile)/[A-Za-z0-9.:-]+$`)

// inPath is what the path says: /model/ID/VERB. An identifier of a model is a name, or of an inference profile. One of
// a prompt, an agent or the like brings instructions that can't be judged, so these pass by their exact name alone.
func (q *request) inPath() (Told, *Refusal) {
	segments := strings.Split(q.path, "/")
	if len(segments) != 4 {
		return Told{}, refuse("model", "the path names no model")
	}
	id, err := url.PathUnescape(segments[2])
	if err != nil || id == "" {
		return Told{}, refuse("model", "the path names no model")
	}
	resource := strings.HasPrefix(strings.ToLower(id), "arn:") || strings.Contains(id, "/")
	if resource && !modelARN().MatchString(id) && !q.listed(id) {
		return Told{}, refuse("model", "model %s is not a model or an inference profile; route %s lets it pass "+
			"with its exact name in models", quote(id, 200), q.route.Name)
	}
	if refusal := q.allowed(id); refusal != nil {
		return Told{}, refusal
	}
	stream := strings.HasSuffix(segments[3], "-stream")
	return Told{Model: id, Stream: stream, CountsUsage: true}, nil
}

func (q converse) fits(v value, what []byte, r rule) *Refusal {
	return q.members(v, what, r, nil, q.look)
}

// look judges a member. What is null is taken as not there.
func (q converse) look(how look, name []byte, v value) *Refusal {
	if v.none() {
		return nil
	}
	switch how {
	case asPlain:
		if !v.scalar() {
			return refuse("content", "%s is not a plain value", quote(name, 64))
		}
	case asMessages:
		return q.list(v, name, false, func(m value) *Refusal { return q.fits(m, []byte("a message"), converseMessage) })
	case asBlocks:
		return q.list(v, name, false, q.block)
	case asTools:
		return q.list(v, name, false, q.tool)
	case asWhole:
		return q.fits(v, name, converseWhole)
	case asBytes:
		return q.fits(v, name, converseSource)
	case asResult:
		return q.fits(v, name, converseResult)
	case asGuarded:
		return q.fits(v, name, converseGuarded)
	case asSearched:
		return q.fits(v, name, converseSearched)
	case asConfigured:
		return q.fits(v, name, converseTools)
	case asAdditional:
		return q.fits(v, name, converseAdditional)
	case asSettings:
		return q.settings(name, v)
	case asSchema:
		return q.schema(v)
	case asEncoded:
		if v.kind() != text {
			return refuse("content", "%s is not in base64", quote(name, 64))
		}
	}
	return nil
}

func (q converse) block(v value) *Refusal {
	return q.fits(v, []byte("a block"), only(converseBlocks))
}

// tool is one of the client's, a point of the cache, or one that the provider runs.
func (q converse) tool(v value) *Refusal {
	if v.kind() != object {
		return refuse("content", "a tool is not an object")
	}
	for name, member := range v.members() {
		switch string(name) {
		case "toolSpec":
			if refusal := q.schema(member); refusal != nil {
				return refusal
			}
		case "cachePoint":
			if refusal := q.settings(name, member); refusal != nil {
				return refusal
			}
		case "systemTool":
			if refusal := q.provided(member.get("name").str(), ""); refusal != nil {
				return refusal
			}
		default:
			if refusal := q.provided(name, ""); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}
