package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// durationBounds are the upper bounds of the duration histogram in seconds, the same in the SDKs of all languages.
var durationBounds = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
}

// meter counts the calls of one policy. A nil meter counts nothing.
type meter struct {
	allowed, denied, failed prometheus.Counter
	inFlight                prometheus.Gauge
	durations               prometheus.Histogram
}

func newMeter(policy string) *meter {
	reviews := func(outcome string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "admission_gateway_worker_policy_reviews_total",
			Help:        "Reviews by outcome; error: the policy failed or exceeded its deadline.",
			ConstLabels: prometheus.Labels{"policy": policy, "outcome": outcome},
		})
	}
	labels := prometheus.Labels{"policy": policy}
	return &meter{
		allowed: reviews("allowed"), denied: reviews("denied"), failed: reviews("error"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "admission_gateway_worker_policy_in_flight",
			Help:        "Reviews whose policy has begun and that have no answer yet.",
			ConstLabels: labels,
		}),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "admission_gateway_worker_policy_duration_seconds",
			Help:        "Time from the begin of a policy to its answer.",
			ConstLabels: labels,
			Buckets:     durationBounds,
		}),
	}
}

func (m *meter) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.allowed, m.denied, m.failed, m.inFlight, m.durations}
}

// begin counts a call in flight, and returns its start for end.
func (m *meter) begin() time.Time {
	if m == nil {
		return time.Time{}
	}
	m.inFlight.Inc()
	return time.Now()
}

// end counts the outcome of a call. The start is zero if its policy has not begun. A cancelled call has no outcome.
func (m *meter) end(start time.Time, ended outcome) {
	if m == nil {
		return
	}
	switch {
	case ended.err != nil && ended.err.Code == int32(codes.Canceled):
		m.cancel(start)
		return
	case ended.err != nil:
		m.failed.Inc()
	case ended.response.Allowed:
		m.allowed.Inc()
	default:
		m.denied.Inc()
	}
	if !start.IsZero() {
		m.durations.Observe(time.Since(start).Seconds())
		m.inFlight.Dec()
	}
}

// cancel counts a call as no longer in flight, if its policy has begun.
func (m *meter) cancel(start time.Time) {
	if m != nil && !start.IsZero() {
		m.inFlight.Dec()
	}
}
