package lab

import (
	"encoding/hex"
	"testing"
	"time"
)

const eth = "ffffffffffff020000000001"

func TestParsePacket(t *testing.T) {
	tests := []struct{ name, frame, want string }{
		{"syn", eth + "0800" + "4500002800000000400600000a0000012d1e4206" + "c350115c00000001000000005002faf000000000",
			"10.0.0.1:50000 > 45.30.66.6:4444 proto 6 flags 0x2 icmp 0, 0 bytes"},
		{"later fragment", eth + "0800" + "4500001c00000001400600000a0000012d1e4206" + "c350115c00000001",
			"10.0.0.1:0 > 45.30.66.6:0 proto 6 flags 0x0 icmp 0, 8 bytes"},
		{"v6 with options", eth + "86dd" + "6000000000100040" + "20010db8000000000000000000000001" + "20010db8000000000000000000000002" +
			"1100000000000000" + "00350036000800006869", "[2001:db8::1]:53 > [2001:db8::2]:54 proto 17 flags 0x0 icmp 0, 2 bytes"},
		{"arp", eth + "0806" + "0001", "ethertype 0x0806, 16 bytes"},
		{"short", "ffff", "ethertype 0x0000, 2 bytes"},
	}
	for _, tt := range tests {
		raw, err := hex.DecodeString(tt.frame)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsePacket(raw, time.Time{}).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func FuzzParsePacket(f *testing.F) {
	for _, s := range []string{eth + "0800" + "4f00002800000000400600000a0000012d1e4206", eth + "86dd" + "60000000001000" + "40",
		eth + "86dd" + "6000000000102c40" + "20010db8000000000000000000000001" + "20010db8000000000000000000000002" + "3c00000100000000" + "06ff"} {
		raw, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if p := parsePacket(frame, time.Time{}); len(p.Payload) > len(frame) || len(p.Raw) != len(frame) {
			t.Errorf("%x: %d bytes of payload", frame, len(p.Payload))
		}
	})
}
