package worker

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const (
	// closeTime is the time for clients to read the last answers, and for idle connections to close.
	closeTime = 2 * time.Second
	// pingAfter and pingTimeout detect a lost gateway, whose calls are then cancelled.
	pingAfter   = 30 * time.Second
	pingTimeout = 10 * time.Second
	// minPingInterval is the permitted ping interval; gRPC's default is five minutes.
	minPingInterval = 10 * time.Second
	// windowBytes is the flow-control window of a call, of which gRPC keeps as much until the worker reads it; it widens
	// the window for a message that is longer. A fixed window also avoids the pings with which gRPC estimates its size.
	windowBytes = 64 * 1024
	// handshakeTime is the timeout of the HTTP/2 handshake.
	handshakeTime = 20 * time.Second
)

// serving is one running gRPC server.
type serving struct {
	service   *service
	health    *health.Server
	server    *grpc.Server
	addresses []string
	// metrics is nil if they are not served.
	metrics *metricsServer
	// sockets are the files of the unix sockets, as created.
	sockets map[string]os.FileInfo
}

func newServing(served *Set) *serving {
	return &serving{
		service: newService(served), health: health.NewServer(), sockets: make(map[string]os.FileInfo),
	}
}

func serverOptions(secret *tls.Config, limits *limits) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(maxMessageBytes),
		grpc.MaxConcurrentStreams(maxConnectionRPCs),
		grpc.InTapHandle(limits.open),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: minPingInterval, PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
	}
	protected := insecure.NewCredentials()
	if secret != nil {
		protected = credentials.NewTLS(secret)
	}
	return append(options, grpc.Creds(guarded{protected, limits}))
}

func (s *serving) start(options Options) error {
	secret, err := tlsConfig(options)
	if err != nil {
		return err
	}
	listen := options.Listen
	if len(listen) == 0 {
		listen = []string{DefaultListen}
	}
	var listeners []net.Listener
	closeAll := func() {
		for _, opened := range listeners {
			_ = opened.Close()
		}
		s.removeSockets()
	}
	for _, text := range listen {
		opened, err := s.listen(text)
		if err != nil {
			closeAll()
			return err
		}
		listeners = append(listeners, opened)
	}
	if options.MetricsListen != "" {
		if s.metrics, err = serveMetrics(options.MetricsListen, s.service.served.Load().policies); err != nil {
			closeAll()
			return err
		}
	}
	s.server = grpc.NewServer(serverOptions(secret, s.service.limits)...)
	s.server.RegisterService(description(), s.service)
	healthpb.RegisterHealthServer(s.server, s.health)
	s.health.SetServingStatus(pb.PolicyWorker_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	connections := &connections{limit: maxConnections, open: make(map[*client]struct{})}
	for _, opened := range listeners {
		// Serve returns when the server stops, or after an error of accept; calls on open connections continue
		// then.
		go func() { _ = s.server.Serve(listener{opened, connections}) }()
	}
	return nil
}

// replace serves other policies from now on.
func (s *serving) replace(served *Set) {
	s.metrics.count(served.policies)
	s.service.served.Store(served)
}

func (s *serving) listen(text string) (net.Listener, error) {
	at, err := parseAddress(text)
	if err != nil {
		return nil, err
	}
	listener, err := at.listen()
	if err != nil {
		return nil, err
	}
	if at.path != "" {
		if made, err := os.Stat(at.path); err == nil {
			s.sockets[at.path] = made
		}
	} else if bound, ok := listener.Addr().(*net.TCPAddr); ok {
		at.port = bound.Port
	}
	s.addresses = append(s.addresses, at.String())
	return listener, nil
}

// stop drains until ctx is done, then aborts the remaining calls.
func (s *serving) stop(ctx context.Context) error {
	s.health.Shutdown()
	s.service.drain()
	closing := make(chan struct{})
	go func() {
		s.server.GracefulStop()
		close(closing)
	}()
	defer s.removeSockets()
	defer s.metrics.stop()
	defer s.server.Stop()
	select {
	case <-s.service.idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Health watches never end by themselves.
	select {
	case <-closing:
	case <-time.After(closeTime):
	case <-ctx.Done():
	}
	return nil
}

// removeSockets removes the files, unless another worker has replaced them.
func (s *serving) removeSockets() {
	for path, made := range s.sockets {
		if found, err := os.Stat(path); err == nil && os.SameFile(found, made) {
			_ = os.Remove(path)
		}
	}
	clear(s.sockets)
}
