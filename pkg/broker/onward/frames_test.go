package onward

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
)

// TestFrames: whatever size of frames a server takes, it is told as the least, and all else stays as it came, in whatever
// parts it comes.
func TestFrames(t *testing.T) {
	write := func(size uint32) []byte {
		var b bytes.Buffer
		f := http2.NewFramer(&b, nil)
		settings := func(size uint32) {
			f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0x05050505}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: size},
				http2.Setting{ID: 0x105, Val: 1 << 20}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: size})
		}
		settings(size)
		f.WriteSettingsAck()
		f.WriteData(5, false, []byte("\x00\x05\x00\x10\x00\x00\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x10\x00\x00"))
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: []byte{0, 5, 0, 16, 0, 0}, EndHeaders: true})
		f.WriteData(5, true, nil)
		settings(size)
		return b.Bytes()
	}
	want := write(16 << 10)
	for _, size := range []uint32{16 << 10, 1 << 20, 1<<24 - 1} {
		for part := 1; part <= len(want); part++ {
			got, f := write(size), &framed{}
			for at := 0; at < len(got); at += part {
				f.follow(got[at:min(at+part, len(got))])
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%d, in parts of %d: %x, want %x", size, part, got, want)
			}
		}
	}
}
