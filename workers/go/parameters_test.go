package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const schema = `{"type":"object"}`

// parametersProbe serves a policy that shows its parameters as a warning, and counts what it prepares.
func parametersProbe(t *testing.T) (pb.PolicyWorkerClient, *int) {
	t.Helper()
	probe, count := newProbe(), 0
	probe.Policy("show", "Shows its parameters.", func(_ context.Context, review *Review) error {
		review.Warn(review.Parameters().(string))
		return nil
	}, WithParameters(schema, func(text json.RawMessage) (any, error) {
		count++
		switch {
		case strings.Contains(string(text), "bad"):
			return nil, errors.New("no wine")
		case strings.Contains(string(text), "panic"):
			panic("bang")
		case strings.Contains(string(text), "exit"):
			runtime.Goexit()
		}
		return string(text), nil
	}))
	probe.Policy("quiet", "Allows.", func(context.Context, *Review) error { return nil },
		WithParameters(schema, func(json.RawMessage) (any, error) { return 1, nil }))
	return probe.serve(t), &count
}

func withParameters(id uint64, policy string, parameters uint32) *pb.Call {
	call := asked(id, policy)
	call.Parameters = parameters
	return call
}

func TestCallsGetTheParametersOfTheirID(t *testing.T) {
	client, count := parametersProbe(t)
	stream := open(t, client)
	stream.send(&pb.ReviewBatch{
		Payloads:   []*pb.Payload{{AdmissionRequest: []byte("{}")}},
		Calls:      []*pb.Call{withParameters(1, "show", 1), withParameters(2, "show", 256), withParameters(3, "show", 0)},
		Parameters: []*pb.Parameters{{Id: 1, Json: []byte(`{"a":1}`)}, {Id: 256, Json: []byte("{}")}},
	})
	found := stream.verdicts(3)
	stream.ask(withParameters(4, "show", 1))
	stream.send(&pb.ReviewBatch{
		Payloads:   []*pb.Payload{{AdmissionRequest: []byte("{}")}},
		Calls:      []*pb.Call{withParameters(5, "show", 1), withParameters(6, "quiet", 1)},
		Parameters: []*pb.Parameters{{Id: 1, Json: []byte(`{"a":2}`)}},
	})
	for id, verdict := range stream.verdicts(3) {
		found[id] = verdict
	}
	for id, want := range map[uint64]string{1: `{"a":1}`, 2: "{}", 3: "{}", 4: `{"a":1}`, 5: `{"a":2}`} {
		answer := found[id].GetResponse()
		if len(answer.GetWarnings()) != 1 || answer.Warnings[0] != want || answer.ParametersApplied != (id != 3) {
			t.Errorf("%d: got %v, expected %s", id, found[id], want)
		}
	}
	if answer := found[6].GetResponse(); !answer.GetAllowed() || !answer.GetParametersApplied() {
		t.Errorf("got %v", found[6])
	}
	// The webhook without parameters and that with {} have different texts.
	if *count != 4 {
		t.Errorf("prepared %d times", *count)
	}
}

func TestParametersThatCannotBeUsed(t *testing.T) {
	client, count := parametersProbe(t)
	stream := open(t, client)
	texts := map[uint64]string{
		1: `policy "allow" takes no parameters`,
		2: "parameters is to be a JSON object, found array",
		3: "the call has an id of parameters that this stream has not had",
		4: `the parameters of policy "show" cannot be used: no wine`,
		5: `the parameters of policy "show" cannot be used: no wine`,
		6: `the parameters of policy "show" cannot be used: bang`,
	}
	stream.send(&pb.ReviewBatch{
		Payloads: []*pb.Payload{{AdmissionRequest: []byte("{}")}},
		Calls: []*pb.Call{
			withParameters(1, "allow", 1), withParameters(2, "show", 2), withParameters(3, "show", 9),
			withParameters(4, "show", 3), withParameters(5, "show", 3), withParameters(6, "show", 4),
		},
		Parameters: []*pb.Parameters{
			{Id: 1, Json: []byte("{}")}, {Id: 2, Json: []byte("[]")}, {Id: 3, Json: []byte(`{"bad":1}`)},
			{Id: 4, Json: []byte(`{"panic":1}`)},
		},
	})
	for id, verdict := range stream.verdicts(6) {
		failed := verdict.GetError()
		if codes.Code(failed.GetCode()) != codes.InvalidArgument || failed.GetMessage() != texts[id] {
			t.Errorf("%d: got %v, expected %s", id, verdict, texts[id])
		}
	}
	if *count != 2 {
		t.Errorf("prepared %d times", *count)
	}
	_, err := client.Review(soon(t), &pb.ReviewRequest{Policy: "show", Parameters: []byte(`{"bad":1}`)})
	if got := status.Convert(err); got.Code() != codes.InvalidArgument || got.Message() != texts[4] {
		t.Error(err)
	}
	long := make([]byte, maxParametersBytes+1)
	_, err = client.Review(soon(t), &pb.ReviewRequest{Policy: "show", Parameters: long})
	if got := status.Convert(err).Message(); got != "the parameters have 65537 bytes, expected at most 65536" {
		t.Error(err)
	}
	answer, err := client.Review(soon(t), &pb.ReviewRequest{
		Policy: "show", AdmissionRequest: []byte("{}"), Parameters: []byte(`{"a":3}`),
	})
	if err != nil || answer.Warnings[0] != `{"a":3}` || !answer.ParametersApplied {
		t.Error(answer, err)
	}
}

