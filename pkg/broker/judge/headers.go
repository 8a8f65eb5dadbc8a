package judge

import (
	"net/http"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// generalHeaders pass on every route.
var generalHeaders = []string{"accept", "accept-language", "content-type", "idempotency-key", "user-agent", "x-request-id"}

// neverHeaders do not pass even where a route lists them. They are credentials of the known APIs, what chooses who pays
// or who is asked for, what names another method or address, and what is said of one connection only (RFC 9110, section
// 7.6.1). What the broker itself sets is among them.
var neverHeaders = []string{
	"authorization", "proxy-*", "cookie", "cookie2", "set-cookie", "www-authenticate",
	"x-api-key", "api-key", "apikey", "x-goog-api-key", "x-auth-*", "x-access-token", "x-token",
	"private-token", "job-token", "deploy-token", "x-vault-token", "x-amz-*", "x-ms-*", "ocp-apim-*",
	"anthropic-workspace-id", "anthropic-user-profile-id", "anthropic-allowed-org-ids",
	"openai-organization", "openai-project", "openai-allowed-organization-ids", "chatgpt-account-id",
	"x-openai-actor-authorization", "x-openai-authorization*", "x-oai-attestation", "x-openai-account-routing-override",
	"x-goog-user-project", "x-goog-iam-*", "x-goog-allowed-resources", "x-goog-authenticated-*", "x-goog-request-params",
	"x-http-method*", "x-method-override", "x-original-*", "x-rewrite-url", "x-forwarded-*", "x-real-ip", "forwarded",
	"via", "host", "origin", "referer", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect",
	"http2-settings", "content-length", "content-encoding", "accept-encoding", "sec-*",
	"alt-used", "early-data",
}

// answerParameters are those by which known APIs change how they answer.
var answerParameters = map[string]bool{"callback": true, "$callback": true, "quotauser": true, "$quotauser": true}

// PassHeaders are the headers of a request that go on to the host of a route: those on a general list and on the route's.
// The broker sets the rest. A * on the list lets no credential pass.
func PassHeaders(r *route.Route, h http.Header) http.Header {
	pass := http.Header{}
	for name, values := range h {
		lower := strings.ToLower(name)
		if (listed(generalHeaders, lower) || listed(r.Headers, lower)) && !listed(neverHeaders, underscored(lower)) &&
			lower != strings.ToLower(r.Inject.Header) && !CredentialHeader(r, lower) {
			pass[name] = values
		}
	}
	return pass
}

// listed says whether a list has a name; a * at the end of an entry stands for anything.
func listed(list []string, name string) bool {
	for _, entry := range list {
		if prefix, ok := strings.CutSuffix(entry, "*"); entry == name || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
