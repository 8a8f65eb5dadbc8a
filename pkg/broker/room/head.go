package room

import "net/http"

// ofField is what a field of a head takes beside its bytes: its place in a map, and a slice for its values.
const ofField = 128

// Head is what the head of a request takes.
func Head(r *http.Request) int64 {
	size := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v) + ofField
		}
	}
	return int64(size)
}
