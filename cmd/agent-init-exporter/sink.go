package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	collogpb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/pkg/policy"
)

// exporter sends batches, one after the other.
type exporter interface {
	send(context.Context, []sdklog.Record) verdict
	measure(context.Context, *metricdata.ResourceMetrics) error
	close()
}

// verdict is what has become of a batch, by the words of the protocol (https://opentelemetry.io/docs/specs/otlp/).
type verdict struct {
	kind     kind
	rejected uint64        // of a batch that was taken: events that were not
	after    time.Duration // when the collector wants to be asked again; 0: it does not say
	why      string        // it was not taken
}

type kind int

const (
	taken    kind = iota
	again         // nothing is wrong with the batch
	refused       // it must not be sent again
	tooLarge      // likewise, but parts of it may be
)

// sink is the SDK's exporter, with an ear at what the collector answers: the SDK has no words for it that others can see.
type sink struct {
	sdk   sdklog.Exporter
	meter sdkmetric.Exporter
	heard *verdict // nil: no answer has come
	end   func()
}

func newSink(ctx context.Context, c stage.ExporterConfig, to *collector) (exporter, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.Host, RootCAs: x509.NewCertPool()}
	encrypted := strings.HasPrefix(c.Endpoint, "https:")
	if encrypted && !t.RootCAs.AppendCertsFromPEM(c.Roots) {
		return nil, errors.New("no authority vouches for the collector")
	}
	headers, err := headersOf(c.Headers)
	if err != nil {
		return nil, err
	}
	s := &sink{end: func() {}}
	if c.Protocol == policy.OTLPgRPC {
		err = s.overGRPC(ctx, c, to, headers, map[bool]*tls.Config{true: t}[encrypted])
	} else {
		err = s.overHTTP(ctx, c, to, headers, t)
	}
	return s, err
}

// headersOf reads name=value,name=value with percent escapes, as OTEL_EXPORTER_OTLP_HEADERS has them. No error repeats them.
func headersOf(list string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || policy.CheckSecret([]byte(value)) != "" {
			return nil, errors.New("the headers are not name=value,name=value, with percent escapes in the values")
		}
		out[name] = value
	}
	return out, nil
}

func (s *sink) overHTTP(ctx context.Context, c stage.ExporterConfig, to *collector, headers map[string]string, t *tls.Config) (err error) {
	transport := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return to.dial(ctx) },
		TLSClientConfig: t, ForceAttemptHTTP2: true, TLSHandshakeTimeout: c.Timeout, IdleConnTimeout: 90 * time.Second, MaxIdleConns: 1,
	}
	s.end = transport.CloseIdleConnections
	client := http.Client{
		Transport: hearing{transport, s}, Timeout: c.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the headers are for nobody else
	}
	plain := client
	plain.Transport = transport
	compression, metricCompression := otlploghttp.NoCompression, otlpmetrichttp.NoCompression
	if c.Compression == "gzip" {
		compression, metricCompression = otlploghttp.GzipCompression, otlpmetrichttp.GzipCompression
	}
	s.meter, err = otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(c.Endpoint+"/v1/metrics"), otlpmetrichttp.WithHeaders(headers), otlpmetrichttp.WithTimeout(c.Timeout),
		otlpmetrichttp.WithCompression(metricCompression), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}), otlpmetrichttp.WithHTTPClient(&plain))
	if err != nil {
		return err
	}
	s.sdk, err = otlploghttp.New(ctx, otlploghttp.WithEndpointURL(c.Endpoint+"/v1/logs"), otlploghttp.WithHeaders(headers), otlploghttp.WithTimeout(c.Timeout),
		otlploghttp.WithCompression(compression), otlploghttp.WithRetry(otlploghttp.RetryConfig{}), otlploghttp.WithHTTPClient(&client))
	return err
}

