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
		{multi, "--b\r\nContent-Disposition: form-data; name=\"" + strings.Repeat("a", maxPartHead) + "\"\r\n\r\n", true},
		{multi, "--b\r\n" + strings.Repeat("a: b\r\n", maxPartLines+1), true},
		{multi, "--b\r\n" + strings.Repeat("a: b\r\n", maxPartLines-2) + "\r\n1\r\n--b--\r\n", false},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"my_method.rb\"\r\nContent-Type: text/plain\r\n\r\n_method=x\nname=\"_method\"\r\n--b--\r\n", false},
		{"application/json", `{"a":1,"_method":"DELETE"}`, true}, {"application/json", `{"\u005fmethod":"DELETE"}`, true},
		{"application/json", `{"a":{"b":[{}]},"_Method":"DELETE"}`, true}, {"application/vnd.api+json", ` {"_method" : "DELETE"`, true},
		{"application/json", `{"a":{"_method":1},"b":"_method","c":["_method",{"_method":2}],"d\"_method":"\\","e":"\"","my_method":3}`, false},
		{"text/plain", "_method=DELETE", false}, {"application/octet-stream", "_method=DELETE", false},
		// Rack takes what has no type for a form, and brackets off the front of a name.
		{"", "_method=DELETE", true}, {" ", "a=b&_method=DELETE", true}, {"", "\x00binary_method=1", false},
		{"application/x-www-form-urlencoded", "[_method]=DELETE", true}, {"application/x-www-form-urlencoded", "][[_method=DELETE", true},
		{"application/x-www-form-urlencoded", "_method]=DELETE", true}, {"application/x-www-form-urlencoded", "a[_method]=x", false},
		// PHP makes an underscore of a dot, and ends a name at NUL.
		{"application/x-www-form-urlencoded", ".method=DELETE", true}, {"application/x-www-form-urlencoded", "+%2emethod=DELETE", true},
		{"application/x-www-form-urlencoded", "_method%00x=DELETE", true}, {"application/x-www-form-urlencoded", "_method.x=1&a.method=2", false},
		{"application/x-www-form-urlencoded", "_HttpMethod=DELETE", true}, {"application/x-www-form-urlencoded", "x-tunneled-method=DELETE", true},
		// Rack looks for a name anywhere in the head of a part, and then for another header.
		{multi, "--b\r\nContent-ID: _method\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nContent-ID:\r\n _method\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data;\r\nname=_method\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nX: Content-Disposition: form-data; name=_method\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nX: y\rContent-Disposition: form-data; name=_method\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nX: y\n\nContent-Disposition: form-data; name=_method\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"a; name=_method\"\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"[_m\\ethod]\"\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=\".method\"\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n---b\r\nContent-ID: _method\r\n\r\nDELETE\r\n--b--\r\n", true},
		{multi, "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n--a\r\n-b\r\nContent-ID: _method\r\n--\r\n--b--\r\n", false},
		{multi, "--b\r\nContent-Disposition: form-data; name=\"payment_method\"\r\n\r\ncard\r\n--b\r\n" +
			"Content-Disposition: form-data; name=\"the.method.of\"; filename=\"x-http-method.txt\"\r\n\r\nContent-Disposition: form-data; name=_method\r\n--b--\r\n", false},
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
		// Of two boundaries, readers take this one or that, of which each has other heads.
		"multipart/form-data; boundary=" + strings.Repeat("b", maxBoundary+1),
		"multipart/form-data", "multipart/form-data; boundary=a; x-boundary=b", "multipart/form-data; boundary=a; x=\"boundary=b\"",
		"multipart/form-data; boundary*=utf-8''b", "multipart/form-data; boundary=\"a b\"", "multipart/form-data; boundary=\"\\a\"",
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
