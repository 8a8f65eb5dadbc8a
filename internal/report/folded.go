package report

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// folded keeps the heaviest of what the agent may make any number of. What is lighter is let go when there is too much:
// who floods the log with names of no weight drives out nothing that had any.
type folded[V any] struct {
	limit  int
	at     map[string]*V
	weight func(*V) uint64
	gone   int // how often something was let go
}

func newFolded[V any](limit int, weight func(*V) uint64) *folded[V] {
	return &folded[V]{limit: limit, at: map[string]*V{}, weight: weight}
}

// of is what stands for key; a new one is made by begin.
func (f *folded[V]) of(key string, begin func() *V) *V {
	if v := f.at[key]; v != nil {
		return v
	}
	if len(f.at) >= 2*f.limit {
		f.cut()
	}
	v := begin()
	f.at[key] = v
	return v
}

// cut lets the lighter half go.
func (f *folded[V]) cut() {
	keys := f.keys()
	for _, key := range keys[f.limit:] {
		delete(f.at, key)
		f.gone++
	}
}

// keys are those that are kept, the heaviest first.
func (f *folded[V]) keys() []string {
	return slices.SortedFunc(maps.Keys(f.at), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.weight(f.at[b]), f.weight(f.at[a])), cmp.Compare(a, b))
	})
}

// list is what is kept, the heaviest first, and how many are left out.
func (f *folded[V]) list() (list []V, left int) {
	list = []V{}
	for i, key := range f.keys() {
		if i < f.limit {
			list = append(list, *f.at[key])
		}
	}
	return list, f.gone + len(f.at) - len(list)
}

// few is a set of texts for a person, in the order in which they came.
type few []string

const maxFew = 6

// MarshalJSON writes an empty set as a list too.
func (f few) MarshalJSON() ([]byte, error) { return json.Marshal(append([]string{}, f...)) }

func (f *few) add(s string) {
	if s != "" && len(*f) < maxFew && !slices.Contains(*f, s) {
		*f = append(*f, s)
	}
}
