package login

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func jwt(exp time.Time) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256"}`) + "." + part(fmt.Sprintf(`{"exp":%d,"https://api.openai.com/auth":{"chatgpt_plan_type":"pro"}}`, exp.Unix())) + "." + part("signed")
}

func claudeFile(expires time.Time) string {
	return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-old","refreshToken":"sk-ant-ort01-old","expiresAt":%d,`+
		`"scopes":["user:inference","user:profile"],"subscriptionType":"max","later":{"a":[1]}},"other":true}`, expires.UnixMilli())
}

func codexFile(expires time.Time) string {
	return fmt.Sprintf(`{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":%q,"access_token":%q,"refresh_token":"rt-old","account_id":"acc-1"},"last_refresh":"2026-11-01T00:00:00Z","agent_identity":{"x":1}}`,
		jwt(expires), jwt(expires))
}

func parsed(t *testing.T, file string) *Login {
	t.Helper()
	l, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDue(t *testing.T) {
	for _, file := range []func(time.Time) string{claudeFile, codexFile} {
		for _, c := range []struct {
			left time.Duration
			due  bool
		}{{time.Hour, false}, {6 * time.Minute, false}, {4 * time.Minute, true}, {-time.Hour, true}} {
			if l := parsed(t, file(noon.Add(c.left))); l.Due(noon) != c.due {
				t.Errorf("%s, %v before its end: due %v", l.Vendor(), c.left, !c.due)
			}
		}
	}
}

func TestRefreshOfClaude(t *testing.T) {
	l := parsed(t, claudeFile(noon))
	path, body := l.Request()
	var asked map[string]string
	if err := json.Unmarshal(body, &asked); err != nil {
		t.Fatal(err)
	}
	if l.Host() != "platform.claude.com" || path != "/v1/oauth/token" || asked["grant_type"] != "refresh_token" ||
		asked["refresh_token"] != "sk-ant-ort01-old" || asked["scope"] != "user:inference user:profile" || asked["client_id"] == "" {
		t.Errorf("asks %s %v", path, asked)
	}
	next, err := l.Answer(200, []byte(`{"access_token":"sk-ant-oat01-new","refresh_token":"sk-ant-ort01-new","expires_in":28800,"scope":"user:inference","account":{"uuid":"u"}}`), noon)
	if err != nil {
		t.Fatal(err)
	}
	if next.Access() != "sk-ant-oat01-new" || next.Due(noon) || !next.Due(noon.Add(8*time.Hour)) {
		t.Errorf("the next is %q, due %v", next.Access(), next.expires)
	}
	if l.Access() != "sk-ant-oat01-old" || strings.Contains(string(l.File()), "new") {
		t.Error("the old login has changed")
	}
	again := parsed(t, string(next.File()))
	if again.refresh != "sk-ant-ort01-new" || !again.expires.Equal(noon.Add(8*time.Hour)) {
		t.Errorf("kept: %s", next.File())
	}
	for _, kept := range []string{`"later"`, `"subscriptionType": "max"`, `"other": true`} {
		if !strings.Contains(string(next.File()), kept) {
			t.Errorf("the file has lost %s:\n%s", kept, next.File())
		}
	}
}

func TestRefreshKeepsWhatTheAnswerLeavesOut(t *testing.T) {
	next, err := parsed(t, claudeFile(noon)).Answer(200, []byte(`{"access_token":"sk-ant-oat01-new"}`), noon)
	if err != nil {
		t.Fatal(err)
	}
	if next.refresh != "sk-ant-ort01-old" || next.Due(noon.Add(100*time.Hour)) {
		t.Errorf("refresh %q, expires %v: an unknown end is none", next.refresh, next.expires)
	}
}

func TestRefreshOfCodex(t *testing.T) {
	l := parsed(t, codexFile(noon))
	if l.Account() != "acc-1" || l.Host() != "auth.openai.com" {
		t.Errorf("account %q at %s", l.Account(), l.Host())
	}
	fresh := jwt(noon.Add(10 * 24 * time.Hour))
	next, err := l.Answer(200, fmt.Appendf(nil, `{"access_token":%q,"refresh_token":"rt-new","id_token":"a.b.c"}`, fresh), noon)
	if err != nil {
		t.Fatal(err)
	}
	again := parsed(t, string(next.File()))
	if again.Access() != fresh || again.refresh != "rt-new" || again.Due(noon) || !strings.Contains(string(next.File()), `"last_refresh": "2026-11-23T12:00:00Z"`) ||
		!strings.Contains(string(next.File()), `"agent_identity"`) {
		t.Errorf("kept:\n%s", next.File())
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		file, body string
		status     int
		over       bool
	}{
		{claudeFile(noon), `{"error":"invalid_grant","error_description":"Refresh token not found"}`, 400, true},
		{claudeFile(noon), `{"error":"server_error"}`, 500, false},
		{claudeFile(noon), `<html>`, 503, false},
		{codexFile(noon), `{"error":{"code":"refresh_token_reused","message":"used"}}`, 401, true},
		{codexFile(noon), `{"code":"token_revoked"}`, 401, true},
		{codexFile(noon), `{"error":"refresh_token_expired"}`, 401, true},
		{codexFile(noon), `{"error":{"code":"other"}}`, 401, false},
	} {
		_, err := parsed(t, c.file).Answer(c.status, []byte(c.body), noon)
		if err == nil || errors.Is(err, ErrOver) != c.over {
			t.Errorf("%d %s: %v", c.status, c.body, err)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, body := range []string{``, `{}`, `[]`, `{"access_token":""}`, `{"access_token":7}`, `{"access_token":"with blank"}`, `{"access_token":"line\nbreak"}`,
		`{"access_token":"ok","refresh_token":"a\u0000b"}`, `{"access_token":"` + strings.Repeat("x", maxToken+1) + `"}`} {
		if next, err := parsed(t, claudeFile(noon)).Answer(200, []byte(body), noon); !errors.Is(err, ErrUnread) {
			t.Errorf("%.60s: %+v, %v", body, next, err)
		}
	}
}

// TestAnswersOfOtherForms: what an answer has of tokens is taken, whatever else it has or lacks.
func TestAnswersOfOtherForms(t *testing.T) {
	for _, c := range []struct {
		status          int
		body            string
		access, refresh string
		due             bool // an hour later
	}{
		{201, `{"access_token":"new","refresh_token":"next","expires_in":28800}`, "new", "next", false},
		{206, `{"access_token":"new","refresh_token":"next","expires_in":28800}`, "new", "next", false},
		{200, `{"access_token":"new","refresh_token":"next","expires_in":"28800"}`, "new", "next", false},
		{200, `{"access_token":"new","refresh_token":"next","expires_in":28800.5}`, "new", "next", false},
		{200, `{"access_token":"new","refresh_token":"next","expires_in":{"s":1},"scope":[1],"id_token":7,"refresh_token_expires_in":"never"}`, "new", "next", false},
		{200, `{"access_token":"new","refresh_token":"next","expires_in":-1e99}`, "new", "next", false},
		{200, `{"refresh_token":"next"}`, "sk-ant-oat01-old", "next", true},
		{200, `{"access_token":null,"refresh_token":"next","expires_in":28800}`, "sk-ant-oat01-old", "next", true},
		{200, `{"access_token":"sk-ant-oat01-old","refresh_token":"next","expires_in":28800}`, "sk-ant-oat01-old", "next", false},
		{200, `{"access_token":"sk-ant-oat01-old","expires_in":28800}`, "sk-ant-oat01-old", "sk-ant-ort01-old", false},
		{200, `{"access_token":"new","refresh_token":null,"expires_in":28800}`, "new", "sk-ant-ort01-old", false},
	} {
		next, err := parsed(t, claudeFile(noon)).Answer(c.status, []byte(c.body), noon)
		if err != nil {
			t.Errorf("%d %s: %v", c.status, c.body, err)
			continue
		}
		again := parsed(t, string(next.File()))
		if again.access != c.access || again.refresh != c.refresh || next.Access() != c.access || again.Due(noon.Add(time.Hour)) != c.due {
			t.Errorf("%d %s: %s", c.status, c.body, next.File())
		}
	}
}

func TestFilesThatAreNone(t *testing.T) {
	for _, file := range []string{``, `null`, `[]`, `{}`, `{"claudeAiOauth":null}`, `{"claudeAiOauth":{"accessToken":"a"}}`, `{"tokens":{"access_token":"a","refresh_token":"with\r\nbreak"}}`,
		`{"tokens":"x"}`, `{"OPENAI_API_KEY":"sk-secret"}`} {
		_, err := Parse([]byte(file))
		if err == nil {
			t.Errorf("%s was taken", file)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error quotes the file: %v", err)
		}
	}
}

func TestPlaceholder(t *testing.T) {
	const token = "agent-init-token"
	for _, file := range []string{claudeFile(noon), codexFile(noon)} {
		l := parsed(t, file)
		p := l.Placeholder(token)
		for _, secret := range []string{"sk-ant-o", "rt-old", l.Access(), "acc-1"} {
			if strings.Contains(string(p), secret) {
				t.Errorf("%s: the placeholder has %q", l.Vendor(), secret)
			}
		}
		stand := parsed(t, string(p))
		if !strings.HasSuffix(stand.Access(), token) || stand.Due(noon.Add(365*24*time.Hour)) {
			t.Errorf("%s: shows %q, until %v", l.Vendor(), stand.Access(), stand.expires)
		}
	}
	if p := string(parsed(t, claudeFile(noon)).Placeholder(token)); !strings.Contains(p, `"subscriptionType": "max"`) {
		t.Errorf("the plan is not told: %s", p)
	}
	if got := plan(text(object{"t": json.RawMessage(fmt.Sprintf("%q", jwt(noon)))}, "t")); got != "pro" {
		t.Errorf("the plan is %q", got)
	}
}

// FuzzAnswer has whatever a file and a server say make a login that can be kept and read again.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(claudeFile(noon)), 200, []byte(`{"access_token":"a","refresh_token":"b","expires_in":9}`))
	f.Add([]byte(codexFile(noon)), 200, []byte(`{"access_token":"`+jwt(noon)+`"}`))
	f.Add([]byte(claudeFile(noon)), 201, []byte(`{"refresh_token":"b","expires_in":"9"}`))
	f.Add([]byte(codexFile(noon)), 200, []byte(`{"access_token":"a","refresh_token":7}`))
	f.Add([]byte(codexFile(noon)), 401, []byte(`{"error":{"code":"refresh_token_reused"}}`))
	f.Fuzz(func(t *testing.T, file []byte, status int, body []byte) {
		l, err := Parse(file)
		if err != nil {
			return
		}
		l.Placeholder("token")
		l.Request()
		next, err := l.Answer(status, body, noon)
		var said object
		if errors.Is(err, ErrUnread) || !Answered(status) || json.Unmarshal(body, &said) != nil {
			return
		}
		if err != nil {
			t.Fatalf("%d %q: %v", status, body, err)
		}
		for name, has := range map[string]string{"access_token": next.access, "refresh_token": next.refresh} {
			if token := text(said, name); token != "" && token != has {
				t.Fatalf("%s of %q is lost", name, body)
			}
		}
		again, err := Parse(next.File())
		if err != nil || again.Access() != next.Access() || again.refresh != next.refresh {
			t.Fatalf("kept and read again: %v\n%s", err, next.File())
		}
	})
}
