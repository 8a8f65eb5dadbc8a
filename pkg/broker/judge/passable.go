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
	return mayOverride(escaped) && isOverride(escaped)
}

func isOverride(escaped string) bool {
	name, err := url.QueryUnescape(escaped)
	if err != nil {
		return strings.Contains(strings.ToLower(escaped), "method")
	}
	return overriding[ParameterName(name)]
}

// mayOverride is quick: of a body that is no form, most is names, of which none has "th", "tt" or an escape.
func mayOverride(escaped string) bool {
	for i := 1; i < len(escaped); i++ {
		switch c := escaped[i] | 0x20; {
		case escaped[i-1]|0x20 == 't' && (c == 't' || c == 'h'), escaped[i-1] == '%' && ('0' <= c && c <= '9' || 'a' <= c && c <= 'f'):
			return true
		}
	}
	return false
}

// ParameterName is a name in a query or a form, unescaped, as the most generous of servers read it: Rack takes brackets off
// its front, and PHP ends it at a NUL. What stands in brackets behind it is not the name's.
func ParameterName(name string) string {
	name = strings.TrimLeft(strings.TrimSpace(name), "[]")
	return underlined(name[:indexOr(name, "[]\x00")])
}

// underlined is a text in which PHP would take a dot or a blank of a name for an underscore, and CGI a hyphen.
func underlined(s string) string { return parted.Replace(strings.ToLower(s)) }

var parted = strings.NewReplacer("_", "-", ".", "-", " ", "-")
