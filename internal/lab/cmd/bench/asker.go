package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// asker asks the API, straight or through something that puts the key on.
type asker struct {
	base   string
	header http.Header
	client *http.Client
}

// askStraight holds the key, and speaks TLS to the API at its other address.
func askStraight() *asker {
	t := &http.Transport{
		TLSClientConfig: clientTLS(), ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, fmt.Sprintf("%s:%d", directAddr, apiPort))
		},
	}
	return &asker{apiURL, http.Header{"X-Api-Key": {apiKey}}, &http.Client{Transport: t}}
}

// askThrough is told a gateway's address and the headers that it wants, as "URL NAME=VALUE…". Without, the environment
// has the broker's, as for all that asks Anthropic's API.
func askThrough(through string) *asker {
	if through == "" {
		through = os.Getenv("ANTHROPIC_BASE_URL") + " X-Api-Key=" + os.Getenv("ANTHROPIC_AUTH_TOKEN")
	}
	base, headers, _ := strings.Cut(through, " ")
	a := &asker{base, http.Header{}, &http.Client{Transport: &http.Transport{}}}
	for _, h := range strings.Fields(headers) {
		name, value, _ := strings.Cut(h, "=")
		a.header.Set(name, value)
	}
	return a
}

// ask returns the answer once its first byte has come, and how long that took.
func (a *asker) ask(body []byte) (io.ReadCloser, time.Duration, error) {
	req, err := http.NewRequest(http.MethodPost, a.base+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	req.Header = a.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	begun := time.Now()
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	first := make([]byte, 1)
	_, err = io.ReadFull(resp.Body, first)
	took := time.Since(begun)
	if err == nil && resp.StatusCode != http.StatusOK {
		rest, _ := io.ReadAll(resp.Body) // as much as there is of an error
		err = fmt.Errorf("%s answers %s: %s%s", a.base, resp.Status, first, rest)
	}
	if err != nil {
		resp.Body.Close()
		return nil, 0, err
	}
	return resp.Body, took, nil
}

// first measures the time to the first byte of a stream, and reads the rest.
func (a *asker) first(body []byte) (time.Duration, error) {
	answer, took, err := a.ask(body)
	if err != nil {
		return 0, err
	}
	defer answer.Close()
	_, err = io.Copy(io.Discard, answer)
	return took, err
}

// request is one in which a conversation of so many KiB has gone before.
func request(model string, kib int) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	line := "\tif err := f(\"a value\"); err != nil { // what a line of source text is like\n\t\treturn err\n\t}\n"
	messages := []message{}
	for i := range kib {
		messages = append(messages, message{[]string{"user", "assistant"}[i%2], strings.Repeat(line, 1024/len(line))})
	}
	messages = append(messages, message{"user", "go on"})
	body, err := json.Marshal(map[string]any{"model": model, "max_tokens": 1024, "stream": true, "messages": messages})
	if err != nil {
		panic(err) // of strings and numbers
	}
	return body
}

// runAsker does one thing, both ways in turns if it is timed.
func runAsker(what, through string, n int) (any, error) {
	straight, by := askStraight(), askThrough(through)
	switch what {
	case "ask-first":
		body := request(firstModel, 0)
		return inTurns(n, func() (time.Duration, error) { return straight.first(body) }, func() (time.Duration, error) { return by.first(body) })
	case "ask-hold":
		return nil, by.hold(n)
	}
	return nil, fmt.Errorf("no client %q", what)
}

// hold opens n streams and reads them until it is killed.
func (a *asker) hold(n int) error {
	errs := make(chan error)
	opened := make(chan struct{}, n)
	for range n {
		go func() {
			answer, _, err := a.ask(request(slowModel, longRequest))
			if err == nil {
				opened <- struct{}{}
				if _, err = io.Copy(io.Discard, answer); err == nil {
					err = errors.New("a stream has ended")
				}
			}
			errs <- err
		}()
		time.Sleep(time.Millisecond) // as many agents begin: not all in the same instant
	}
	for range n {
		select {
		case <-opened:
		case err := <-errs:
			return err
		}
	}
	fmt.Println("holding")
	return <-errs // or until the box ends
}
