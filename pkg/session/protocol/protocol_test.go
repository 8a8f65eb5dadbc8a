package protocol

import (
	"strings"
	"testing"
)

func TestRequests(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"version":1,"verb":"attach","cols":80,"rows":24,"tty":{"dev":1,"rdev":2}}`: true,
		`{"version":1,"verb":"new","name":"a.b-c","argv":["sh","-c","x"]}`:           true,
		`{"version":2,"verb":"attach"}`:                                              false,
		`{"version":1,"verb":"detonate"}`:                                            false,
		`{"version":1,"verb":"attach","shell":true}`:                                 false,
		`{"version":1,"verb":"attach","cols":-1}`:                                    false,
		`{"version":1,"verb":"attach","cols":100000}`:                                false,
		`{"version":1,"verb":"attach"} {}`:                                           false,
		`{"version":1,"verb":"new","name":"a b"}`:                                    false,
		`{"version":1,"verb":"new","name":"\u001b[31m"}`:                             false,
		`{"version":1,"verb":"new","argv":["a\u0000b"]}`:                             false,
		`{"version":1,"verb":"new","argv":["` + strings.Repeat("x", maxArgv) + `"]}`: false,
		`nonsense`: false,
	} {
		if _, err := DecodeRequest([]byte(text)); (err == nil) != ok {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}
