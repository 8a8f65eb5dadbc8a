package main

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func attributesOf(r sdklog.Record) (all []attribute.KeyValue) {
	r.WalkAttributes(func(kv attribute.KeyValue) bool { all = append(all, kv); return true })
	return all
}

// TestJudge: what may be sent again is what the protocol says, and nothing else.
func TestJudge(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	for code, want := range map[int]kind{
		200: taken, 202: taken, 429: again, 502: again, 503: again, 504: again, 413: tooLarge,
		301: refused, 307: refused, 400: refused, 401: refused, 403: refused, 404: refused, 500: refused, 501: refused,
	} {
		if got := judgeHTTP(code, "", now); got.kind != want || (want != taken) != (got.why != "") {
			t.Errorf("HTTP %d: %+v, want %d", code, got, want)
		}
	}
	for text, want := range map[string]time.Duration{"7": 7 * time.Second, now.Add(time.Minute).Format("Mon, 02 Jan 2006 15:04:05 GMT"): time.Minute, "soon": 0} {
		if got := judgeHTTP(503, text, now); got.after != want {
			t.Errorf("Retry-After: %s: %v", text, got.after)
		}
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		want := refused
		switch code {
		case codes.OK:
			want = taken
		case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
			want = again
		case codes.ResourceExhausted:
			want = tooLarge
		}
		if got := judgeGRPC(status.Error(code, "x")); got.kind != want {
			t.Errorf("gRPC %v: %+v, want %d", code, got, want)
		}
	}
	st, err := status.New(codes.ResourceExhausted, "x").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if got := judgeGRPC(st.Err()); got.kind != again || got.after != 3*time.Second {
		t.Errorf("%+v", got)
	}
}

// TestHeaders: they are as the variable has them, and no error repeats one.
func TestHeaders(t *testing.T) {
	got, err := headersOf("Api-Key=a%20b, x=1=2,,")
	if err != nil || len(got) != 2 || got["api-key"] != "a b" || got["x"] != "1=2" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"geheim", "a b=geheim", "a=%zz", "a=b%0ac: geheim", "a="} {
		if _, err := headersOf(bad); err == nil || len(err.Error()) > 100 {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("api-key=a%20b,x=1")
	f.Fuzz(func(t *testing.T, list string) {
		got, err := headersOf(list)
		for name, value := range got {
			for _, r := range name + value {
				if r < ' ' || r > '~' {
					t.Errorf("%q of %q, %v", got, list, err)
				}
			}
		}
	})
}
