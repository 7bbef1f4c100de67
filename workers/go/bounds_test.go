package worker

import (
	"context"
	"fmt"
	"math/rand"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// bounded is a probe on which several clients, each with a connection, can call.
type bounded struct {
	*probe
	address string
}

func newBounded(t *testing.T, probe *probe) *bounded {
	t.Helper()
	probe.serve(t)
	return &bounded{probe, probe.serving.addresses[0]}
}

func (b *bounded) client(t *testing.T) pb.PolicyWorkerClient {
	return pb.NewPolicyWorkerClient(dial(t, b.address, plaintext))
}

func (b *bounded) limits() *limits { return b.serving.service.limits }

// waiters returns how many calls wait for their turn.
func (t *turns) waiters() (count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, asking := range t.ring {
		count += asking.waiting.Len()
	}
	return count
}

// isIdle returns whether no call is evaluated or waits.
func (t *turns) isIdle() bool {
	waiting := t.waiters()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used == 0 && waiting == 0
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// large is a request of so many bytes.
func large(bytes int) []byte {
	return fmt.Appendf(nil, `{"object":{"metadata":{"name":"web"},"x":"%s"}}`, strings.Repeat("x", bytes))
}

func waits(first, count uint64, timeoutMillis uint32) (calls []*pb.Call) {
	for id := first; id < first+count; id++ {
		calls = append(calls, &pb.Call{Id: id, Policy: "wait", TimeoutMillis: timeoutMillis})
	}
	return calls
}

func TestTheBytesThatAreEvaluatedAreBounded(t *testing.T) {
	server := newBounded(t, newProbe())
	stream, other := open(t, server.client(t)), open(t, server.client(t))
	stream.send(&pb.ReviewBatch{Payloads: []*pb.Payload{{AdmissionRequest: large(1 << 20)}}, Calls: waits(1, 64, 60_000)})
	// A connection gets half of what the others leave.
	const most = maxEvaluatedBytes / 2 >> 20
	for range most - 1 {
		wanted(t, server.started)
	}
	eventually(t, "the other calls do not wait", func() bool { return server.limits().evaluated.waiters() == 64-(most-1) })
	if len(server.started) > 0 {
		t.Error("more calls have begun")
	}
	// Another connection is served at once, as are further messages of the stream.
	other.ask(asked(1, "look"))
	other.verdicts(1)
	if _, err := review(soon(t), server.client(t), "look", podRequest); err != nil {
		t.Error(err)
	}
	stream.send(&pb.ReviewBatch{Cancelled: []uint64{63, 64}})
	eventually(t, "cancelled calls wait", func() bool { return server.limits().evaluated.waiters() == 62-(most-1) })
	for range 62 {
		server.gate <- struct{}{}
	}
	stream.verdicts(62)
	// A call gives its bytes back after its verdict.
	eventually(t, "bytes are evaluated at the end", server.limits().evaluated.isIdle)
}

func TestCallsThatWaitForTheirTurnExpire(t *testing.T) {
	server := newBounded(t, newProbe())
	client := server.client(t)
	stream := open(t, client)
	for id := uint64(1); id <= 3; id++ {
		stream.send(&pb.ReviewBatch{Payloads: []*pb.Payload{{AdmissionRequest: large(7 << 20)}}, Calls: waits(id, 1, 60_000)})
	}
	wanted(t, server.started)
	wanted(t, server.started)
	eventually(t, "the third call does not wait", func() bool { return server.limits().evaluated.waiters() == 1 })
	stream.send(&pb.ReviewBatch{Payloads: []*pb.Payload{{AdmissionRequest: large(1 << 20)}}, Calls: waits(4, 40, 20)})
	for id, verdict := range stream.verdicts(40) {
		if verdict.GetError().GetMessage() != tooLate().err.Message {
			t.Errorf("%d: got %v", id, verdict)
		}
	}
	ctx, cancel := context.WithTimeout(soon(t), 20*time.Millisecond)
	defer cancel()
	if _, err := client.Review(ctx, &pb.ReviewRequest{Policy: "wait", AdmissionRequest: large(7 << 20)}); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	if len(server.started) > 0 {
		t.Error("a call has begun after its deadline")
	}
	eventually(t, "calls that have ended wait", func() bool { return server.limits().evaluated.waiters() == 1 })
}

// Of one message; each call that was evaluated beside the others would have parsed the payload again.
func TestManyMutatingCallsOnOnePayloadTakeLittleMemory(t *testing.T) {
	const calls = 300
	probe := newProbe()
	probe.MutatingPolicy("touch", "", func(_ context.Context, review *Review) error {
		review.Object()["metadata"] = map[string]any{"name": "db"}
		return nil
	})
	server := newBounded(t, probe)
	// On a busy machine, a quick policy takes long.
	server.limits().watchInterval = time.Hour
	stream := open(t, server.client(t))
	batch := &pb.ReviewBatch{Payloads: []*pb.Payload{{AdmissionRequest: []byte(
		`{"object":{"metadata":{},"list":[` + strings.Repeat(`{"a":{"b":"c"}},`, 4000) + `{}]}}`,
	)}}}
	for id := uint64(1); id <= calls; id++ {
		batch.Calls = append(batch.Calls, asked(id, "touch"))
	}
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	var most atomic.Uint64
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
				metrics.Read(heap)
				most.Store(max(most.Load(), heap[0].Value.Uint64()))
			}
		}
	}()
	stream.send(batch)
	stream.verdicts(calls)
	close(ended)
	if most.Load() > 512<<20 {
		t.Errorf("the heap had %d MiB", most.Load()>>20)
	}
}

