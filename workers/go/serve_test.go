package worker

import (
	"context"
	"io"
	"log"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// patience is how long a test waits for what has to happen.
const patience = time.Minute

var fourMebibytes = strings.Repeat("x", 4<<20)

var plaintext = insecure.NewCredentials()

// probe is a server whose policies a test can watch and steer.
type probe struct {
	*Server
	gate    chan struct{}
	started chan struct{}
	stopped chan error
}

func newProbe() *probe {
	p := &probe{
		Server: NewServer(), gate: make(chan struct{}),
		started: make(chan struct{}, 10_000), stopped: make(chan error, 10_000),
	}
	p.LogTo(log.New(io.Discard, "", 0))
	p.Policy("allow", "Allows.", func(context.Context, *Review) error { return nil })
	p.Policy("deny", "Denies.", func(context.Context, *Review) error { return Deny("no") })
	p.Policy("look", "Looks.", func(_ context.Context, review *Review) error {
		review.Object()
		return nil
	})
	p.Policy("panic", "Panics.", func(context.Context, *Review) error { panic("bang") })
	p.Policy("wait", "Waits until told to go on, or not to.", func(ctx context.Context, _ *Review) error {
		p.started <- struct{}{}
		select {
		case <-p.gate:
			return nil
		case <-ctx.Done():
			p.stopped <- ctx.Err()
			return ctx.Err()
		}
	})
	p.Policy("deaf", "Waits until told to go on.", func(context.Context, *Review) error {
		p.started <- struct{}{}
		<-p.gate
		return nil
	})
	p.MutatingPolicy("large", "Answers four mebibytes.", func(_ context.Context, review *Review) error {
		review.SetPatch(Operation{Op: "add", Path: "/x", Value: fourMebibytes})
		return nil
	})
	return p
}

// serve starts it on a port of its own and returns a client; both end with the test.
func (p *probe) serve(t *testing.T) pb.PolicyWorkerClient {
	t.Helper()
	addresses, err := p.Start(Options{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	t.Cleanup(func() {
		once.Do(func() { close(p.gate) })
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Stop(ctx)
	})
	return pb.NewPolicyWorkerClient(dial(t, addresses[0], plaintext))
}

func dial(t *testing.T, address string, secret credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(
		address, grpc.WithTransportCredentials(secret),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(2*maxMessageBytes)),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// wanted waits for something to come by a channel.
func wanted[T any](t *testing.T, channel <-chan T) T {
	t.Helper()
	select {
	case found := <-channel:
		return found
	case <-time.After(patience):
		t.Fatal("it did not happen")
		panic("unreachable")
	}
}

// batches is the client's side of a stream.
type batches struct {
	pb.PolicyWorker_ReviewStreamClient
	t *testing.T
}

func open(t *testing.T, client pb.PolicyWorkerClient) *batches {
	t.Helper()
	opened, err := client.ReviewStream(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return &batches{opened, t}
}

func asked(id uint64, policy string) *pb.Call {
	return &pb.Call{Id: id, Policy: policy, TimeoutMillis: 60_000}
}

// ask sends calls that share a payload.
func (b *batches) ask(calls ...*pb.Call) {
	b.t.Helper()
	b.send(&pb.ReviewBatch{Payloads: []*pb.Payload{{AdmissionRequest: []byte(podRequest)}}, Calls: calls})
}

func (b *batches) send(batch *pb.ReviewBatch) {
	b.t.Helper()
	if err := b.Send(batch); err != nil {
		b.t.Fatal(err)
	}
}

// verdicts receives as many verdicts, by id.
func (b *batches) verdicts(count int) map[uint64]*pb.Verdict {
	b.t.Helper()
	found := make(map[uint64]*pb.Verdict)
	for len(found) < count {
		batch, err := b.Recv()
		if err != nil {
			b.t.Fatalf("%v after %d of %d verdicts", err, len(found), count)
		}
		for _, verdict := range batch.Verdicts {
			if found[verdict.Id] != nil {
				b.t.Errorf("a second verdict for %d", verdict.Id)
			}
			found[verdict.Id] = verdict
		}
	}
	if len(found) > count {
		b.t.Errorf("%d verdicts, expected %d", len(found), count)
	}
	return found
}

// end receives what is left and returns how the stream ended, and how many verdicts there were.
func (b *batches) end() (error, int) {
	b.t.Helper()
	count := 0
	for {
		batch, err := b.Recv()
		if err == io.EOF {
			return nil, count
		}
		if err != nil {
			return err, count
		}
		count += len(batch.Verdicts)
	}
}
