package worker

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
)

const (
	metricsPath = "/metrics"
	// metricsType is version 0.0.4 of Prometheus' text format.
	metricsType = "text/plain; version=0.0.4; charset=utf-8"
	// metricsTimeout bounds a request, and maxMetricsConnections their number: the port has no authentication.
	metricsTimeout        = 5 * time.Second
	maxMetricsConnections = 16
	maxMetricsHeaderBytes = 8192
)

// processStart is nearly the start of the process.
var processStart = time.Now()

// metricsServer serves the metrics of a worker over HTTP.
type metricsServer struct {
	policies []*policy
	server   http.Server
	address  string
}

// serveMetrics listens on HOST:PORT, and counts the calls of the policies from now on.
//
// The text format is written here: Prometheus' client library would add eight modules to each worker.
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
	for _, counted := range policies {
		if counted.meter == nil {
			counted.meter = &meter{}
		}
	}
	m := &metricsServer{policies: policies, address: at.String()}
	m.server = http.Server{
		Handler: m, ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout, MaxHeaderBytes: maxMetricsHeaderBytes,
	}
	m.server.SetKeepAlivesEnabled(false)
	go func() { _ = m.server.Serve(netutil.LimitListener(listener, maxMetricsConnections)) }()
	return m, nil
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
		answer.Header().Set("Content-Type", metricsType)
		_, _ = answer.Write(exposition(m.policies))
	}
}

// exposition returns the metrics in Prometheus' text format.
func exposition(policies []*policy) []byte {
	out := &bytes.Buffer{}
	family := func(name, kind, help string) {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}

	const build = "admission_gateway_worker_build_info"
	family(build, "gauge", "The SDK of the worker.")
	fmt.Fprintf(out, "%s{sdk=\"go\",version=%s,runtime=%s} 1\n", build, label(sdkVersion()), label(runtime.Version()))

	const reviews = "admission_gateway_worker_policy_reviews_total"
	family(reviews, "counter", "Reviews by outcome; error: the policy failed or exceeded its deadline.")
	for _, counted := range policies {
		for index, name := range resultNames {
			count := counted.meter.reviews[index].Load()
			fmt.Fprintf(out, "%s{policy=%s,outcome=%q} %d\n", reviews, label(counted.name), name, count)
		}
	}

	const inFlight = "admission_gateway_worker_policy_in_flight"
	family(inFlight, "gauge", "Reviews whose policy has begun and that have no answer yet.")
	for _, counted := range policies {
		fmt.Fprintf(out, "%s{policy=%s} %d\n", inFlight, label(counted.name), counted.meter.inFlight.Load())
	}

	const duration = "admission_gateway_worker_policy_duration_seconds"
	family(duration, "histogram", "Time from the begin of a policy to its answer.")
	for _, counted := range policies {
		policy, total := label(counted.name), uint64(0)
		for index, bound := range durationBounds {
			total += counted.meter.durations[index].Load()
			fmt.Fprintf(out, "%s_bucket{policy=%s,le=\"%s\"} %d\n", duration, policy, number(bound.Seconds()), total)
		}
		total += counted.meter.durations[len(durationBounds)].Load()
		seconds := time.Duration(counted.meter.nanos.Load()).Seconds()
		fmt.Fprintf(out, "%s_bucket{policy=%s,le=\"+Inf\"} %d\n", duration, policy, total)
		fmt.Fprintf(out, "%s_sum{policy=%s} %s\n%s_count{policy=%s} %d\n", duration, policy, number(seconds), duration, policy, total)
	}

	single := func(name, kind, help string, value float64) {
		family(name, kind, help)
		fmt.Fprintf(out, "%s %s\n", name, number(value))
	}
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		seconds := time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
		single("process_cpu_seconds_total", "counter", "CPU time of the process in seconds.", seconds)
	}
	if bytes, ok := residentBytes(); ok {
		single("process_resident_memory_bytes", "gauge", "Resident memory of the process in bytes.", bytes)
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		single("process_open_fds", "gauge", "Open file descriptors of the process.", float64(len(files)))
	}
	started := float64(processStart.UnixMilli()) / 1000
	single("process_start_time_seconds", "gauge", "Start of the process in seconds since 1970.", started)
	return out.Bytes()
}

// label returns a value for a label, escaped as the text format requires.
func label(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(text) + `"`
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

// residentBytes returns the resident memory; false where there is no /proc.
func residentBytes() (float64, bool) {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, ok := strings.Cut(string(status), "\nVmRSS:")
	if fields := strings.Fields(after); ok && len(fields) > 0 {
		kibibytes, err := strconv.ParseFloat(fields[0], 64)
		return kibibytes * 1024, err == nil
	}
	return 0, false
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
