package worker

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// stopping starts a stop and returns how it will have ended.
func stopping(probe *probe, grace time.Duration) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		ended <- probe.Stop(ctx)
	}()
	return ended
}

// notice waits for the gateway to be told, with no verdict beside it.
func (b *batches) notice() {
	b.t.Helper()
	batch, err := b.Recv()
	if err != nil || !batch.Draining || len(batch.Verdicts) > 0 {
		b.t.Fatal(batch, err)
	}
}

func TestDrainAnswersWhatIsInFlightAndWhatCrossedTheNotice(t *testing.T) {
	probe := newProbe()
	client := probe.serve(t)
	stream := open(t, client)
	stream.ask(asked(1, "wait"))
	wanted(t, probe.started)
	unary := make(chan error, 1)
	go func() {
		_, err := review(context.Background(), client, "wait", "{}")
		unary <- err
	}()
	wanted(t, probe.started)
	ended := stopping(probe, patience)
	stream.notice()
	stream.ask(asked(2, "allow"))
	stream.verdicts(1)
	probe.gate <- struct{}{}
	probe.gate <- struct{}{}
	if err := wanted(t, unary); err != nil {
		t.Error(err)
	}
	stream.verdicts(1)
	stream.CloseSend()
	if err, _ := stream.end(); err != nil {
		t.Error(err)
	}
	if err := wanted(t, ended); err != nil {
		t.Error(err)
	}
}

// A health watch of another client keeps the connection open meanwhile.
func TestDrainLetsTheLastAnswersBeRead(t *testing.T) {
	probe := newProbe()
	addresses, err := probe.Start(Options{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := healthpb.NewHealthClient(dial(t, addresses[0], plaintext)).Watch(soon(t), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	stream := open(t, pb.NewPolicyWorkerClient(dial(t, addresses[0], plaintext)))
	stream.ask(asked(1, "large"))
	stream.CloseSend()
	time.Sleep(300 * time.Millisecond) // until it is answered, of which only a quarter fits into the window
	ended := stopping(probe, patience)
	time.Sleep(300 * time.Millisecond)
	stream.verdicts(1)
	if err, _ := stream.end(); err != nil {
		t.Error(err)
	}
	if err := wanted(t, ended); err != nil {
		t.Error(err)
	}
}

func TestDrainEndsAStreamOnWhichNothingComes(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "allow"))
	stream.verdicts(1)
	began := time.Now()
	ended := stopping(probe, patience)
	stream.notice()
	if err, _ := stream.end(); err != nil {
		t.Error(err)
	}
	if quiet := time.Since(began); quiet < quietTime {
		t.Errorf("it ended after %v", quiet)
	}
	if err := wanted(t, ended); err != nil {
		t.Error(err)
	}
}

func TestDrainTakesNoStreamForQuietWhoseVerdictsAreNotRead(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "large"), asked(2, "large"), asked(3, "large"))
	stream.ask(asked(4, "allow")) // which waits until there is room for its verdict
	time.Sleep(300 * time.Millisecond)
	ended := stopping(probe, patience)
	time.Sleep(2 * quietTime)
	stream.verdicts(4)
	if err, _ := stream.end(); err != nil {
		t.Error(err)
	}
	if err := wanted(t, ended); err != nil {
		t.Error(err)
	}
}

func TestDrainCutsOffWhatIsLeftAfterTheGrace(t *testing.T) {
	probe := newProbe()
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "wait"), asked(2, "deaf"))
	wanted(t, probe.started)
	wanted(t, probe.started)
	ended := stopping(probe, 50*time.Millisecond)
	if err := wanted(t, ended); err != context.DeadlineExceeded {
		t.Error(err)
	}
	if err, _ := stream.end(); err == nil {
		t.Error("the stream ended as if all was well")
	}
	wanted(t, probe.stopped)
}

func TestHealthIsServedAndTurnsAtADrain(t *testing.T) {
	probe := newProbe()
	addresses, err := probe.Start(Options{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	client := healthpb.NewHealthClient(dial(t, addresses[0], plaintext))
	var watches []grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
	for _, service := range []string{"", pb.PolicyWorker_ServiceDesc.ServiceName} {
		request := &healthpb.HealthCheckRequest{Service: service}
		if answer, err := client.Check(soon(t), request); err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
			t.Error(answer, err)
		}
		watch, err := client.Watch(soon(t), request)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := watch.Recv(); err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
			t.Error(answer, err)
		}
		watches = append(watches, watch)
	}
	ended := stopping(probe, patience)
	for _, watch := range watches {
		if answer, err := watch.Recv(); err != nil || answer.Status != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Error(answer, err)
		}
	}
	// The watches go on, and do not keep it.
	if err := wanted(t, ended); err != nil {
		t.Error(err)
	}
}
