package judge

import (
	"maps"

	"github.com/agent-init/agent-init/pkg/route"
)

// slot is one of the counts that make up what an answer has cost.
type slot uint8

const (
	slotIn slot = iota
	slotInCreated
	slotInCached
	slotInTools
	slotOut
	slotOutThought
	slotTotal
	slotInRounds // summed up over a list, for each model that was asked on the way
	slotOutRounds
	slots
)

// dialect is how an API tells what an answer has cost.
type dialect struct {
	counts map[string]slot // by the paths of numbers
	final  []string        // the paths of numbers and texts that are there in the end alone
	texts  []string        // what the paths of texts that the model writes begin with
}

// dialectOf is that of the answers to a kind of body. What counts tokens costs none.
func dialectOf(body route.Body) dialect {
	switch body {
	case route.Messages, route.InvokeModel:
		return messagesUsage
	case route.Responses:
		return responsesUsage
	case route.Chat:
		return chatUsage
	case route.Generate:
		return generateUsage
	case route.Converse:
		return converseUsage
	}
	return dialect{}
}

// messagesUsage is that of Anthropic's Messages API. A stream has the first counts in message_start, and the cumulative
// ones in message_delta. input_tokens leaves out what was cached. The rounds have other models that were asked, and the
// summary of what was compacted (anthropic-sdk-typescript, BetaUsage and BetaIterationsUsage).
var messagesUsage = dialect{
	counts: both(map[string]slot{
		"usage.input_tokens":                             slotIn,
		"usage.cache_creation_input_tokens":              slotInCreated,
		"usage.cache_read_input_tokens":                  slotInCached,
		"usage.output_tokens":                            slotOut,
		"usage.iterations[].input_tokens":                slotInRounds,
		"usage.iterations[].cache_creation_input_tokens": slotInRounds,
		"usage.iterations[].cache_read_input_tokens":     slotInRounds,
		"usage.iterations[].output_tokens":               slotOutRounds,
	}, "message."),
	final: []string{"usage.output_tokens"},
	texts: []string{"delta."},
}

// responsesUsage is that of OpenAI's Responses API: in the answer itself, and in the response of the stream's last event.
// Before, usage is null (openai-node, responses.ts, ResponseUsage).
var responsesUsage = dialect{
	counts: both(map[string]slot{
		"usage.input_tokens": slotIn, "usage.output_tokens": slotOut, "usage.total_tokens": slotTotal,
	}, "response."),
	final: []string{"usage.output_tokens", "response.usage.output_tokens"},
	texts: []string{"delta"},
}

// chatUsage is that of OpenAI's Chat Completions, and of Groq's older streams. xAI leaves the tokens of reasoning out of
// completion_tokens, and not out of the total.
var chatUsage = dialect{
	counts: both(map[string]slot{
		"usage.prompt_tokens": slotIn, "usage.completion_tokens": slotOut, "usage.total_tokens": slotTotal,
	}, "x_groq."),
	final: []string{"usage.completion_tokens", "x_groq.usage.completion_tokens"},
	texts: []string{"choices[].delta."},
}

// generateUsage is that of Gemini. Each chunk has the counts until then, and the last says why it ends (js-genai,
// GenerateContentResponseUsageMetadata).
var generateUsage = dialect{
	counts: map[string]slot{
		"usageMetadata.promptTokenCount":        slotIn,
		"usageMetadata.toolUsePromptTokenCount": slotInTools,
		"usageMetadata.candidatesTokenCount":    slotOut,
		"usageMetadata.thoughtsTokenCount":      slotOutThought,
		"usageMetadata.totalTokenCount":         slotTotal,
	},
	final: []string{"candidates[].finishReason", "promptFeedback.blockReason"},
	texts: []string{"candidates[].content.parts[].text", "candidates[].content.parts[].functionCall."},
}

// converseUsage is that of Bedrock's Converse. A stream has it in its last event, which is metadata. inputTokens leaves out
// what was cached (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html).
var converseUsage = dialect{
	counts: map[string]slot{
		"usage.inputTokens":           slotIn,
		"usage.cacheWriteInputTokens": slotInCreated,
		"usage.cacheReadInputTokens":  slotInCached,
		"usage.outputTokens":          slotOut,
		"usage.totalTokens":           slotTotal,
	},
	final: []string{"usage.outputTokens"},
	texts: []string{"delta."},
}

// both are the paths of counts, and the same below a prefix.
func both(counts map[string]slot, prefix string) map[string]slot {
	all := maps.Clone(counts)
	for path, to := range counts {
		all[prefix+path] = to
	}
	return all
}
