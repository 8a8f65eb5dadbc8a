package judge

import (
	"net/http"
	"net/url"
	"strings"
)

const (
	maxMethod    = 32
	maxLongQuery = 16 << 10
)

// passable refuses what could be another request for whoever reads it next, whatever the rules are.
func passable(method, rawPath, rawQuery string, h http.Header) *Refusal {
	switch {
	case method == "" || len(method) > maxMethod || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "":
		return refuse("method", "a method is written in upper case, and not as %s", quote(method, maxMethod))
	case method == http.MethodConnect || method == http.MethodTrace || method == "TRACK" || method == "PRI":
		return refuse("method", "%s is refused for all inspected names", method)
	case !strings.HasPrefix(rawPath, "/") || strings.ContainsFunc(rawPath, oddInLine):
		return refuse("path", "what is asked for is not a path")
	case len(rawQuery) > maxLongQuery || strings.ContainsFunc(rawQuery, oddInLine):
		return refuse("query", "the query has more than %d bytes, or a character that has to be escaped", maxLongQuery)
	}
	for name, values := range h {
		for _, v := range values {
			if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == '\x7f' }) {
				return refuse("header", "header %s has a character that ends a line", quote(name, 64))
			}
		}
		if once[underscored(name)] && (len(values) > 1 || strings.Contains(name, "_")) {
			return refuse("header", "header %s stands there twice, or is not written as it should be", quote(name, 64))
		}
	}
	return oddConnection(h["Connection"])
}

// oddInLine are the characters that no path or query of a request line has as they are (RFC 9112, section 3).
func oddInLine(c rune) bool { return c <= ' ' || c > '~' || c == '#' || c == '\\' }

// once are the headers of which servers take the first or the last, if there are two.
var once = map[string]bool{
	"authorization": true, "content-type": true, "content-encoding": true, "content-length": true, "host": true,
	"transfer-encoding": true, "upgrade": true,
}

// underscored is the name of a header as what stands behind CGI and its like sees it, where _ and - are one.
func underscored(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// overriding are headers and parameters that name another method (Rails, Laravel, Symfony, Express, Plack, the APIs of
// Google, Microsoft and Salesforce), or bring headers along (Google's).
var overriding = map[string]bool{
	"x-http-method": true, "x-http-method-override": true, "x-method-override": true, "x-method": true, "x-tunneled-method": true,
	"-method": true, "-httpmethod": true, "$httpmethod": true, "$httpheaders": true,
}

// overridden refuses a request that asks for another method than its own.
func overridden(rawQuery string, h http.Header) *Refusal {
	for name := range h {
		if overriding[underscored(name)] {
			return refuse("header", "header %s would change the method", quote(name, 64))
		}
	}
	for part := range strings.FieldsFuncSeq(rawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
		name, _, _ := strings.Cut(part, "=")
		if overrides(name) {
			return refuse("query", "parameter %s would change the method", quote(name, 64))
		}
	}
	return nil
}

// overrides says whether an escaped name of a parameter is one that changes the method. What can't be unescaped may be.
func overrides(escaped string) bool {
	name, err := url.QueryUnescape(escaped)
	if err != nil {
		return strings.Contains(strings.ToLower(escaped), "method")
	}
	// Rack takes brackets off the front. PHP ends a name at a NUL.
	name = strings.TrimLeft(strings.TrimSpace(name), "[]")
	name = name[:indexOr(name, "[]\x00")]
	return overriding[parameterName(name)]
}

// parameterName is a name as PHP reads it: a dot or a blank is an underscore.
func parameterName(name string) string {
	return strings.NewReplacer(".", "-", " ", "-").Replace(underscored(name))
}
