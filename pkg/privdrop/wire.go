package privdrop

import "encoding/json"

// bare is Spec without its methods, for encoding/json to work on.
type bare Spec

// wire is Spec as JSON has it. Arguments, variables and paths are bytes to the
// kernel, and JSON has only text: it would replace what is not UTF-8.
type wire struct {
	bare
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"`
	Dir  []byte   `json:"dir,omitempty"`
}

// MarshalJSON encodes s without loss.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(wire{bare: bare(s), Argv: toBytes(s.Argv), Env: toBytes(s.Env), Dir: []byte(s.Dir)})
}

// UnmarshalJSON decodes what MarshalJSON has encoded.
func (s *Spec) UnmarshalJSON(text []byte) error {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*s = Spec(w.bare)
	s.Argv, s.Env, s.Dir = toStrings(w.Argv), toStrings(w.Env), string(w.Dir)
	return nil
}

func toBytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func toStrings(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}
