package route

import (
	"fmt"
	"slices"
	"strings"
)

// String returns the source as a policy names it.
func (s Source) String() string {
	switch {
	case s.File != "":
		return "file:" + s.File
	case s.Login != "":
		return "login:" + s.Login
	}
	return "env:" + s.Env
}

// Refreshes says whether a credential of the route may be a login.
func (r *Route) Refreshes() bool {
	return slices.ContainsFunc(r.Credential, func(s Source) bool { return s.Login != "" })
}

// String says where the credential goes, as in "x-api-key".
func (in Inject) String() string {
	switch {
	case in.Basic != "":
		return "Basic authentication of " + in.Basic
	case in.Query != "":
		return "the parameter " + in.Query
	case in.Value != "" && in.Value != "{}":
		return fmt.Sprintf("%s: %s", in.Header, in.Value)
	}
	return in.Header
}

// Authentication says in words where the credential is taken from and goes.
func (r *Route) Authentication() string {
	if r.Keyless {
		return "none"
	}
	from := make([]string, len(r.Credential))
	for i, s := range r.Credential {
		from[i] = s.String()
	}
	return strings.Join(from, ", else ") + "; put on as " + r.Inject.String()
}

// AsksModels says whether the route is one to a model's API, whose bodies are judged.
func (r *Route) AsksModels() bool {
	return slices.ContainsFunc(r.Endpoints, func(e Endpoint) bool {
		return e.Body != Empty && e.Body != Opaque && !e.Body.Streams() && e.Body != GitLFS
	})
}

// String says in words what the limits are.
func (l Limits) String() string {
	var all []string
	if l.RequestsPerMinute > 0 {
		all = append(all, fmt.Sprintf("%d requests a minute", l.RequestsPerMinute))
	}
	if l.TokensPerDay > 0 {
		all = append(all, fmt.Sprintf("%d tokens a day", l.TokensPerDay))
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}
