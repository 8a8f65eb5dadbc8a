package grant

// Proposed answers a request.
type Proposed struct {
	Version int    `json:"version"`
	Number  uint32 `json:"number,omitempty"` // 0: there is no need for one
	Target  string `json:"target"`
	Allowed string `json:"allowed,omitempty"` // the rule that allows it already
}
