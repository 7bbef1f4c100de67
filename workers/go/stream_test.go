package worker

import (
	"bytes"
	"context"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const unserved = `policy "nobody" is not served here; served are: allow, deaf, deny, large, look, panic, wait`

func TestStreamAnswersEachCallByItsID(t *testing.T) {
	stream := open(t, newProbe().serve(t))
	stream.ask(
		asked(0, "allow"), asked(math.MaxUint64, "deny"), asked(1<<53+1, "panic"), asked(7, "nobody"),
		&pb.Call{Id: 8, Policy: "allow", Payload: 1, TimeoutMillis: 1000}, &pb.Call{Id: 9, Policy: "allow"},
	)
	found := stream.verdicts(6)
	if !found[0].GetResponse().GetAllowed() || found[math.MaxUint64].GetResponse().GetStatus().GetMessage() != "no" {
		t.Errorf("verdicts %v", found)
	}
	for id, want := range map[uint64]*pb.Error{
		1<<53 + 1: {Code: int32(codes.Internal), Message: "bang"},
		7:         {Code: int32(codes.NotFound), Message: unserved},
		8:         {Code: int32(codes.InvalidArgument), Message: "the call is for payload 1, the batch has 1"},
		9:         {Code: int32(codes.DeadlineExceeded), Message: "the deadline passed before the policy answered"},
	} {
		if got := found[id].GetError(); got.GetCode() != want.Code || got.GetMessage() != want.Message {
			t.Errorf("%d: got %v, expected %v", id, got, want)
		}
	}
	stream.CloseSend()
	if err, _ := stream.end(); err != nil {
		t.Error(err)
	}
}

// A policy may not come back at all.
func TestAPolicyThatEndsItsGoroutineHasFailed(t *testing.T) {
	probe := newProbe()
	probe.Policy("exit", "Exits.", func(context.Context, *Review) error {
		runtime.Goexit()
		return nil
	})
	client := probe.serve(t)
	if _, err := review(soon(t), client, "exit", "{}"); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	stream := open(t, client)
	stream.ask(asked(1, "exit"), asked(2, "allow"))
	found := stream.verdicts(2)
	if codes.Code(found[1].GetError().GetCode()) != codes.Internal || !found[2].GetResponse().GetAllowed() {
		t.Errorf("got %v", found)
	}
}

func TestPoliciesThatNeverReturnAreBounded(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	for first := uint64(0); first <= maxRunning; first += maxInFlight {
		batch := &pb.ReviewBatch{Payloads: []*pb.Payload{{}}}
		for id := first; id < first+maxInFlight; id++ {
			batch.Calls = append(batch.Calls, &pb.Call{Id: id, Policy: "deaf", TimeoutMillis: 1000})
		}
		stream.send(batch)
		want := codes.ResourceExhausted
		if first < maxRunning {
			want = codes.DeadlineExceeded
			for range maxInFlight {
				wanted(t, probe.started)
			}
		}
		for id, verdict := range stream.verdicts(maxInFlight) {
			if codes.Code(verdict.GetError().GetCode()) != want {
				t.Fatalf("%d: got %v, expected %v", id, verdict, want)
			}
		}
	}
}

// A policy that waits, and one that does not listen, both in the middle of others.
func TestStreamAnswersOthersWhileAPolicyTakesItsTime(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "allow"), asked(2, "wait"), asked(3, "allow"), asked(4, "deaf"), asked(5, "allow"))
	stream.ask(asked(6, "deaf"), asked(7, "allow"))
	found := stream.verdicts(4)
	for _, id := range []uint64{1, 3, 5, 7} {
		if found[id] == nil {
			t.Errorf("no verdict for %d", id)
		}
	}
	stream.CloseSend()
	for range 3 {
		probe.gate <- struct{}{}
	}
	if err, count := stream.end(); err != nil || count != 3 {
		t.Error(err, count)
	}
}

