package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/test/attack/rig"
)

// corpusCase is a case of agent-egress-bench, as its public format has it: a file of JSON for each. A field that is
// none of these is an error, since it might say something of what is to be asked or expected.
type corpusCase struct {
	Schema     int             `json:"schema_version"`
	ID         string          `json:"id"`
	Category   string          `json:"category"`
	Title      string          `json:"title"`
	About      string          `json:"description"`
	Input      string          `json:"input_type"`
	Transport  string          `json:"transport"`
	Payload    json.RawMessage `json:"payload"`
	Expected   string          `json:"expected_verdict"`
	Severity   string          `json:"severity"`
	Tags       []string        `json:"capability_tags"`
	Requires   []string        `json:"requires"`
	Risk       string          `json:"false_positive_risk"`
	Why        string          `json:"why_expected"`
	Safe       bool            `json:"safe_example"`
	Notes      string          `json:"notes"`
	Source     string          `json:"source"`
	Supersedes string          `json:"supersedes"`

	request corpusRequest // without a URL: it is not about a request
	url     *url.URL      // of the request
}

// corpusRequest is what an agent asks in a case, and what it is answered.
type corpusRequest struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Type    string            `json:"content_type"`
	Body    string            `json:"body"`
	Headers map[string]string `json:"headers"`
	Answer  string            `json:"response_body"`
	Frames  []corpusFrame     `json:"frames"`
}

// corpusFrame is a frame of a WebSocket. One that doesn't say "fin" is a whole message.
type corpusFrame struct {
	Opcode   string `json:"opcode"`
	Fin      *bool  `json:"fin"`
	RSV1     bool   `json:"rsv1"`
	Encoding string `json:"encoding"`
	Payload  string `json:"payload"`
}

// asksURL says of a kind of input whether its payload is a request to a URL. The others are messages between an agent and its
// tools, or other agents: no request says where they go.
func asksURL(input string) (request, known bool) {
	switch input {
	case "url", "request_body", "header", "response_content", "websocket_frame":
		return true, true
	case "mcp_tool_call", "mcp_tool_result", "mcp_tool_definition", "mcp_tool_sequence", "a2a_message", "a2a_agent_card":
		return false, true
	}
	return false, false
}

// readCorpus reads the cases below a directory, or below its "cases" if it is a checkout, in the order of their ids.
func readCorpus(dir string) ([]*corpusCase, error) {
	if below := filepath.Join(dir, "cases"); isDir(below) {
		dir = below
	}
	var all []*corpusCase
	var wrong []error
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c, err := parseCorpusCase(data)
		if err == nil && c.ID != strings.TrimSuffix(d.Name(), ".json") {
			err = fmt.Errorf("the id is %q", c.ID)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", path, err))
			return nil
		}
		all = append(all, c)
		return nil
	})
	if err != nil || len(wrong) > 0 {
		return nil, errors.Join(append(wrong, err)...)
	}
	slices.SortFunc(all, func(a, b *corpusCase) int { return strings.Compare(a.ID, b.ID) })
	for i, c := range all[min(1, len(all)):] {
		if all[i].ID == c.ID {
			return nil, fmt.Errorf("%s is there twice", c.ID)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no cases", dir)
	}
	return all, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func parseCorpusCase(data []byte) (*corpusCase, error) {
	c := &corpusCase{}
	if err := strictJSON(data, c); err != nil {
		return nil, err
	}
	request, known := asksURL(c.Input)
	switch {
	case c.Schema != 1:
		return nil, fmt.Errorf("schema_version is %d, and not 1", c.Schema)
	case c.ID == "" || c.Category == "" || len(c.Payload) == 0:
		return nil, errors.New("id, category or payload is missing")
	case c.Expected != "block" && c.Expected != "allow":
		return nil, fmt.Errorf("expected_verdict is %q", c.Expected)
	case !known:
		return nil, fmt.Errorf("input_type is %q", c.Input)
	case !request:
		return c, nil
	}
	if err := strictJSON(c.Payload, &c.request); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	u, err := url.Parse(c.request.URL)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	socket := u.Scheme == "ws" || u.Scheme == "wss"
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && !socket, u.Hostname() == "", u.Port() != "":
		return nil, fmt.Errorf("payload: %q is no URL of HTTP or of a WebSocket, on its own port", c.request.URL)
	case socket != (c.Input == "websocket_frame"), socket != (len(c.request.Frames) > 0):
		return nil, fmt.Errorf("payload: %s with %d frames, in a case of %s", u.Scheme, len(c.request.Frames), c.Input)
	}
	if c.request.Method == "" {
		c.request.Method = "GET"
	}
	if c.request.Type != "" {
		headers := map[string]string{"Content-Type": c.request.Type}
		for name, value := range c.request.Headers {
			headers[name] = value
		}
		c.request.Headers = headers
	}
	u.Scheme = map[string]string{"ws": "http", "wss": "https"}[u.Scheme] + map[bool]string{false: u.Scheme}[socket]
	c.url = u
	_, err = c.frames()
	return c, err
}

// strictJSON reads one value, and refuses fields that are unknown and what stands behind.
func strictJSON(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one value of JSON")
	}
	return nil
}

