package judge

import "testing"

func TestNamesOfPlaces(t *testing.T) {
	for name, want := range map[string]bool{
		"url": true, "callbackUrl": true, "file_id": true, "FILE-ID": true, "s3Location": true, "web_search": true, "to\u017fls": true, "\u212aey": true,
		"status": false, "id": false, "name": false, "tool_name": false, "": false, "effort": false, "max_tokens": false,
	} {
		if got := placing([]byte(name)); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	for _, pair := range [][2]string{{"type", "Type"}, {"image_url", "imageUrl"}, {"image_url", "IMAGE-URL"}, {"a", "a_"}, {"", "_"}, {"_a", "A-"}} {
		if !alike(pair[0], pair[1]) || !alike(pair[1], pair[0]) || folded(pair[0]) != folded(pair[1]) {
			t.Errorf("%q are not alike", pair)
		}
	}
	for _, pair := range [][2]string{{"type", "types"}, {"a", ""}, {"a_b", "a_c"}, {"ab", "a"}} {
		if alike(pair[0], pair[1]) || alike(pair[1], pair[0]) || folded(pair[0]) == folded(pair[1]) {
			t.Errorf("%q are alike", pair)
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"http://a": true, "HTTPS://a": true, " \t\nhttps:a": true, "//a": true, "gs://b/x": true, "s3://b/x": true, "file:///x": true, "wss://a": true,
		"": false, "data:,x": false, "see http://a": false, "low": false, "12:30": false, "a//b": false,
	} {
		if got := remote([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
