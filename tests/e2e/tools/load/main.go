// Load creates Pods at an API server from some clients at once and reports how that went, as one JSON object.
//
// Closed loop by default: each client sends its next create when it has the answer to the last. With --rate
// creates are begun on a schedule instead, and latency counts from the scheduled time, so that a stall is not
// hidden by the clients that wait for it.
//
// Every answer other than 2xx is an error, with when it came. Nothing is retried beyond what net/http does
// for client-go too (a connection that was closed before the request went out). SIGINT and SIGTERM end the
// load early; creates in flight are waited for and the report is still printed.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"
)

type options struct {
	server, ca, token, namespace, object, results string
	clients, count                                int
	seconds, warmup, rate                         float64
	timeout                                       time.Duration
	dryRun, http1                                 bool
}

func parse() (*options, error) {
	o := new(options)
	flag.StringVar(&o.server, "server", "", "`URL` of the API server, https://HOST:PORT")
	flag.StringVar(&o.ca, "ca", "", "PEM `file` with the CA of its certificate")
	flag.StringVar(&o.token, "token", "", "bearer token to send")
	flag.StringVar(&o.namespace, "namespace", "default", "namespace to create in")
	flag.StringVar(&o.object, "object", "", "JSON `file` with the Pod to create; it has a generateName")
	flag.StringVar(&o.results, "results", "", "`file` to write the report to, besides printing it")
	flag.IntVar(&o.clients, "clients", 32, "creates that may be in flight at once")
	flag.IntVar(&o.count, "count", 0, "creates to measure, in at most --seconds; 0: no bound but the time")
	flag.Float64Var(&o.seconds, "seconds", 6, "how long to measure, after the warm-up")
	flag.Float64Var(&o.warmup, "warmup", 0, "seconds of load before; errors count in it too")
	flag.Float64Var(&o.rate, "rate", 0, "creates per second to begin; 0: as many as are answered")
	flag.DurationVar(&o.timeout, "timeout", 40*time.Second, "for one create; the API server gives up after 34s")
	flag.BoolVar(&o.dryRun, "dry-run", false, "store nothing")
	flag.BoolVar(&o.http1, "http1", false, "HTTP/1.1, a connection per client, instead of one with HTTP/2 as client-go does")
	flag.Parse()
	switch {
	case o.server == "" || o.object == "":
		return nil, errors.New("--server and --object are needed")
	case o.clients < 1 || o.count < 0 || o.rate < 0 || o.seconds <= 0 || o.warmup < 0:
		return nil, errors.New("--clients and --seconds are above 0, --count, --rate and --warmup not below")
	case flag.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	return o, nil
}

// creates returns the request that is sent again and again, without its body, and the body.
func creates(o *options) (*http.Request, []byte, error) {
	body, err := os.ReadFile(o.object)
	if err != nil {
		return nil, nil, err
	}
	if !json.Valid(body) {
		return nil, nil, fmt.Errorf("%s: not JSON", o.object)
	}
	target := o.server + "/api/v1/namespaces/" + url.PathEscape(o.namespace) + "/pods"
	if o.dryRun {
		target += "?dryRun=All"
	}
	request, err := http.NewRequest(http.MethodPost, target, nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "admission-gateway-load")
	if o.token != "" {
		request.Header.Set("Authorization", "Bearer "+o.token)
	}
	request.ContentLength = int64(len(body))
	return request, body, nil
}

// newTransport is set up as client-go's, except that answers are never compressed.
func newTransport(o *options) (*http.Transport, error) {
	transport := &http.Transport{
		TLSClientConfig:     new(tls.Config),
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: o.clients,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	transport.Protocols.SetHTTP1(o.http1)
	transport.Protocols.SetHTTP2(!o.http1)
	if o.ca != "" {
		certificates, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(certificates) {
			return nil, fmt.Errorf("%s: no certificate in PEM", o.ca)
		}
	}
	return transport, nil
}

// write writes the report atomically, because another process may wait for the file.
func write(path string, report []byte) error {
	draft, err := os.CreateTemp(filepath.Dir(path), ".load-*")
	if err != nil {
		return err
	}
	_, err = draft.Write(report)
	if err := errors.Join(err, draft.Close()); err != nil {
		return errors.Join(err, os.Remove(draft.Name()))
	}
	return os.Rename(draft.Name(), path)
}

func run() error {
	o, err := parse()
	if err != nil {
		return err
	}
	request, body, err := creates(o)
	if err != nil {
		return err
	}
	transport, err := newTransport(o)
	if err != nil {
		return err
	}
	// The API server shares the cores: rather more memory than more garbage collection.
	debug.SetGCPercent(800)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once

	load := &load{options: o, transport: transport, request: request, body: body}
	report, err := json.Marshal(load.run(ctx))
	if err != nil {
		return err
	}
	report = append(report, '\n')
	if _, err := os.Stdout.Write(report); err != nil {
		return err
	}
	if o.results != "" {
		return write(o.results, report)
	}
	return nil
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatalf("load: %v", err)
	}
}
