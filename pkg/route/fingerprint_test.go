package route

import "testing"

func TestFingerprint(t *testing.T) {
	for credential, want := range map[string]string{
		"": "", "hunter2": "", "nineteen characters": "",
		"sk-ant-api03-0123456789": "d9d93430", // printf %s … | sha256sum | cut -c1-8
	} {
		if got := Fingerprint([]byte(credential)); got != want {
			t.Errorf("%q: %q, want %q", credential, got, want)
		}
	}
}
