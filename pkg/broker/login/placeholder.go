package login

import (
	"encoding/base64"
	"encoding/json"
	"time"
)

// Placeholder is a file in the vendor's shape for who has no login, and asks the broker by token: the programs look
// into their file before they ask. Of the login it holds what names no secret: whose plan it is.
func (l *Login) Placeholder(token string) []byte {
	never := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC) // a program that took its token for old would ask to refresh it
	var file any
	switch section, _ := sub(l.file, l.vendor.section); l.vendor.section {
	case "tokens":
		jwt := unsigned(token, map[string]any{
			"exp": never.Unix(), "email": "agent@agent-init.invalid",
			"https://api.openai.com/auth": map[string]string{
				"chatgpt_plan_type": plan(text(section, "id_token")), "chatgpt_account_id": "agent-init", "chatgpt_user_id": "agent-init",
			},
		})
		file = map[string]any{
			"auth_mode": "chatgpt", "OPENAI_API_KEY": nil, "last_refresh": never.Format(time.RFC3339),
			"tokens": map[string]string{"id_token": jwt, "access_token": jwt, "refresh_token": "held-by-agent-init", "account_id": "agent-init"},
		}
	default:
		file = map[string]any{"claudeAiOauth": map[string]any{
			"accessToken": token, "refreshToken": "held-by-agent-init", "expiresAt": never.UnixMilli(),
			"scopes": []string{"user:inference"}, "subscriptionType": text(section, "subscriptionType"),
		}}
	}
	data, _ := json.MarshalIndent(file, "", "  ") // of texts and numbers
	return append(data, '\n')
}

// unsigned is a JWT that has the token where its signature would be: Codex reads the claims, and checks no signature.
func unsigned(token string, claims map[string]any) string {
	part := func(v any) string {
		data, _ := json.Marshal(v) // of texts and numbers
		return base64.RawURLEncoding.EncodeToString(data)
	}
	return part(map[string]string{"alg": "none", "typ": "JWT"}) + "." + part(claims) + "." + token
}

// plan is which one a token of OpenAI's names: programs offer models by it.
func plan(idToken string) string {
	var claims struct {
		Auth struct {
			Plan string `json:"chatgpt_plan_type"`
		} `json:"https://api.openai.com/auth"`
	}
	if data, ok := claimsOf(idToken); ok && json.Unmarshal(data, &claims) == nil {
		return claims.Auth.Plan
	}
	return ""
}