// frames are those of the case as a client sends them, and one to close. The key of the mask is zero, which RFC 6455
// does not forbid: the far side sees the text as it is.
func (c *corpusCase) frames() ([]byte, error) {
	if len(c.request.Frames) == 0 {
		return nil, nil
	}
	opcodes := map[string]byte{"continuation": 0, "text": 1, "binary": 2}
	var out []byte
	for _, f := range c.request.Frames {
		first, ok := opcodes[f.Opcode]
		payload, err := []byte(f.Payload), error(nil)
		switch f.Encoding {
		case "":
		case "base64":
			payload, err = base64.StdEncoding.DecodeString(f.Payload)
		default:
			err = fmt.Errorf("encoding %q", f.Encoding)
		}
		if err != nil || !ok || len(payload) > 0xffff {
			return nil, fmt.Errorf("payload: a frame of opcode %q, %d bytes: %v", f.Opcode, len(payload), err)
		}
		if f.Fin == nil || *f.Fin {
			first |= 0x80
		}
		if f.RSV1 {
			first |= 0x40
		}
		const masked = 0x80
		if out = append(out, first); len(payload) < 126 {
			out = append(out, masked|byte(len(payload)))
		} else {
			out = append(out, masked|126, byte(len(payload)>>8), byte(len(payload)))
		}
		out = append(append(out, 0, 0, 0, 0), payload...)
	}
	return append(out, closeFrame...), nil
}

const closeFrame = "\x88\x80\x00\x00\x00\x00"

func (c *corpusCase) host() string { return strings.ToLower(c.url.Hostname()) }

// address is that of a URL which names none of DNS, read as inet_aton(3) does and with it curl: "0x7f000001" and
// "0177.0.0.1" are 127.0.0.1.
func (c *corpusCase) address() netip.Addr {
	if a, err := netip.ParseAddr(c.url.Hostname()); err == nil {
		return a.Unmap()
	}
	parts := strings.Split(c.url.Hostname(), ".")
	var value uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 32)
		last, rest := i == len(parts)-1, 8*(4-i)
		if err != nil || len(parts) > 4 || !last && n > 255 || last && n >= 1<<rest {
			return netip.Addr{}
		}
		if last {
			value |= n
		} else {
			value |= n << (rest - 8)
		}
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)})
}

// inBox is that the request would go to the container itself: nothing of it can arrive anywhere.
func (c *corpusCase) inBox() bool {
	a := c.address()
	return a.IsLoopback() || a.IsUnspecified()
}

// TestCorpusMalformed: a file that is no case is an error with its name, and not a case less.
func TestCorpusMalformed(t *testing.T) {
	good, err := os.ReadFile("testdata/cases/names/names-unknown-001.json")
	rig.Must(t, err)
	for what, file := range map[string]struct{ name, from, to, want string }{
		"no JSON":            {from: "{", to: "", want: "cannot unmarshal"},
		"more than one":      {from: "{", to: "{} {", want: "more than one value"},
		"an unknown field":   {from: `"notes"`, to: `"note"`, want: `unknown field "note"`},
		"another version":    {from: `"schema_version": 1`, to: `"schema_version": 2`, want: "schema_version is 2"},
		"another verdict":    {from: `"block"`, to: `"warn"`, want: `expected_verdict is "warn"`},
		"an unknown input":   {from: `"input_type": "url"`, to: `"input_type": "dns"`, want: `input_type is "dns"`},
		"no payload":         {from: `"payload"`, to: `"payload": null, "notes"`, want: "payload"},
		"an unknown payload": {from: `"method"`, to: `"verb"`, want: `payload: json: unknown field "verb"`},
		"no URL":             {from: "https://", to: "ftp://", want: "is no URL of HTTP"},
		"no frames":          {from: "https://", to: "wss://", want: "wss with 0 frames"},
		"another id":         {name: "names-other-001.json", want: `the id is "names-unknown-001"`},
		"no case at all":     {name: "README.md", want: "has no cases"},
	} {
		t.Run(what, func(t *testing.T) {
			name := "names-unknown-001.json"
			if file.name != "" {
				name = file.name
			}
			dir := t.TempDir()
			rig.Must(t, os.WriteFile(filepath.Join(dir, name), bytes.Replace(good, []byte(file.from), []byte(file.to), 1), 0o600))
			if cases, err := readCorpus(dir); err == nil || !strings.Contains(err.Error(), file.want) {
				t.Errorf("%d cases, and %v; want %q", len(cases), err, file.want)
			}
		})
	}
}

// TestCorpusAddress: addresses are read in all spellings that clients know.
func TestCorpusAddress(t *testing.T) {
	for host, want := range map[string]string{
		"0x7f000001": "127.0.0.1", "2130706433": "127.0.0.1", "0177.0.0.1": "127.0.0.1", "127.1": "127.0.0.1",
		"[::ffff:10.0.0.1]": "10.0.0.1", "[::1]": "::1", "10.0.256.1": "invalid IP", "1.2.3.4.5": "invalid IP", "dead.beef": "invalid IP",
	} {
		u, err := url.Parse("http://" + host + "/")
		rig.Must(t, err)
		if got := (&corpusCase{url: u}).address().String(); got != want {
			t.Errorf("%s is %s, want %s", host, got, want)
		}
	}
}
