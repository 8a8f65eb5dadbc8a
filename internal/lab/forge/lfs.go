package forge

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// largeFiles keeps objects of LFS beside the repositories, and tells where they are as Gitea does: with the credential by
// which it was asked.
func (f *Forge) largeFiles(w http.ResponseWriter, r *http.Request) {
	oid := filepath.Base(r.URL.Path)
	file := filepath.Join(f.Root, "lfs-"+oid)
	switch {
	case r.Method == http.MethodGet:
		http.ServeFile(w, r, file)
	case r.Method == http.MethodPut:
		data, err := io.ReadAll(r.Body)
		if err != nil || os.WriteFile(file, data, 0o600) != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	case strings.HasSuffix(r.URL.Path, "/objects/batch"):
		var asked struct {
			Operation string `json:"operation"`
			Objects   []struct {
				OID  string `json:"oid"`
				Size int64  `json:"size"`
			} `json:"objects"`
		}
		if json.NewDecoder(r.Body).Decode(&asked) != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		var objects []map[string]any
		for _, o := range asked.Objects {
			at := "https://" + r.Host + strings.TrimSuffix(r.URL.Path, "batch") + o.OID
			action := map[string]any{"href": at, "header": map[string]string{"Authorization": r.Header.Get("Authorization")}}
			objects = append(objects, map[string]any{"oid": o.OID, "size": o.Size, "actions": map[string]any{asked.Operation: action}})
		}
		w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
		json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": objects})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}
