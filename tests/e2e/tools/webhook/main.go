// Webhook is one trivial admission webhook, as people write them with net/http alone: what the gateway is
// compared with.
//
// POST /NAME asks the policy of that name. Decoding is encoding/json into a small struct with the object as a
// map, without the types of k8s.io/api: the lightest honest choice, and the same that the worker makes. Names
// of policies are resolved by path, as a real server would.
//
// It speaks HTTP/1.1 only, which is what an API server uses towards a Service whatever it is offered.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

// The API server's own limit for a request is 3 MiB, and an update carries two objects.
const maxBody = 7 << 20

type admissionReview struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type response struct {
	UID       string  `json:"uid"`
	Allowed   bool    `json:"allowed"`
	Status    *status `json:"status,omitempty"`
	PatchType string  `json:"patchType,omitempty"`
	Patch     []byte  `json:"patch,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func answer(w http.ResponseWriter, r *http.Request) {
	asked, known := all[r.PathValue("name")]
	if !known {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var review admissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		http.Error(w, "not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	verdict := &response{UID: review.Request.UID, Allowed: true}
	message, patch := asked.answer(review.Request)
	if message != "" {
		verdict.Allowed = false
		verdict.Status = &status{http.StatusForbidden, "Forbidden", message}
	}
	if patch != nil {
		verdict.PatchType, verdict.Patch = "JSONPatch", patch
	}
	review.Request, review.Response = nil, verdict
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		log.Printf("answer not sent: %v", err)
	}
}

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:0", "HOST:PORT; port 0 takes a free one")
	certFile := flag.String("tls-cert", "", "PEM file with the certificate chain")
	keyFile := flag.String("tls-key", "", "PEM file with its private key")
	flag.Parse()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /{name}", answer)
	server := &http.Server{
		Handler:           mux,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: 30 * time.Second,
		// The API server closes idle connections after 90 s. A server that closes them earlier loses requests.
		IdleTimeout: 120 * time.Second,
	}
	server.Protocols.SetHTTP1(true)

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatalf("webhook: %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, *certFile, *keyFile) }()
	fmt.Printf("webhook: serving on https://%s\n", listener.Addr())
	select {
	case err := <-failed:
		log.Fatalf("webhook: %v", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		log.Fatalf("webhook: %v", err)
	}
}
