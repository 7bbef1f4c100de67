package worker

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

const (
	metricsPath = "/metrics"
	// metricsTimeout bounds a request, and maxMetricsConnections their number: the port has no authentication.
	metricsTimeout        = 5 * time.Second
	maxMetricsConnections = 16
	maxMetricsHeaderBytes = 8192
)

// metricsServer serves the metrics of a worker over HTTP.
type metricsServer struct {
	registry *prometheus.Registry
	// meters are by the name of their policy.
	meters  map[string]*meter
	metrics http.Handler
	server  http.Server
	address string
}

// serveMetrics listens on HOST:PORT, and counts the calls of the policies from now on.
func serveMetrics(text string, policies []*policy) (*metricsServer, error) {
	at, err := parseMetricsAddress(text)
	var listener net.Listener
	if err == nil {
		listener, err = at.listen()
	}
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	}
	at.port = listener.Addr().(*net.TCPAddr).Port
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	m := &metricsServer{
		registry: registry, meters: make(map[string]*meter), metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		address: at.String(),
	}
	m.count(policies)
	m.server = http.Server{
		Handler: m, ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout, MaxHeaderBytes: maxMetricsHeaderBytes,
	}
	m.server.SetKeepAlivesEnabled(false)
	go func() { _ = m.server.Serve(netutil.LimitListener(listener, maxMetricsConnections)) }()
	return m, nil
}

// count counts the calls of these policies from now on, and no longer shows those of others. A policy that replaces
// another one of its name continues its counts.
func (m *metricsServer) count(policies []*policy) {
	if m == nil {
		return
	}
	before := m.meters
	m.meters = make(map[string]*meter, len(policies))
	for _, counted := range policies {
		counted.meter = cmp.Or(before[counted.name], counted.meter, newMeter(counted.name))
		m.meters[counted.name] = counted.meter
		if before[counted.name] == nil {
			m.registry.MustRegister(counted.meter.collectors()...)
		}
	}
	for name, ended := range before {
		if m.meters[name] == nil {
			for _, collector := range ended.collectors() {
				m.registry.Unregister(collector)
			}
		}
	}
}

func (m *metricsServer) stop() {
	if m != nil {
		_ = m.server.Close()
	}
}

func parseMetricsAddress(text string) (address, error) {
	at, err := parseAddress(text)
	if err == nil && at.path != "" {
		err = errors.New("HOST:PORT is expected")
	}
	return at, err
}

// ServeHTTP answers GET /metrics.
func (m *metricsServer) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	switch {
	case request.URL.Path != metricsPath:
		http.Error(answer, "the metrics are at "+metricsPath, http.StatusNotFound)
	case request.Method != http.MethodGet && request.Method != http.MethodHead:
		http.Error(answer, "only GET and HEAD are served", http.StatusMethodNotAllowed)
	default:
		m.metrics.ServeHTTP(answer, request)
	}
}

func buildInfo() prometheus.Collector {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "admission_gateway_worker_build_info",
		Help:        "The SDK of the worker.",
		ConstLabels: prometheus.Labels{"sdk": "go", "version": sdkVersion(), "runtime": runtime.Version()},
	})
	build.Set(1)
	return build
}

// sdkVersion returns the version of this module in the program.
func sdkVersion() string {
	const module = "admission-gateway.io/worker"
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, required := range append(built.Deps, &built.Main) {
			if required.Path == module && required.Version != "" {
				return required.Version
			}
		}
	}
	return "devel"
}
