package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"google.golang.org/grpc/credentials"
)

// config says where the log is and where it goes.
type config struct {
	File     string            // in the directory of the log
	Protocol string            // http or grpc
	Endpoint string            // a URL
	Headers  map[string]string // secrets, as a rule
	CA       []byte            // PEM: who vouches for the collector; empty: the system's
	Resource map[string]string // attributes that each record has
}

const sendTime = 10 * time.Second // of one batch

// open makes what sends to the collector. It tries once: the shipper knows how to wait, and forgets nothing meanwhile.
func (c config) open(ctx context.Context) (sdklog.Exporter, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("there is no certificate in the collector's authority")
		}
	}
	secret := strings.HasPrefix(c.Endpoint, "https://")
	switch c.Protocol {
	case "http":
		o := []otlploghttp.Option{otlploghttp.WithEndpointURL(strings.TrimSuffix(c.Endpoint, "/") + "/v1/logs"), otlploghttp.WithHeaders(c.Headers), otlploghttp.WithTimeout(sendTime),
			otlploghttp.WithCompression(otlploghttp.GzipCompression), otlploghttp.WithRetry(otlploghttp.RetryConfig{})}
		if secret {
			o = append(o, otlploghttp.WithTLSClientConfig(t))
		}
		return otlploghttp.New(ctx, o...)
	case "grpc":
		o := []otlploggrpc.Option{otlploggrpc.WithEndpointURL(c.Endpoint), otlploggrpc.WithHeaders(c.Headers), otlploggrpc.WithTimeout(sendTime),
			otlploggrpc.WithCompressor("gzip"), otlploggrpc.WithRetry(otlploggrpc.RetryConfig{})}
		if secret {
			o = append(o, otlploggrpc.WithTLSCredentials(credentials.NewTLS(t)))
		}
		return otlploggrpc.New(ctx, o...)
	}
	return nil, fmt.Errorf("protocol %q is neither http nor grpc", c.Protocol)
}
