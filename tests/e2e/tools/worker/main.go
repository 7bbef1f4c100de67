// Worker serves the trivial policies as a worker of the gateway's own protocol (protos/README.md): by
// stream, by single calls, with health and draining.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"admission-gateway/tests/e2e/tools/policy"
	pb "admission-gateway/tests/e2e/tools/workerpb"
)

// The contract's limit for a message, either way.
const maxMessage = 8 << 20

// grace is for calls in flight after the worker gets a stop signal, and for streams to become quiet.
const grace = 10 * time.Second

type policyWorker struct {
	pb.UnimplementedPolicyWorkerServer
	draining context.Context
}

func (*policyWorker) ListPolicies(context.Context, *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	list := new(pb.ListPoliciesResponse)
	for _, name := range slices.Sorted(maps.Keys(policy.All)) {
		list.Policies = append(list.Policies, &pb.Policy{Name: name, Mutating: true})
	}
	return list, nil
}

func (*policyWorker) Review(_ context.Context, call *pb.ReviewRequest) (*pb.ReviewResponse, error) {
	asked, known := policy.All[call.Policy]
	if !known {
		return nil, status.Error(codes.NotFound, unknown(call.Policy))
	}
	request, err := policy.Decode(call.AdmissionRequest)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return evaluate(asked, request), nil
}

func evaluate(asked policy.Policy, request *policy.Request) *pb.ReviewResponse {
	message, patch := asked.Answer(request)
	if message != "" {
		return &pb.ReviewResponse{
			Status: &pb.Status{Code: http.StatusForbidden, Reason: "Forbidden", Message: message},
		}
	}
	return &pb.ReviewResponse{Allowed: true, Patch: patch}
}

func unknown(name string) string {
	served := strings.Join(slices.Sorted(maps.Keys(policy.All)), ", ")
	return fmt.Sprintf("policy %q is not served here; served are: %s", name, served)
}

// listenOn binds HOST:PORT or unix:PATH. The socket file of a worker that was killed is replaced.
func listenOn(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	if connection, err := net.Dial("unix", path); err == nil {
		connection.Close()
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:0", "HOST:PORT (port 0 takes a free one) or unix:PATH")
	flag.Parse()
	listener, err := listenOn(*listen)
	if err != nil {
		log.Fatalf("worker: %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		// The gateway pings every 30 s, also without calls; gRPC's default would end its connection for that.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	healthy := health.NewServer()
	healthy.SetServingStatus(pb.PolicyWorker_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, healthy)
	pb.RegisterPolicyWorkerServer(server, &policyWorker{draining: ctx})

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	bound := listener.Addr().String()
	if listener.Addr().Network() == "unix" {
		bound = "unix:" + bound
	}
	fmt.Printf("worker: policies on %s\n", bound)
	select {
	case err := <-failed:
		log.Fatalf("worker: %v", err)
	case <-ctx.Done():
	}
	healthy.Shutdown()
	time.AfterFunc(grace, server.Stop)
	server.GracefulStop()
}
