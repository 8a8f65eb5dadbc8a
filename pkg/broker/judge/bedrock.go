package judge

import (
	"net/url"
	"strings"

	"github.com/agent-init/agent-init/internal/lazy"
)

// bedrock are the rules of Converse and ConverseStream
// (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, and
// https://github.com/aws/aws-sdk-js-v3, v3.1164.0, clients/client-bedrock-runtime/src/models). Of each union there is one
// member, whose name is its type. Left out are promptVariables, of a prompt that is kept, and of a source s3Location, which
// the provider would fetch.
var bedrock = tableOf(`
converse messages=[message] system=[block] toolConfig=tools inferenceConfig=inference performanceConfig=performance
  serviceTier=tier outputConfig=output requestMetadata={plain} guardrailConfig=guardrail
  additionalModelResponseFieldPaths=[plain] additionalModelRequestFields=additional

message  role content=[block]
# A block of a message, of the system's, or of a tool's result.
block    text json=free cachePoint=point image=whole document=whole video=whole audio=whole toolUse=use
  toolResult=result reasoningContent=reasoning guardContent=guarded citationsContent=cited searchResult=searched
point    type=word ttl=word
whole    format=word name source=source citations=citing context error=fault
source   bytes=base64 text content=[block]
fault    message
citing   enabled
use      toolUseId name input=free type=word
result   toolUseId content=[block] status=word type=word
reasoning reasoningText=thought redactedContent=base64
thought  text signature
guarded  text=qualified image=whole
qualified text qualifiers=[word]
cited    content=[block] citations=[citation]
citation title source sourceContent=[block] location=location
location web=page documentChar=span documentPage=span documentChunk=span searchResultLocation=span
page     url domain
span     documentIndex searchResultIndex start end
searched source title content=[block] citations=citing

tools    tools=[tool] toolChoice=choice
tool     %name toolSpec=spec cachePoint=point
spec     name description strict inputSchema=input
input    json=schema
choice   auto=none any=none tool=named
none
named    name

inference maxTokens temperature topP topK stopSequences=[plain]
performance latency=word
tier     type=word
output   textFormat=format effort=word
format   type=word structure=structure
structure jsonSchema=described
described schema name description
guardrail guardrailIdentifier=word guardrailVersion=word trace=word streamProcessingMode=word

# What Anthropic's and Amazon's models know besides.
additional thinking=thinking reasoning_config=thinking reasoningConfig=thinking reasoning_effort=word
  inferenceConfig=inference anthropic_beta=[word] top_k output_config=effort
thinking type=word budget_tokens display=word maxReasoningEffort=word
effort   effort=word
`, false)

// converse judges the body of a request to converse or converse-stream.
func (q *request) converse() (Told, *Refusal) {
	told, refusal := q.inPath()
	if refusal != nil {
		return Told{}, refusal
	}
	return told, bedrock().request(q, "converse")
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
	return told, anthropic().request(q, "invoke")
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
	exact := resource && !modelARN().MatchString(id)
	if exact && !q.listed(id) {
		return Told{}, refuse("model", "model %s is not a model or an inference profile; route %s lets it pass "+
			"with its exact name in models", quote(id, 200), q.route.Name)
	}
	if refusal := q.allowed(id); refusal != nil {
		return Told{}, refusal
	}
	if exact {
		q.rests(func(r *Rested) { r.exact = id })
	}
	stream := strings.HasSuffix(segments[3], "-stream")
	return Told{Model: id, Stream: stream, CountsUsage: true}, nil
}
