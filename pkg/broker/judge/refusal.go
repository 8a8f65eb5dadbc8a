package judge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// Refusal is why a request does not pass.
type Refusal struct {
	What string // of what kind, one word: path, header, tool, content, model, …
	Text string // for the person and the model: what is refused, and which setting says so
	Rule string // of a policy, as FILE:LINE, where one says so
}

// Error makes it one that a function returns.
func (f *Refusal) Error() string { return f.Text }

// Of these kinds are refusals that the broker makes itself, with a status of their own.
const (
	overBudget  = "budget"   // a limit of the route's is reached
	tooLarge    = "size"     // clients have a text of their own for 413, and it is about nothing else
	noWebSocket = "upgrade"  // Codex then posts at once
	noUpstream  = "upstream" // the host can't be reached now: clients may try again. What it answers, and stays so, is "server"
	lateAnswer  = "late"     // likewise: the host did not answer in time
	busy        = "busy"     // likewise: there is no room, or nobody who keeps the count
	slowRequest = "slow"     // the request did not come in time
	badToken    = "token"    // the caller is none of the agent's
	noVersion   = "age"      // a package that is too young, or that there is not
)

// Temporary says whether a client may try again by itself.
func (f *Refusal) Temporary() bool {
	return f.What == noUpstream || f.What == lateAnswer || f.What == busy
}

func refuse(what, format string, args ...any) *Refusal {
	return &Refusal{What: what, Text: fmt.Sprintf(format, args...)}
}

// quote is a text of the agent's for a message of ours: at most n bytes of it, on one line.
func quote[T ~string | ~[]byte](text T, n int) string {
	quoted := string(text)
	if len(quoted) > n {
		quoted = quoted[:n] + "…"
	}
	quoted = strconv.QuoteToGraphic(quoted)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// retried are words that have clients try again, wherever they read them: Claude Code the second, OpenCode and pi the
// first (docs/agents).
var retried = strings.NewReplacer("rate_limit", "rate limit", "overloaded_error", "overloaded error")

// Response is a refusal as the API would say it, in the form that its clients show at once. The broker adds
// "x-should-retry: false", which the SDKs of Anthropic and OpenAI obey before they look at the status, and no
// Retry-After, for which Codex waits as long as it says.
func (f *Refusal) Response(shape route.Shape, body route.Body) (status int, contentType string, answer []byte) {
	switch body {
	case route.Messages, route.CountMessages:
		shape = route.AnthropicShape
	case route.Responses, route.Chat:
		shape = route.OpenAIShape
	}
	status = f.status(shape, body)
	text := "refused by agent-init: " + retried.Replace(f.Text)
	if ofLFS(body) {
		answer, _ := json.Marshal(plainError{text, plainFault{text}}) // of texts
		return status, lfsType, answer
	}
	if shape == route.GitShape { // which git shows as it is, if it has this type (show_http_message in remote-curl.c)
		return status, "text/plain", []byte(text + "\n")
	}
	var told any
	switch shape {
	case route.AnthropicShape:
		told = anthropicError{Type: "error", Error: typedError{anthropicType(status), text}}
	case route.OpenAIShape:
		// Of this type clients read the text, whatever the status.
		told = openaiError{openaiFault{Message: text, Type: "invalid_request_error", Code: "broker_refused"}}
	case route.GeminiShape:
		told = geminiError{geminiFault{Code: status, Message: text, Status: geminiStatus(status), Details: []string{}}}
	case route.TextShape:
		return status, "text/plain; charset=utf-8", []byte(text + "\n")
	case route.NPMShape:
		told = npmError{text}
	default:
		told = plainError{text, plainFault{text}}
	}
	answer, err := json.Marshal(told)
	if err != nil {
		panic("judge: a refusal can't be written: " + err.Error()) // texts and numbers always can
	}
	return status, "application/json", answer
}

// status is one that clients take for final. Most end at once by 403. Codex ends by 400 alone, and is the one who asks
// for what stands on no list of OpenAI's. Claude Code speaks of a login over 403, which is not what a budget is about.
func (f *Refusal) status(shape route.Shape, body route.Body) int {
	if shape == route.GitShape && f.What == badToken {
		return http.StatusForbidden // over 401 git asks for a password, and tells no reason
	}
	responses := body == route.Responses || shape == route.OpenAIShape && body != route.Chat
	if own := map[string]int{
		noUpstream: http.StatusBadGateway, lateAnswer: http.StatusGatewayTimeout, busy: http.StatusServiceUnavailable,
		noWebSocket: http.StatusUpgradeRequired, slowRequest: http.StatusRequestTimeout, badToken: http.StatusUnauthorized,
		noVersion: http.StatusNotFound,
	}[f.What]; own != 0 {
		return own
	}
	switch {
	case responses:
		return http.StatusBadRequest
	case f.What == tooLarge:
		return http.StatusRequestEntityTooLarge
	case f.What == overBudget && shape == route.AnthropicShape:
		return http.StatusPaymentRequired
	}
	return http.StatusForbidden
}

type (
	anthropicError struct {
		Type  string     `json:"type"`
		Error typedError `json:"error"`
	}
	typedError struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	openaiError struct {
		Error openaiFault `json:"error"`
	}
	openaiFault struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	geminiError struct {
		Error geminiFault `json:"error"`
	}
	geminiFault struct {
		Code    int      `json:"code"`
		Message string   `json:"message"`
		Status  string   `json:"status"`
		Details []string `json:"details"`
	}
	// plainError is read by clients of Bedrock, too: they look for the message at the top.
	plainError struct {
		Message string     `json:"message"`
		Error   plainFault `json:"error"`
	}
	npmError struct {
		Error string `json:"error"`
	}
	plainFault struct {
		Message string `json:"message"`
	}
)

// anthropicType is the type of an error: https://docs.claude.com/en/api/errors.
func anthropicType(status int) string {
	switch status {
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return "timeout_error"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusUpgradeRequired:
		return "api_error"
	}
	return "permission_error"
}

// geminiStatus is the name of a status: https://google.aip.dev/193.
func geminiStatus(status int) string {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return "INVALID_ARGUMENT"
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return "DEADLINE_EXCEEDED"
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	}
	return "PERMISSION_DENIED"
}