func TestAMessageOfTooManyElementsEndsItsStreamOnly(t *testing.T) {
	server := newBounded(t, newProbe())
	client := server.client(t)
	other := open(t, client)
	cancelled := make([]uint64, maxBatchParts+1)
	for index := range cancelled {
		cancelled[index] = 1 << 62
	}
	for want, batch := range map[string]*pb.ReviewBatch{
		"4097 payloads, expected at most 4096":      {Payloads: make([]*pb.Payload, maxBatchParts+1)},
		"8193 calls, expected at most 8192":         {Calls: make([]*pb.Call, 2*maxBatchParts+1)},
		"4097 cancelled ids, expected at most 4096": {Cancelled: cancelled},
		"257 parameters, expected at most 256":      {Parameters: make([]*pb.Parameters, maxParametersID+1)},
	} {
		for index := range batch.Payloads {
			batch.Payloads[index] = &pb.Payload{}
		}
		for index := range batch.Calls {
			batch.Calls[index] = &pb.Call{}
		}
		for index := range batch.Parameters {
			batch.Parameters[index] = &pb.Parameters{Id: 1}
		}
		stream := open(t, client)
		stream.send(batch)
		err, _ := stream.end()
		if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != "a ReviewBatch has "+want {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
	other.send(&pb.ReviewBatch{Cancelled: cancelled[1:]})
	other.ask(asked(1, "allow"))
	other.verdicts(1)
}

func TestTheFirst4096CallsOfABatchAreAnswered(t *testing.T) {
	stream := open(t, newProbe().serve(t))
	calls := make([]*pb.Call, 2*maxInFlight)
	for index := range calls {
		calls[index] = asked(uint64(index+1), "nobody")
	}
	stream.ask(calls...)
	for id, verdict := range stream.verdicts(len(calls)) {
		want := codes.NotFound
		if id > maxInFlight {
			want = codes.ResourceExhausted
		}
		if codes.Code(verdict.GetError().GetCode()) != want {
			t.Fatalf("%d: got %v", id, verdict)
		}
	}
}

// manyParameters fills a stream with what it may keep.
func manyParameters() *pb.ReviewBatch {
	batch := &pb.ReviewBatch{}
	for id := uint32(1); id <= 100; id++ {
		batch.Parameters = append(batch.Parameters, &pb.Parameters{Id: id, Json: make([]byte, maxParametersBytes)})
	}
	return batch
}

func TestTheStreamWithMostParametersIsEnded(t *testing.T) {
	server := newBounded(t, newProbe())
	server.limits().parameters.limit = 13 << 20
	client := server.client(t)
	honest := open(t, server.client(t))
	honest.send(&pb.ReviewBatch{Parameters: []*pb.Parameters{{Id: 1, Json: []byte("{}")}}})
	streams := []*batches{open(t, client), open(t, client)}
	for range 5 { // values that are replaced do not count
		streams[0].send(manyParameters())
	}
	streams[1].send(manyParameters())
	streams[0].ask(asked(1, "allow"))
	streams[0].verdicts(1)
	streams[1].ask(asked(1, "allow"))
	streams[1].verdicts(1)
	third := open(t, server.client(t))
	third.send(manyParameters())
	ended := make(chan error, 2)
	for _, stream := range streams {
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
	}
	err := wanted(t, ended)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "bytes of parameters") {
		t.Error(err)
	}
	for _, stream := range []*batches{honest, third} {
		stream.ask(asked(1, "allow"))
		stream.verdicts(1)
	}
}

func TestTheClientWithMostRequestsInFlightLosesThem(t *testing.T) {
	server := newBounded(t, newProbe())
	server.limits().received.limit = 4 << 20
	greedy, honest := open(t, server.client(t)), server.client(t)
	for id := uint64(1); id <= 3; id++ {
		greedy.send(&pb.ReviewBatch{Payloads: []*pb.Payload{{AdmissionRequest: large(1 << 20)}}, Calls: waits(id, 1, 60_000)})
		wanted(t, server.started)
	}
	if _, err := review(soon(t), honest, "allow", string(large(1<<20))); err != nil {
		t.Error(err)
	}
	err, _ := greedy.end()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "bytes of requests") {
		t.Error(err)
	}
	eventually(t, "bytes are kept at the end", func() bool {
		received := server.limits().received
		received.mu.Lock()
		defer received.mu.Unlock()
		return received.total == 0 && len(received.clients) == 0
	})
}

