package judge

import (
	"bytes"
	"strings"
)

// google is a body of Gemini's generateContent. The vendor's own types are googleapis,
// google/ai/generativelanguage/v1beta, and js-genai 3.1.0, src/types.ts.
//
// A reader of such a body takes each name as lowerCamelCase and as lower_snake_case
// (https://protobuf.dev/programming-guides/json), so a name is judged by what it means. One value where a list is asked
// for is taken as a list of one, which goose sends.
type google struct {
	*request
	model string // that the path names
}

const (
	asTurns    look = iota + 64 // a list of {"parts": …}
	asTurn                      // {"parts": …}
	asPieces                    // the parts of a turn
	asConfig                    // how the answer is made
	asResponse                  // of a function
	asBlob                      // {"data": …}
	asInner                     // another request
	asUpstream                  // the model that the path names
)

// generateFields are those of generateContent. Left out are cachedContent, which is content and tools that the provider
// keeps, and Vertex AI's.
var generateFields = map[string]look{
	"contents": asTurns, "systemInstruction": asTurn, "tools": asTools,
	"toolConfig": asSettings, "safetySettings": asSettings,
	"generationConfig": asConfig, "model": asUpstream, "labels": asInert, "store": asPlain, "serviceTier": asPlain,
	"cachedContent": asKept, "continuationToken": asKept,
}

var countFields = map[string]look{
	"contents": asTurns, "systemInstruction": asTurn, "tools": asTools, "generationConfig": asConfig,
	"model": asUpstream, "generateContentRequest": asInner,
}

var generationConfig = map[string]look{
	"responseSchema": asSchema, "responseJsonSchema": asSchema, "responseFormat": asSchema, "stopSequences": asInert,
	"speechConfig": asSettings, "imageConfig": asSettings, "thinkingConfig": asSettings,
	"responseModalities": asSettings, "audioTranscriptionConfig": asSettings, "translationConfig": asSettings,

	"temperature": asPlain, "topP": asPlain, "topK": asPlain, "candidateCount": asPlain, "maxOutputTokens": asPlain,
	"responseMimeType": asPlain, "presencePenalty": asPlain, "frequencyPenalty": asPlain, "seed": asPlain,
	"logprobs": asPlain, "responseLogprobs": asPlain, "mediaResolution": asPlain, "audioTimestamp": asPlain,
	"enableEnhancedCivicAnswers": asPlain, "enableAffectiveDialog": asPlain,
}

var generateTurn = map[string]look{"role": asPlain, "parts": asPieces}

// generateParts are what a part may have. Left out is fileData: its fileUri may be any address. toolCall is of a tool
// that the provider has run, which it does only where a route has it do so.
var generateParts = map[string]look{
	"text": asPlain, "thought": asPlain, "thoughtSignature": asPlain,
	"inlineData": asBlob, "functionCall": asInert, "functionResponse": asResponse,
	"executableCode": asInert, "codeExecutionResult": asInert, "toolCall": asServed, "toolResponse": asServed,
	"videoMetadata": asSettings, "mediaResolution": asSettings, "mediaProcessing": asSettings, "partMetadata": asInert,
	"audioTranscription": asInert, "speechMetadata": asSettings,
}

var generateBlob = map[string]look{"mimeType": asPlain, "data": asPlain, "displayName": asPlain}

// generateResponse is of a function. Its parts are those of a turn, files apart, too.
var generateResponse = map[string]look{
	"id": asPlain, "name": asPlain, "response": asInert, "parts": asPieces,
	"scheduling": asPlain, "willContinue": asPlain,
}

// googleTools are what a tool may have, and the families of what the provider runs.
var googleTools = map[string]string{
	"functionDeclarations": "", "computerUse": "",

	"googleSearch": "google_search", "googleSearchRetrieval": "google_search", "enterpriseWebSearch": "google_search",
	"urlContext": "url_context", "codeExecution": "code_execution", "googleMaps": "google_maps",
	"fileSearch": "file_search", "mcpServers": "mcp", "retrieval": "retrieval", "exaAiSearch": "exa_ai_search",
	"parallelAiSearch": "parallel_ai_search",
}