// What CheckParameters says of a value is what the calls with it fail with.
func TestCheckParametersSaysWhyCallsWouldFail(t *testing.T) {
	client, count := parametersProbe(t)
	long := make([]byte, maxParametersBytes+1)
	for _, request := range []*pb.CheckParametersRequest{
		{Policy: "show", Parameters: []byte(`{"a":1}`)},
		{Policy: "show"},
		{Policy: "allow"},
		{Policy: "allow", Parameters: []byte("{}")},
		{Policy: "show", Parameters: []byte("[]")},
		{Policy: "show", Parameters: []byte("{")},
		{Policy: "show", Parameters: []byte(`{"bad":1}`)},
		{Policy: "show", Parameters: []byte(`{"panic":1}`)},
		{Policy: "show", Parameters: []byte(`{"exit":1}`)},
		{Policy: "show", Parameters: long},
	} {
		_, err := client.Review(soon(t), &pb.ReviewRequest{
			Policy: request.Policy, AdmissionRequest: []byte("{}"), Parameters: request.Parameters,
		})
		checked, checkErr := client.CheckParameters(soon(t), request)
		if want := status.Convert(err).Message(); checkErr != nil || checked.Problem != want {
			t.Errorf("%s with %.10q: got %q, %v, expected %q", request.Policy, request.Parameters, checked.GetProblem(), checkErr, want)
		}
	}
	if *count != 5 {
		t.Errorf("prepared %d times", *count)
	}
	_, err := client.CheckParameters(soon(t), &pb.CheckParametersRequest{Policy: "nobody"})
	if _, want := review(soon(t), client, "nobody", "{}"); status.Code(err) != codes.NotFound || err.Error() != want.Error() {
		t.Errorf("got %v, expected %v", err, want)
	}
}

// Who asks gets the text; a call that fails by it is logged, once for the value.
func TestCheckParametersLogsNothing(t *testing.T) {
	var logged bytes.Buffer
	served := &policy{name: "p", log: log.New(&logged, "", 0), prepare: func(json.RawMessage) (any, error) {
		return nil, errors.New("no wine")
	}}
	if served.checkValue(nil) != `the parameters of policy "p" cannot be used: no wine` || logged.Len() > 0 {
		t.Error(logged.String())
	}
	for range 2 {
		if served.takeParameters(&Review{payload: &payload{}}) == "" || strings.Count(logged.String(), "no wine") != 1 {
			t.Error(logged.String())
		}
	}
}

func TestParametersBeyondTheBoundsEndTheStream(t *testing.T) {
	client, _ := parametersProbe(t)
	for want, sent := range map[string]*pb.Parameters{
		"parameters have the id 0, expected 1 to 256":         {Json: []byte("{}")},
		"parameters have the id 257, expected 1 to 256":       {Id: 257},
		"parameters have 65537 bytes, expected at most 65536": {Id: 1, Json: make([]byte, 65537)},
	} {
		stream := open(t, client)
		stream.send(&pb.ReviewBatch{Parameters: []*pb.Parameters{sent}})
		if err, _ := stream.end(); status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != want {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
}

func TestTheLastUsedValuesAreKept(t *testing.T) {
	kept := &prepared{}
	first := kept.find([]byte("first"))
	for index := range 2 * maxPrepared {
		kept.find([]byte(fmt.Sprint(index)))
		if index < maxPrepared && kept.find([]byte("first")) != first {
			t.Fatal("a value that is used was dropped")
		}
	}
	if kept.recent.Len() != maxPrepared || len(kept.values) != maxPrepared || kept.find([]byte("first")) == first {
		t.Error(kept.recent.Len(), len(kept.values))
	}
}

func TestTheBytesOfPreparedValuesAreBounded(t *testing.T) {
	kept := &prepared{}
	number := maxPreparedBytes / maxParametersBytes
	long := func(index int) []byte { return fmt.Appendf(nil, "%*d", maxParametersBytes, index) }
	first := kept.find(long(0))
	for index := 1; index < number; index++ {
		kept.find(long(index))
	}
	if kept.find(long(0)) != first {
		t.Error("a value within the limit was dropped")
	}
	kept.find([]byte("{}"))
	if kept.find(long(0)) != first || kept.recent.Len() != number || len(kept.values) != number {
		t.Error(kept.recent.Len(), len(kept.values))
	}
	if _, ok := kept.values[string(long(1))]; ok || kept.bytes != (number-1)*maxParametersBytes+2 {
		t.Error(ok, kept.bytes)
	}
}

func TestRegistrationsOfParameters(t *testing.T) {
	client, _ := parametersProbe(t)
	listed, err := client.ListPolicies(soon(t), &pb.ListPoliciesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range listed.Policies {
		if want := map[string]string{"show": schema, "quiet": schema}[found.Name]; found.ParametersSchema != want {
			t.Errorf("%s: %q", found.Name, found.ParametersSchema)
		}
	}
	allow := func(context.Context, *Review) error { return nil }
	for want, option := range map[string]PolicyOption{
		"is not JSON": WithParameters("{", func(json.RawMessage) (any, error) { return 1, nil }),
		"no function": WithParameters("{}", nil),
	} {
		server := NewServer()
		server.Policy("p", "P.", allow, option)
		if _, err := server.Start(Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
	review, err := ParseReview([]byte("{}"), WithPrepared(7))
	if err != nil || review.Parameters() != 7 {
		t.Error(err)
	}
}