func TestTurnsKeepTheirLimitAndTheOrder(t *testing.T) {
	for seed := range int64(200) {
		random := rand.New(rand.NewSource(seed))
		tested := &turns{limit: 1 + random.Intn(50), isShared: random.Intn(2) == 0}
		clients := make([]*client, 1+random.Intn(4))
		for index := range clients {
			clients[index] = &client{}
		}
		var running []*waiter
		waiting := make(map[*client][]*waiter)
		left := 300
		for left > 0 || len(running) > 0 {
			switch of := clients[random.Intn(len(clients))]; {
			case left > 0 && random.Intn(3) > 0:
				left--
				weight := random.Intn(60)
				if asked := tested.ask(of, weight); asked != nil {
					waiting[of] = append(waiting[of], asked)
				} else {
					running = append(running, &waiter{of: of, weight: weight})
				}
			case random.Intn(8) == 0 && len(waiting[of]) > 0:
				last := len(waiting[of]) - 1
				tested.giveUp(waiting[of][last])
				waiting[of] = waiting[of][:last]
			case len(running) > 0:
				index := random.Intn(len(running))
				tested.give(running[index].of, running[index].weight)
				running = append(running[:index], running[index+1:]...)
			}
			for of, asked := range waiting {
				for len(asked) > 0 && asked[0].isTurn {
					running, asked = append(running, asked[0]), asked[1:]
				}
				waiting[of] = asked
				for _, later := range asked {
					if later.isTurn {
						t.Fatalf("seed %d: a call has overtaken another one of its client", seed)
					}
				}
			}
			used := 0
			for _, each := range running {
				used += each.weight
			}
			if used != tested.used || used > tested.limit && len(running) > 1 && running[0].weight < used {
				nonzero := 0
				for _, each := range running {
					nonzero += min(each.weight, 1)
				}
				if used != tested.used || nonzero > 1 {
					t.Fatalf("seed %d: %d are used, %d counted, of %d", seed, used, tested.used, tested.limit)
				}
			}
			if used == 0 && tested.waiters() > 0 {
				t.Fatalf("seed %d: calls wait for nothing", seed)
			}
		}
		if tested.waiters() != 0 || len(tested.ring) != 0 {
			t.Fatalf("seed %d: %d calls wait for ever", seed, tested.waiters())
		}
	}
}