func TestStreamTakes4096CallsThatWaitAndNoMore(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	calls := make([]*pb.Call, maxInFlight+3)
	for index := range calls {
		calls[index] = asked(uint64(index), "wait")
	}
	stream.ask(calls...)
	for _, verdict := range stream.verdicts(3) {
		if got := verdict.GetError(); codes.Code(got.GetCode()) != codes.ResourceExhausted ||
			got.GetMessage() != "4096 calls of this stream are in flight" {
			t.Errorf("got %v", verdict)
		}
	}
	for range maxInFlight {
		wanted(t, probe.started)
	}
	for range maxInFlight {
		probe.gate <- struct{}{}
	}
	stream.verdicts(maxInFlight)
}

func TestStreamEndsCallsAtTheirDeadline(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	for index, policy := range []string{"wait", "deaf"} {
		sent := time.Now()
		stream.ask(&pb.Call{Id: uint64(index), Policy: policy, TimeoutMillis: 50})
		got := stream.verdicts(1)[uint64(index)].GetError()
		if codes.Code(got.GetCode()) != codes.DeadlineExceeded || got.GetMessage() != tooLate().err.Message {
			t.Errorf("%s: got %v", policy, got)
		}
		if took := time.Since(sent); took < 50*time.Millisecond {
			t.Errorf("%s: the deadline of 50 ms passed after %v", policy, took)
		}
	}
	if err := wanted(t, probe.stopped); err != context.DeadlineExceeded {
		t.Errorf("the policy was told %v", err)
	}
}

func TestStreamCancelsCalls(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "wait"), asked(2, "wait"), asked(3, "deaf"))
	wanted(t, probe.started)
	wanted(t, probe.started)
	wanted(t, probe.started)
	stream.send(&pb.ReviewBatch{
		Payloads: []*pb.Payload{{}}, Calls: []*pb.Call{asked(4, "wait"), asked(5, "allow")}, Cancelled: []uint64{1, 3, 4, 99},
	})
	if err := wanted(t, probe.stopped); err != context.Canceled {
		t.Errorf("the policy was told %v", err)
	}
	stream.verdicts(1)
	stream.ask(asked(1, "allow")) // the id is free again
	stream.verdicts(1)
	stream.CloseSend()
	probe.gate <- struct{}{}
	probe.gate <- struct{}{}
	if err, count := stream.end(); err != nil || count != 1 {
		t.Error(err, count)
	}
	if len(probe.started) > 0 {
		t.Error("a call that was cancelled in its own batch was run")
	}
}

// The verdicts are more than a gateway that does not read has room for.
func TestStreamCancelsCallsOfAGatewayThatDoesNotRead(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "wait"), asked(2, "large"))
	wanted(t, probe.started)
	calls := make([]*pb.Call, 2000)
	for index := range calls {
		calls[index] = asked(uint64(index+3), strings.Repeat("x", maxErrorBytes))
	}
	stream.ask(calls...)
	stream.send(&pb.ReviewBatch{Cancelled: []uint64{1}})
	if err := wanted(t, probe.stopped); err != context.Canceled {
		t.Errorf("the policy was told %v", err)
	}
}

func TestStreamThatGoesAwayCancelsItsCalls(t *testing.T) {
	probe := newProbe()
	client := probe.serve(t)
	ctx, cancel := context.WithCancel(soon(t))
	stream, err := client.ReviewStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	(&batches{stream, t}).ask(asked(1, "wait"), asked(2, "wait"))
	wanted(t, probe.started)
	wanted(t, probe.started)
	cancel()
	wanted(t, probe.stopped)
	wanted(t, probe.stopped)
}

func TestStreamEndsWhereAnIDIsUsedTwice(t *testing.T) {
	probe := newProbe()
	client := probe.serve(t)
	other := open(t, client)
	stream := open(t, client)
	stream.ask(asked(5, "wait"))
	stream.ask(asked(5, "allow"))
	err, _ := stream.end()
	if found := status.Convert(err); found.Code() != codes.InvalidArgument ||
		found.Message() != "call id 5 is used again while its call is in flight" {
		t.Error(err)
	}
	wanted(t, probe.stopped)
	other.ask(asked(5, "allow"))
	other.verdicts(1)
}

