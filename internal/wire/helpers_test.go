package wire

import "testing"

func channelPair(t *testing.T) (a, b *Channel) {
	t.Helper()
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := OpenPair(theirs)
	if err != nil {
		t.Fatal(err)
	}
	a, b = Open(ours, MaxText), Open(conn, MaxText)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
