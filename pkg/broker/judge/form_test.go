package judge

import (
	"strings"
	"testing"
)

const multi = "multipart/form-data; boundary=b"

// TestForms are bodies with and without a parameter that changes the method, whole and byte by byte.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		kind, body string
		changes    bool
	}{
		{"application/x-www-form-urlencoded", "_method=DELETE", true}, {"application/x-www-form-urlencoded", "a=b&_method=DELETE&c=d", true},
		{"application/x-www-form-urlencoded", "a=b;_method=DELETE", true}, {"application/x-www-form-urlencoded", "a=b&%5fmeth%6Fd=DELETE", true},
		{"application/x-www-form-urlencoded", "a=b&_METHOD", true}, {"application/x-www-form-urlencoded", "a=b&_method[]=PUT", true},
		{"application/x-www-form-urlencoded", "a=b&+_method=PUT", true}, {"application/x-www-form-urlencoded", "X-HTTP-Method-Override=PUT", true},
		{"APPLICATION/X-WWW-FORM-URLENCODED", "a=b&%_method=x", true}, {"application/x-www-form-urlencoded", strings.Repeat("a", 999) + "=1&_method=x", true},
		{"application/x-www-form-urlencoded", "a=_method&b=%26_method=x&my_method=1&method=2&_methods=3", false},
		{"application/x-www-form-urlencoded; charset=utf-8", "", false},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\ncontent-disposition:form-data;name=_method\n\nDELETE\n--b--", true},
		{multi, "--b\r\nContent-Disposition: form-data;\r\n name=\"_method\"\r\n\r\nDELETE\r\n", true},
		{multi, "--b\r\nX: y\r\nContent-Disposition : form-data; name=\"_method\"\r\n\r\nDELETE\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name*=utf-8''%5Fmethod\r\n\r\nDELETE\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name*0=\"_me\"; name*1=thod\r\n\r\nDELETE\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"a\"; name=\"_method\"\r\n\r\nDELETE\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"\\_method\"\r\n\r\nDELETE\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"" + strings.Repeat("a", maxPartLine) + "\"\r\n\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"my_method.rb\"\r\nContent-Type: text/plain\r\n\r\n_method=x\nname=\"_method\"\r\n--b--\r\n", false},
		{"application/json", `{"a":1,"_method":"DELETE"}`, true}, {"application/json", `{"\u005fmethod":"DELETE"}`, true},
		{"application/json", `{"a":{"b":[{}]},"_Method":"DELETE"}`, true}, {"application/vnd.api+json", ` {"_method" : "DELETE"`, true},
		{"application/json", `{"a":{"_method":1},"b":"_method","c":["_method",{"_method":2}],"d\"_method":"\\","e":"\"","my_method":3}`, false},
		{"text/plain", "_method=DELETE", false}, {"application/octet-stream", "_method=DELETE", false}, {"", "_method=DELETE", false},
	} {
		for _, step := range []int{1, 7, 1 << 20} {
			if got := changesMethod(t, c.kind, c.body, step); got != c.changes {
				t.Errorf("%s %.200q by %d: %v, want %v", c.kind, c.body, step, got, c.changes)
			}
		}
	}
	for _, kind := range []string{
		"application/x-www-form-urlencoded; charset=utf-16", "application/json; charset=ibm037", "multipart/form-data; charset=utf-7; boundary=b",
		"application/json;;", "application/x-www-form-urlencoded; charset=utf-8; charset=utf-16",
	} {
		if _, refusal := NewForm(kind); refusal == nil {
			t.Errorf("%s is taken", kind)
		}
	}
}

// changesMethod shows a body to a Form in pieces of some bytes.
func changesMethod(t testing.TB, kind, body string, step int) bool {
	f, refusal := NewForm(kind)
	if refusal != nil {
		t.Fatal(kind, refusal.Text)
	}
	if f == nil {
		return false
	}
	found := false
	for len(body) > 0 {
		n := min(step, len(body))
		found = f.Judge([]byte(body[:n])) != nil || found
		body = body[n:]
	}
	return f.End() != nil || found
}

func BenchmarkForm(b *testing.B) {
	for kind, body := range map[string]string{
		"application/json": `{"a":"` + strings.Repeat("some text ", 1<<16) + `"}`, multi: "--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n" + strings.Repeat("\x00binary\n", 1<<16),
		"application/x-www-form-urlencoded": "a=" + strings.Repeat("text", 1<<17),
	} {
		b.Run(kind[:15], func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				f, _ := NewForm(kind)
				if f.Judge([]byte(body)) != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}