// bytesCodec sends what is no message.
type bytesCodec struct{ encoding.Codec }

func (bytesCodec) Marshal(value any) ([]byte, error) { return value.([]byte), nil }
func (bytesCodec) Unmarshal([]byte, any) error       { return nil }
func (bytesCodec) Name() string                      { return "proto" }

func TestGarbageEndsItsStreamOnly(t *testing.T) {
	probe := newProbe()
	addresses, err := probe.Start(Options{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Stop(soon(t))
	connection := dial(t, addresses[0], plaintext)
	client := pb.NewPolicyWorkerClient(connection)
	other := open(t, client)
	garbage := bytes.Repeat([]byte{0xff}, 40)
	stream, err := connection.NewStream(
		soon(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		pb.PolicyWorker_ReviewStream_FullMethodName, grpc.ForceCodec(bytesCodec{}),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(garbage); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(nil); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	err = connection.Invoke(soon(t), pb.PolicyWorker_Review_FullMethodName, garbage, nil, grpc.ForceCodec(bytesCodec{}))
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	other.ask(asked(1, "allow"))
	other.verdicts(1)
	_ = other.CloseSend()
}

func TestStreamRefusesABatchOverTheLimit(t *testing.T) {
	stream := open(t, newProbe().serve(t))
	_ = stream.Send(&pb.ReviewBatch{Payloads: []*pb.Payload{{AdmissionRequest: make([]byte, maxMessageBytes)}}})
	if err, _ := stream.end(); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

// The client's limit is 8 MiB as well, so that one message for all would end the stream.
func TestVerdictsThatDoNotFitGoInSeveralMessages(t *testing.T) {
	stream := open(t, newProbe().serve(t))
	stream.ask(asked(1, "large"), asked(2, "large"), asked(3, "allow"), asked(4, "large"))
	found := stream.verdicts(4)
	if got := len(found[1].GetResponse().GetPatch()); got < 4_000_000 {
		t.Errorf("the patch has %d bytes", got)
	}
}

// Each call of a slow policy has a goroutine of its own.
func TestVerdictsOfASlowPolicyShareMessages(t *testing.T) {
	const count = 1000
	probe := newCounter()
	probe.set.policies[0].isSlow.Store(true)
	stream := open(t, probe.serve(t))
	calls := make([]*pb.Call, count)
	for index := range calls {
		calls[index] = asked(uint64(index+1), probe.set.policies[0].name)
	}
	stream.ask(calls...)
	messages := 0
	for verdicts := 0; verdicts < count; messages++ {
		batch, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		verdicts += len(batch.Verdicts)
	}
	if messages > count/4 {
		t.Errorf("%d messages for %d calls", messages, count)
	}
}

// A gateway that sends without ever reading is not read from for ever: of 40 MiB that make as many of verdicts,
// a message of verdicts may wait, and what the windows hold.
func TestStreamStopsReadingWhileVerdictsWait(t *testing.T) {
	const batches, calls = 200, 100
	stream := open(t, newProbe().serve(t))
	nobody := strings.Repeat("x", maxErrorBytes)
	var taken atomic.Int64
	sent := make(chan error, 1)
	go func() {
		var err error
		for number := 0; number < batches && err == nil; number++ {
			batch := &pb.ReviewBatch{}
			for index := range calls {
				batch.Calls = append(batch.Calls, asked(uint64(number*calls+index), nobody))
			}
			err = stream.Send(batch)
			taken.Add(1)
		}
		sent <- err
	}()
	for before := int64(-1); before != taken.Load(); {
		before = taken.Load()
		time.Sleep(500 * time.Millisecond)
	}
	if taken.Load() == batches {
		t.Error("all batches were taken")
	}
	stream.verdicts(batches * calls)
	if err := wanted(t, sent); err != nil {
		t.Error(err)
	}
}
