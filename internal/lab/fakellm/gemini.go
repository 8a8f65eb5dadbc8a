package fakellm

import (
	"net/http"
	"strings"
)

// gemini serves MODEL:METHOD.
func (m *Model) gemini(w http.ResponseWriter, a asked, call string) {
	name, method, _ := strings.Cut(call, ":")
	answer := func(part object, end any) object {
		candidate := object{"index": 0, "content": object{"role": "model", "parts": []any{part}}}
		if end != nil {
			candidate["finishReason"] = end
		}
		return object{"modelVersion": name, "responseId": "lab", "candidates": []any{candidate},
			"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}}
	}
	var use object
	if tool := m.toolOf(a.body); tool != nil {
		use = object{"functionCall": object{"name": tool.name, "args": tool.args}}
	}
	switch method {
	case "generateContent":
		if use == nil {
			use = object{"text": m.text(a.body)}
		}
		reply(w, answer(use, "STOP"))
	case "streamGenerateContent":
		s := m.newStream(w)
		if use != nil {
			s.data(answer(use, "STOP"))
			return
		}
		words := strings.SplitAfter(m.text(a.body), " ")
		for _, word := range words[:len(words)-1] {
			s.data(answer(object{"text": word}, nil))
		}
		s.data(answer(object{"text": words[len(words)-1]}, "STOP"))
	case "countTokens":
		reply(w, object{"totalTokens": 10})
	default:
		refuse(w, http.StatusNotFound, "not_found_error", method+" is not served")
	}
}
