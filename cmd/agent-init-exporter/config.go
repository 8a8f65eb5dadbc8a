package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
	switch c.Protocol {
	case "http":
		return otlploghttp.New(ctx, otlploghttp.WithEndpointURL(c.Endpoint), otlploghttp.WithHeaders(c.Headers), otlploghttp.WithTimeout(sendTime),
			otlploghttp.WithTLSClientConfig(t), otlploghttp.WithCompression(otlploghttp.GzipCompression), otlploghttp.WithRetry(otlploghttp.RetryConfig{}))
	case "grpc":
		return otlploggrpc.New(ctx, otlploggrpc.WithEndpointURL(c.Endpoint), otlploggrpc.WithHeaders(c.Headers), otlploggrpc.WithTimeout(sendTime),
			otlploggrpc.WithTLSCredentials(credentials.NewTLS(t)), otlploggrpc.WithCompressor("gzip"), otlploggrpc.WithRetry(otlploggrpc.RetryConfig{}))
	}
	return nil, fmt.Errorf("protocol %q is neither http nor grpc", c.Protocol)
}
