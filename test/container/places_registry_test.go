package container

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// registry keeps what is published, as an OCI registry does: just what publishing and fetching an
// artifact takes of https://github.com/opencontainers/distribution-spec.
type registry struct {
	mu     sync.Mutex
	blobs  map[string][]byte // by digest, manifests included
	tagged map[string]string // digests, by "name:tag"
}

func newRegistry() *registry {
	return &registry{blobs: map[string][]byte{}, tagged: map[string]string{}}
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path, ok := strings.CutPrefix(q.URL.Path, "/v2/")
	if !ok || path == "" {
		return
	}
	if name, ok := strings.CutSuffix(path, "/tags/list"); ok {
		var tags []string
		for t := range r.tagged {
			if tag, ok := strings.CutPrefix(t, name+":"); ok {
				tags = append(tags, tag)
			}
		}
		if tags == nil {
			http.NotFound(w, q)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"name": name, "tags": tags})
		return
	}
	if name, ok := strings.CutSuffix(path, "/blobs/uploads/"); ok {
		w.Header().Set("Location", "/v2/"+name+"/upload")
		w.WriteHeader(http.StatusAccepted)
		return
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(body))
	if name, tag, ok := strings.Cut(path, "/manifests/"); ok {
		if q.Method == http.MethodPut {
			r.blobs[digest], r.tagged[name+":"+tag] = body, digest
			w.WriteHeader(http.StatusCreated)
			return
		}
		digest = tag
		if d, ok := r.tagged[name+":"+tag]; ok {
			digest = d
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	} else if strings.HasSuffix(path, "/upload") {
		if want := q.URL.Query().Get("digest"); q.Method != http.MethodPut || want != digest {
			http.Error(w, "this is "+digest, http.StatusBadRequest)
			return
		}
		r.blobs[digest] = body
		w.WriteHeader(http.StatusCreated)
		return
	} else if _, digest, ok = strings.Cut(path, "/blobs/"); !ok {
		http.NotFound(w, q)
		return
	}
	blob, ok := r.blobs[digest]
	if !ok {
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Write(blob)
}
