package telemetry

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"

	"github.com/agent-init/agent-init/test/attack/rig"
)

// receiver is a collector, by OTLP over HTTP and gRPC.
type receiver struct {
	mu     sync.Mutex
	status int                // of its answers over HTTP; 0: 200. Any is UNAVAILABLE over gRPC
	events map[uint64]int     // how often each came, by its number
	words  map[string]int     // texts of all records, by attribute and value
	counts map[string]float64 // the last value of each metric
	asked  int
	auth   []string
}

func newReceiver() *receiver {
	return &receiver{events: map[uint64]int{}, words: map[string]int{}, counts: map[string]float64{}}
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	kind, path, compressed := "application/x-protobuf", "/v1/logs", r.Header.Get("Content-Encoding") == "gzip"
	overGRPC, metrics := r.Header.Get("Content-Type") == "application/grpc", strings.Contains(strings.ToLower(r.URL.Path), "metrics")
	if metrics {
		path = "/v1/metrics"
	}
	if overGRPC && len(data) >= 5 { // https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md: compressed or not, and the length
		kind, path = "application/grpc", "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
		if metrics {
			path = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
		}
		compressed, data = data[0] == 1, data[5:]
	}
	if compressed && err == nil {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			data, err = io.ReadAll(z)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !metrics {
		c.asked++
	}
	c.auth = append(c.auth, r.Header.Get("Api-Key"))
	w.Header().Set("Content-Type", kind)
	switch {
	case err != nil || r.URL.Path != path || r.Header.Get("Content-Type") != kind:
		w.WriteHeader(http.StatusBadRequest)
	case c.status != 0 && overGRPC:
		w.Header().Set("Grpc-Status", "14")
	case c.status != 0:
		w.WriteHeader(c.status)
	default:
		if metrics {
			c.measure(data)
		} else {
			c.take(data)
		}
		if overGRPC {
			_, _ = w.Write(make([]byte, 5)) // an empty message
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}
	}
}

func (c *receiver) take(data []byte) {
	// ExportLogsServiceRequest.resource_logs.scope_logs.log_records (opentelemetry/proto/logs/v1/logs.proto)
	for _, logs := range fields(data, 1) {
		for _, resource := range fields(logs, 1) {
			c.note("resource ", resource, 1)
		}
		for _, scope := range fields(logs, 2) {
			for _, record := range fields(scope, 2) {
				c.note("", record, 6)
			}
		}
	}
}

func (c *receiver) measure(data []byte) {
	// ExportMetricsServiceRequest.resource_metrics.scope_metrics.metrics (opentelemetry/proto/metrics/v1/metrics.proto)
	for _, resource := range fields(data, 1) {
		for _, scope := range fields(resource, 2) {
			for _, m := range fields(scope, 2) {
				for _, kind := range []uint64{5, 7} { // gauge, sum
					for _, points := range fields(m, kind) {
						for _, p := range fields(points, 1) {
							for _, v := range fields(p, 4) { // as_double
								c.counts[string(fields(m, 1)[0])] = math.Float64frombits(binary.LittleEndian.Uint64(v))
							}
						}
					}
				}
			}
		}
	}
}

func (c *receiver) count(name string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}

// note takes in the attributes of a message, which are its fields of that number.
func (c *receiver) note(prefix string, message []byte, number uint64) {
	for _, attr := range fields(message, number) {
		key, value := string(fields(attr, 1)[0]), fields(attr, 2)[0]
		if texts := fields(value, 1); len(texts) > 0 {
			c.words[prefix+key+"="+string(texts[0])]++
		}
		if key == "metadata.sequence" {
			n, _ := binary.Uvarint(value[1:]) // int_value
			c.events[n]++
		}
	}
}

// fields are those of a message of protobuf that have a number, and a length or a size that is fixed.
func fields(message []byte, number uint64) (out [][]byte) {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return out
		}
		message = message[n:]
		size := uint64(0)
		switch tag & 7 {
		case 0:
			_, n = binary.Uvarint(message)
			message = message[n:]
			continue
		case 1:
			size = 8
		case 5:
			size = 4
		case 2:
			size, n = binary.Uvarint(message)
			message = message[n:]
		}
		if tag>>3 == number {
			out = append(out, message[:size])
		}
		message = message[size:]
	}
	return out
}

func (c *receiver) answers(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.asked = status, 0
}

func (c *receiver) wasAsked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func (c *receiver) has(word string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.words[word] > 0
}

// missing are the numbers of events in the log that have not come, and those that came more than once.
func (c *receiver) missing(w *rig.World) (missing, twice []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range w.AuditOf(func(rig.Event) bool { return true }) {
		if c.events[e.Seq] == 0 {
			missing = append(missing, e.Seq)
		} else if c.events[e.Seq] > 1 {
			twice = append(twice, e.Seq)
		}
	}
	return missing, twice
}
