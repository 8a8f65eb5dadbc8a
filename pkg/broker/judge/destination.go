package judge

import (
	"net/http"
	"net/url"
	"strings"
)

// takesFrom says whether a server takes what it writes from another path, by a header: S3, whose likes put another word in
// front, Azure, Google and Swift.
func takesFrom(lower string) bool {
	return strings.HasSuffix(lower, "-copy-source") || strings.HasSuffix(lower, "-rename-source") || lower == "x-copy-from"
}

// destined judges the other path that a request has, where rules are about paths: what WebDAV copies or moves goes to
// that of Destination (RFC 4918, section 10.3). In what form a source names its path is each server's own.
func (r *Rules) destined(method string, h http.Header) *Refusal {
	if !r.paths {
		return nil
	}
	for name, values := range h {
		switch lower := underscored(name); {
		case takesFrom(lower):
			return refuse("header", "header %s takes what is written from another path, which is not judged", quote(name, 64))
		case lower == "destination" && len(values) == 0: // behind the body
			return refuse("header", "header %s has no path that can be judged", quote(name, 64))
		case lower == "destination":
			for _, v := range values {
				to, err := url.Parse(v)
				if err != nil || to.Opaque != "" {
					return refuse("header", "header %s has no path that can be judged", quote(name, 64))
				}
				if _, refusal := r.admit(method, to.EscapedPath(), false); refusal != nil {
					return refusal
				}
			}
		}
	}
	return nil
}
