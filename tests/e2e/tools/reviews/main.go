// Reviews posts one AdmissionReview again and again to a webhook, from some clients at once, over HTTP/1.1 or
// HTTP/2, with net/http set up as client-go does, and prints counts, latencies and its own CPU time as JSON.
//
// It is the part of kube-apiserver that calls webhooks, without the rest: for a loopback URL an API server uses
// HTTP/2 if the server offers it, with all calls on one connection.
package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

type report struct {
	Protocol string  `json:"protocol"`
	Reviews  int     `json:"reviews"`
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	CPU      float64 `json:"cpu_s"`
}

func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func post(client *http.Client, url string, review []byte) (string, error) {
	response, err := client.Post(url, "application/json", bytes.NewReader(review))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", response.Status, body)
	}
	return response.Proto, err
}

func main() {
	log.SetFlags(0)
	url := flag.String("url", "", "webhook, https://HOST:PORT/PATH")
	file := flag.String("review", "", "JSON `file` with an AdmissionReview")
	clients := flag.Int("clients", 1, "reviews in flight")
	seconds := flag.Float64("seconds", 2, "how long to measure, after half a second of warm-up")
	http1 := flag.Bool("http1", false, "HTTP/1.1, a connection for each client, as with GODEBUG=http2client=0")
	flag.Parse()
	review, err := os.ReadFile(*file)
	if err != nil {
		log.Fatal(err)
	}
	transport := &http.Transport{
		// The certificate is one that the server has just made.
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: *clients,
		Protocols:           new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(*http1)
	transport.Protocols.SetHTTP2(!*http1)
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	protocol, err := post(client, *url, review)
	if err != nil {
		log.Fatal(err)
	}
	var group sync.WaitGroup
	begin := time.Now().Add(500 * time.Millisecond)
	end := begin.Add(time.Duration(*seconds * float64(time.Second)))
	latencies := make([][]time.Duration, *clients)
	for number := range *clients {
		group.Go(func() {
			for {
				sent := time.Now()
				if sent.After(end) {
					return
				}
				if _, err := post(client, *url, review); err != nil {
					log.Fatal(err)
				}
				if sent.After(begin) {
					latencies[number] = append(latencies[number], time.Since(sent))
				}
			}
		})
	}
	time.Sleep(time.Until(begin))
	before := cpu()
	fmt.Fprintln(os.Stderr, "begin")
	time.Sleep(time.Until(end))
	fmt.Fprintln(os.Stderr, "end")
	used := cpu() - before
	group.Wait()
	all := slices.Concat(latencies...)
	slices.Sort(all)
	at := func(share float64) float64 { return all[int(share*float64(len(all)-1))].Seconds() * 1000 }
	found := report{protocol, len(all), *seconds, at(0.5), at(0.99), used}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}