// overGRPC sends without TLS if t is nil.
func (s *sink) overGRPC(ctx context.Context, c stage.ExporterConfig, to *collector, headers map[string]string, t *tls.Config) error {
	safe := insecure.NewCredentials()
	if t != nil {
		safe = credentials.NewTLS(t)
	}
	o := []grpc.DialOption{
		grpc.WithTransportCredentials(safe), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return to.dial(ctx) }),
		grpc.WithUnaryInterceptor(s.hear),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: minBackoff, Multiplier: 2, Jitter: 0.2, MaxDelay: maxBackoff}, MinConnectTimeout: c.Timeout}),
	}
	if c.Compression == "gzip" {
		o = append(o, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), o...)
	if err != nil {
		return err
	}
	s.end = func() { conn.Close() }
	s.meter, err = otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithGRPCConn(conn), otlpmetricgrpc.WithHeaders(headers), otlpmetricgrpc.WithTimeout(c.Timeout),
		otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))
	if err != nil {
		return err
	}
	s.sdk, err = otlploggrpc.New(ctx, otlploggrpc.WithGRPCConn(conn), otlploggrpc.WithHeaders(headers), otlploggrpc.WithTimeout(c.Timeout),
		otlploggrpc.WithRetry(otlploggrpc.RetryConfig{}))
	return err
}

func (s *sink) send(ctx context.Context, batch []sdklog.Record) verdict {
	s.heard = nil
	err := s.sdk.Export(ctx, batch)
	switch {
	case s.heard != nil:
		return *s.heard
	case err == nil: // which can't be
		return verdict{}
	}
	return verdict{kind: again, why: err.Error()}
}

func (s *sink) measure(ctx context.Context, m *metricdata.ResourceMetrics) error {
	return s.meter.Export(ctx, m)
}

func (s *sink) close() {
	_ = errors.Join(s.sdk.Shutdown(context.Background()), s.meter.Shutdown(context.Background())) // closes nothing that is open: the connection is ours
	s.end()
}

// hearing is a transport whose answers a sink hears.
type hearing struct {
	http.RoundTripper
	s *sink
}

const maxAnswer = 64 << 10

// RoundTrip asks, and reads the answer.
func (h hearing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := h.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	v := judgeHTTP(resp.StatusCode, resp.Header.Get("Retry-After"), time.Now())
	var said collogpb.ExportLogsServiceResponse
	if v.kind == taken && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-protobuf") && proto.Unmarshal(body, &said) == nil {
		v.partly(&said)
	}
	h.s.heard = &v
	return resp, nil
}

// partly takes in that the collector has rejected some events of a batch that it took.
func (v *verdict) partly(r *collogpb.ExportLogsServiceResponse) {
	if p := r.GetPartialSuccess(); p.GetRejectedLogRecords() > 0 {
		v.rejected, v.why = uint64(p.GetRejectedLogRecords()), p.GetErrorMessage()
	}
}

// judgeHTTP: these four may be sent again, and nothing else that was answered.
func judgeHTTP(code int, retryAfter string, now time.Time) verdict {
	v := verdict{why: fmt.Sprintf("HTTP %d %s", code, http.StatusText(code))}
	switch {
	case code >= 200 && code < 300:
		return verdict{}
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		v.kind = again
		if n, err := strconv.Atoi(retryAfter); err == nil {
			v.after = time.Duration(n) * time.Second
		} else if at, err := http.ParseTime(retryAfter); err == nil {
			v.after = at.Sub(now)
		}
	case code == http.StatusRequestEntityTooLarge:
		v.kind = tooLarge
	default:
		v.kind = refused
	}
	return v
}

// hear is a grpc.UnaryClientInterceptor.
func (s *sink) hear(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, o...)
	v := judgeGRPC(err)
	if said, ok := reply.(*collogpb.ExportLogsServiceResponse); ok && v.kind == taken {
		v.partly(said)
	}
	s.heard = &v
	return err
}

// judgeGRPC: what may be sent again is one of these. That resources are exhausted says so only if it says when.
func judgeGRPC(err error) verdict {
	st := status.Convert(err)
	v := verdict{why: "gRPC " + st.Code().String() + ": " + st.Message()}
	says := false
	for _, d := range st.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			v.after, says = r.GetRetryDelay().AsDuration(), true
		}
	}
	switch st.Code() {
	case codes.OK:
		return verdict{}
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		v.kind = again
	case codes.ResourceExhausted:
		if v.kind = tooLarge; says {
			v.kind = again
		}
	default:
		v.kind = refused
	}
	return v
}