// google judges a body by the fields that it may have: those of generateContent and streamGenerateContent, or of
// countTokens.
func (q *request) google(known map[string]look) (Told, *Refusal) {
	model, verb, _ := strings.Cut(q.path[strings.LastIndexByte(q.path, '/')+1:], ":")
	if model == "" || strings.Contains(verb, ":") {
		return Told{}, refuse("model", "the path names no model")
	}
	if refusal := q.allowed(model); refusal != nil {
		return Told{}, refusal
	}
	if refusal := (google{q, model}).fits(q.root, []byte("the body"), known); refusal != nil {
		return Told{}, refusal
	}
	return Told{Model: model, Stream: verb == "streamGenerateContent", CountsUsage: true}, nil
}

// fits judges the members of an object. All are closed, as they are for the provider.
func (q google) fits(v value, what []byte, known map[string]look) *Refusal {
	if v.kind() != object {
		return refuse("content", "%s is not an object", quote(what, 64))
	}
	seen := map[string]bool{}
	for raw, member := range v.members() {
		name := camel(raw)
		if seen[name] {
			return refuse("json", "field %s of %s stands twice, in two spellings", quote(raw, 64), quote(what, 64))
		}
		seen[name] = true
		how, ok := known[name]
		if !ok && !member.none() && !q.named(raw) && !q.named([]byte(name)) {
			return q.strange(raw, what)
		}
		if refusal := q.look(how, []byte(name), member); refusal != nil {
			return refusal
		}
	}
	return nil
}

// look judges a member. What is null is taken as not there.
func (q google) look(how look, name []byte, v value) *Refusal {
	if v.none() {
		return nil
	}
	switch how {
	case asPlain:
		if !v.scalar() {
			return refuse("content", "%s is not a plain value", quote(name, 64))
		}
	case asTurns:
		return q.each(v, q.turn)
	case asTurn:
		return q.turn(v)
	case asPieces:
		return q.each(v, func(part value) *Refusal { return q.fits(part, []byte("a part"), generateParts) })
	case asTools:
		return q.each(v, q.tool)
	case asConfig:
		return q.fits(v, name, generationConfig)
	case asResponse:
		return q.fits(v, name, generateResponse)
	case asBlob:
		return q.fits(v, name, generateBlob)
	case asInner:
		return q.fits(v, name, generateFields)
	case asServed:
		if len(q.route.ProviderTools) == 0 {
			return q.provided(name, "")
		}
	case asUpstream:
		if m := v.str(); string(bytes.TrimPrefix(m, []byte("models/"))) != q.model {
			return refuse("model", "the body names the model %s, and the path another", quote(m, 64))
		}
	case asSettings:
		return q.settings(name, v)
	case asSchema:
		return q.schema(v)
	case asKept:
		if !q.named(name) {
			return refuse("content", "%s refers to what the provider keeps, which can't be judged; "+
				"route %s lets it pass with fields: [%[1]s]", quote(name, 64), q.route.Name)
		}
	}
	return nil
}

// each judges the items of a list, or what stands alone in its place.
func (q google) each(v value, judge func(value) *Refusal) *Refusal {
	if v.kind() != array {
		return judge(v)
	}
	return q.list(v, nil, false, judge)
}

func (q google) turn(v value) *Refusal { return q.fits(v, []byte("content"), generateTurn) }

// tool is a list of functions, what the provider runs, or several of them at once.
func (q google) tool(v value) *Refusal {
	if v.kind() != object {
		return refuse("content", "a tool is not an object")
	}
	for raw, member := range v.members() {
		name := camel(raw)
		family, known := googleTools[name]
		if known && family == "" {
			if refusal := q.schema(member); refusal != nil {
				return refusal
			}
		} else if !member.none() {
			if refusal := q.provided([]byte(name), family); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// camel is the lowerCamelCase of a name in lower_snake_case, and any other name as it is, which is no field's.
func camel(name []byte) string {
	if bytes.IndexByte(name, '_') < 0 {
		return string(name)
	}
	var b strings.Builder
	for i, c := range name {
		switch after := i > 0 && name[i-1] == '_'; {
		case 'A' <= c && c <= 'Z', c == '_' && (after || i == 0 || i == len(name)-1):
			return string(name)
		case c == '_':
		case after && 'a' <= c && c <= 'z':
			b.WriteByte(c - 'a' + 'A')
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
