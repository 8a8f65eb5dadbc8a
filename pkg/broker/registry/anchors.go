package registry

import (
	"errors"
	"html"
	"strings"
)

var errMarkup = errors.New("has markup that no index of PEP 503 has")

// anchors reads the links of an index in HTML (PEP 503). It knows no more of HTML than what indexes are written in.
func anchors(page []byte) ([]indexed, error) {
	rest := string(page)
	var files []indexed
	for {
		open := strings.IndexByte(rest, '<')
		if open < 0 {
			return files, nil
		}
		rest = rest[open+1:]
		if strings.HasPrefix(rest, "!--") {
			_, after, ok := strings.Cut(rest, "-->")
			if !ok {
				return nil, errMarkup
			}
			rest = after
			continue
		}
		name := rest[:len(rest)-len(strings.TrimLeft(rest, "/!abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))]
		attributes, after, err := tag(rest[len(name):])
		if err != nil {
			return nil, err
		}
		rest = after
		switch strings.ToLower(name) {
		case "script", "style", "textarea", "title", "template", "base", "plaintext", "svg", "math", "noscript", "iframe", "xmp":
			if strings.ToLower(name) != "title" { // what stands in it is text, and the others would change what is a link
				return nil, errMarkup
			}
		case "a":
			text, after, ok := strings.Cut(rest, "<")
			if !ok || len(after) < 2 || !strings.EqualFold(after[:2], "/a") {
				return nil, errMarkup
			}
			if len(files) == maxMembers {
				return nil, errMany
			}
			rest = rest[len(text):]
			if attributes["href"] != "" {
				files = append(files, anchor(attributes, strings.TrimSpace(html.UnescapeString(text))))
			}
		}
	}
}

// tag reads the attributes of a tag up to its end.
func tag(s string) (map[string]string, string, error) {
	attributes := map[string]string{}
	for {
		s = strings.TrimLeft(s, " \t\r\n/")
		if s == "" {
			return nil, "", errMarkup
		}
		if s[0] == '>' {
			return attributes, s[1:], nil
		}
		end := strings.IndexAny(s, " \t\r\n=>/")
		if end <= 0 || strings.ContainsAny(s[:end], "<\"'") && !strings.HasPrefix(s, `"`) {
			return nil, "", errMarkup
		}
		name := strings.ToLower(s[:end])
		s = strings.TrimLeft(s[end:], " \t\r\n")
		value := ""
		if strings.HasPrefix(s, "=") {
			s = strings.TrimLeft(s[1:], " \t\r\n")
			if s == "" {
				return nil, "", errMarkup
			}
			switch q := s[0]; q {
			case '"', '\'':
				i := strings.IndexByte(s[1:], q)
				if i < 0 {
					return nil, "", errMarkup
				}
				value, s = s[1:1+i], s[i+2:]
			default:
				i := strings.IndexAny(s, " \t\r\n>")
				if i < 0 {
					return nil, "", errMarkup
				}
				value, s = s[:i], s[i:]
			}
		}
		if _, twice := attributes[name]; !twice { // the first counts, https://html.spec.whatwg.org/#attributes-2
			attributes[name] = html.UnescapeString(value)
		}
	}
}

// anchor is a link as JSON has it.
func anchor(attributes map[string]string, text string) indexed {
	field := func(name, value string) member { return member{name: name, quote: quoted(name), value: quoted(value)} }
	fields := []member{field("filename", text), field("url", attributes["href"]), {name: "hashes", quote: quoted("hashes"), value: []byte("{}")}}
	if _, sum, ok := strings.Cut(attributes["href"], "#sha256="); ok {
		fields[2].value = joined(object([]member{field("sha256", sum)}))
	}
	if python := attributes["data-requires-python"]; python != "" {
		fields = append(fields, field("requires-python", python))
	}
	if why, ok := attributes["data-yanked"]; ok {
		m := field("yanked", why)
		if why == "" {
			m.value = []byte("true")
		}
		fields = append(fields, m)
	}
	return indexed{fields}
}
