package launch

import "testing"

func TestZone(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/share/zoneinfo/Europe/Berlin": "Europe/Berlin", "/usr/share/zoneinfo.default/Asia/Tokyo": "Asia/Tokyo",
		"/var/db/timezone/zoneinfo/UTC": "UTC", "/etc/localtime": "", "/usr/share/zoneinfo": "", "/usr/share/zoneinfo/a b": "", "/usr/share/zoneinfo/$(x)": "",
	} {
		if got := zoneOf(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	for variable, want := range map[string]string{"Asia/Tokyo": "Asia/Tokyo", ":/etc/localtime": "", "/etc/localtime": "", "x y": "", "\x1b[2J": ""} {
		if got := zone(variable); got != want {
			t.Errorf("TZ=%q: %q, want %q", variable, got, want)
		}
	}
}

// TestRootless: what an engine says of itself is taken for rootless only where it says so.
func TestRootless(t *testing.T) {
	for _, c := range []struct {
		engine, info string
		want         bool
	}{
		{"docker", `["name=seccomp,profile=builtin","name=rootless","name=cgroupns"]`, true},
		{"docker", `["name=seccomp,profile=builtin","name=cgroupns"]`, false},
		{"nerdctl", `["name=rootless"]`, true},
		{"podman", "true\n", true},
		{"podman", "false\n", false},
		{"docker", "", false},
	} {
		f := newFake(t, c.engine)
		f.write(t, "info", c.info)
		if got := f.rootless(t.Context()); got != c.want {
			t.Errorf("%s says %q: %v", c.engine, c.info, got)
		}
	}
}
