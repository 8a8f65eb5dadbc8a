package policy

// The ports of the web, whose connections the name gate looks into.
var (
	HTTPS = Port{Proto: TCP, Number: 443}
	HTTP  = Port{Proto: TCP, Number: 80}
)
