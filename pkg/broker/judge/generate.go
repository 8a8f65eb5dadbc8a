package judge

import (
	"bytes"
	"strings"
)

// gemini are the rules of generateContent and countTokens, from the vendor's own types of November 2026
// (https://github.com/googleapis/googleapis, google/ai/generativelanguage/v1beta, and
// https://github.com/googleapis/js-genai, v3.3.0, src/types.ts).
//
// A reader of such a body takes each name as lowerCamelCase and as lower_snake_case
// (https://protobuf.dev/programming-guides/json), so a name is judged by what it means. One value where a list is asked
// for is taken as a list of one, which goose sends.
//
// Left out is fileData, whose fileUri may be any address, and Vertex AI's. cachedContent is content and tools that the
// provider keeps.
var gemini = tableOf(`
generate contents=[turn] systemInstruction=turn tools=[tool] toolConfig=choice safetySettings=[safety]
  generationConfig=config model=upstream labels={plain} store serviceTier=word cachedContent=kept continuationToken=kept
count    contents=[turn] systemInstruction=turn tools=[tool] generationConfig=config model=upstream
  generateContentRequest=generate

turn     role parts=[part]
part     text thought thoughtSignature inlineData=blob functionCall=call functionResponse=response
  executableCode=code codeExecutionResult=result toolCall=tooled toolResponse=tooled videoMetadata=video
  mediaResolution=resolution mediaProcessing=word partMetadata=free audioTranscription=heard speechMetadata=speech
blob     mimeType data displayName
call     id name args=free partialArgs=[partial] willContinue
partial  jsonPath stringValue numberValue boolValue nullValue willContinue
response id name response=free parts=[part] scheduling=word willContinue
code     id language=word code
result   id outcome=word output
video    startOffset=word endOffset=word fps
resolution level=word numTokens
heard    text finished languageCode=word speakerLabel words=[heard_word] startOffset=word endOffset=word
heard_word word startOffset=word endOffset=word speakerLabel
speech   speaker style

tool     %name functionDeclarations=[declaration] computerUse=computer
declaration name description behavior=word parameters=schema parametersJsonSchema=schema response=schema
  responseJsonSchema=schema
computer environment=word excludedPredefinedFunctions=[plain] enablePromptInjectionDetection disabledSafetyPolicies=[word]
choice   functionCallingConfig=calling retrievalConfig=retrieval includeServerSideToolInvocations
calling  mode=word allowedFunctionNames=[plain] streamFunctionCallArguments
retrieval latLng=place languageCode=word
place    latitude longitude
safety   category=word method=word threshold=word

config   responseSchema=schema responseJsonSchema=schema responseFormat=[formatted] stopSequences=[plain]
  speechConfig=spoken imageConfig=image thinkingConfig=thinking responseModalities=[word]
  audioTranscriptionConfig=transcription translationConfig=translation
  temperature topP topK candidateCount maxOutputTokens responseMimeType presencePenalty frequencyPenalty seed logprobs
  responseLogprobs mediaResolution=word audioTimestamp enableEnhancedCivicAnswers enableAffectiveDialog
thinking includeThoughts thinkingBudget thinkingLevel=word
spoken   voiceConfig=voice languageCode=word multiSpeakerVoiceConfig=speakers
voice    prebuiltVoiceConfig=prebuilt replicatedVoiceConfig=replicated voice=word
prebuilt voiceName=word
replicated mimeType=word voiceSampleAudio=base64 consentAudio=base64 voiceConsentSignature=consent
consent  signature
speakers speakerVoiceConfigs=[speaker]
speaker  speaker voiceConfig=voice
image    aspectRatio=word imageSize=word personGeneration=word prominentPeople=word outputMimeType=word
  outputCompressionQuality imageOutputOptions=encoding
encoding mimeType=word compressionQuality
transcription languageAuto=none languageHints=hints customVocabulary=[plain] wordTimestamp diarization sourceText
none
hints    languageCodes=[word]
translation targetLanguageCode=word echoTargetLanguage
formatted type=word mimeType=word schema=schema text=textual
textual  mimeType=word schema=schema
`, true)

// google judges a body by a rule: that of generateContent and streamGenerateContent, or of countTokens.
func (q *request) google(rule string) (Told, *Refusal) {
	model, verb, _ := strings.Cut(q.path[strings.LastIndexByte(q.path, '/')+1:], ":")
	if model == "" || strings.Contains(verb, ":") {
		return Told{}, refuse("model", "the path names no model")
	}
	if refusal := q.allowed(model); refusal != nil {
		return Told{}, refusal
	}
	if refusal := gemini().request(q, rule); refusal != nil {
		return Told{}, refusal
	}
	return Told{Model: model, Stream: verb == "streamGenerateContent", CountsUsage: true}, nil
}

// tooled is a call of a tool that the provider has run, which it does only where a route has it do so, or what came of it.
func tooled(q *request, name []byte, _ value) *Refusal {
	q.rests(func(r *Rested) { r.anyTool = true })
	if len(q.route.ProviderTools) == 0 {
		return q.provided(name, "")
	}
	return nil
}

// upstream is the model in a body, which the path names, too.
func upstream(q *request, _ []byte, v value) *Refusal {
	model, _, _ := strings.Cut(q.path[strings.LastIndexByte(q.path, '/')+1:], ":")
	if m := v.str(); string(bytes.TrimPrefix(m, []byte("models/"))) != model {
		return refuse("model", "the body names the model %s, and the path another", quote(m, 64))
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
