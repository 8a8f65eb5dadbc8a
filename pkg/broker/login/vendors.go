package login

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

var vendors = []*vendor{claude(), codex()}

// claude is the login of Claude Code. Its client's id and its scopes are those of the program itself, 2.1.330.
func claude() *vendor {
	return &vendor{
		name: "Claude Code", host: "platform.claude.com", path: "/v1/oauth/token", client: "9d1c250a-e61b-44d9-88ed-5944d1962f5e",
		section: "claudeAiOauth", access: "accessToken", refresh: "refreshToken", final: []string{"invalid_grant"},
		expires: func(section object, _ string) time.Time { return milliseconds(section, "expiresAt") },
		ask: func(section object) map[string]string {
			var scopes []string
			if json.Unmarshal(section["scopes"], &scopes) != nil || len(scopes) == 0 {
				return nil // the server gives what it gave before
			}
			return map[string]string{"scope": strings.Join(scopes, " ")}
		},
		store: func(_, section object, a answer, now time.Time) {
			if a.Access != "" {
				delete(section, "expiresAt")
			}
			if a.Access != "" && a.ExpiresIn > 0 {
				set(section, "expiresAt", now.Add(seconds(a.ExpiresIn)).UnixMilli())
			}
			if a.RefreshExpires > 0 {
				set(section, "refreshTokenExpiresAt", now.Add(seconds(a.RefreshExpires)).UnixMilli())
			}
			if a.Scope != "" {
				set(section, "scopes", strings.Fields(a.Scope))
			}
		},
	}
}

// codex is a login by ChatGPT: a refresh token serves once (codex-rs/login/src/auth/manager.rs).
func codex() *vendor {
	return &vendor{
		name: "Codex", host: "auth.openai.com", path: "/oauth/token", client: "app_EMoamEEZ73f0CkXaXp7hrann",
		section: "tokens", access: "access_token", refresh: "refresh_token",
		final:   []string{"refresh_token_expired", "refresh_token_reused", "refresh_token_invalidated", "token_revoked"},
		expires: func(_ object, access string) time.Time { return expiry(access) },
		ask:     func(object) map[string]string { return nil },
		store: func(file, section object, a answer, now time.Time) {
			if a.ID != "" {
				set(section, "id_token", a.ID)
			}
			set(file, "last_refresh", now.UTC().Format(time.RFC3339Nano))
		},
	}
}

func milliseconds(o object, name string) time.Time {
	var n int64
	if json.Unmarshal(o[name], &n) != nil || n <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

// seconds bounds what a server says of the life of a token.
func seconds(n int64) time.Duration { return time.Duration(min(n, 10*365*24*3600)) * time.Second }

// expiry is when a JWT ends (RFC 7519, 4.1.4); zero if it does not say.
func expiry(token string) time.Time {
	var claims struct {
		Exp int64 `json:"exp"`
	}
	data, ok := claimsOf(token)
	if !ok || json.Unmarshal(data, &claims) != nil || claims.Exp <= 0 {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}

// claimsOf are the claims of a JWT, in JSON. Its signature is the provider's to check.
func claimsOf(token string) ([]byte, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, false
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	return data, err == nil
}
