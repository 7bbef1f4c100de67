package main

import (
	"cmp"
	"math"
	"slices"
	"syscall"
	"time"
)

// What a report lists at most; counts are always of all.
const (
	maxKinds = 10
	maxTimes = 1000
)

// report is what is printed. Milliseconds of errors count from started_at, of latencies from when the create
// was begun (with --rate: was to begin). Percentiles are by nearest rank, 0 when nothing was created.
type report struct {
	Created       int         `json:"created"`        // begun after the warm-up and answered 2xx
	WarmupCreated int         `json:"warmup_created"` // begun in the warm-up and answered 2xx
	Errors        int         `json:"errors"`         // in the warm-up too
	ErrorKinds    []errorKind `json:"error_kinds"`    // the first ten to occur
	PerSecond     float64     `json:"per_second"`
	P50           float64     `json:"p50_ms"`
	P90           float64     `json:"p90_ms"`
	P99           float64     `json:"p99_ms"`
	Max           float64     `json:"max_ms"`
	Seconds       float64     `json:"seconds"` // from the end of the warm-up to the last answer
	CPUSeconds    float64     `json:"cpu_s"`   // of this program, all of its run
	StartedAt     time.Time   `json:"started_at"`
}

type errorKind struct {
	Status  int       `json:"status"` // 0: no answer came
	Message string    `json:"message"`
	Count   int       `json:"count"`
	AtMS    []float64 `json:"at_ms"` // when each came, the first thousand
}

func (l *load) report(clients []client) *report {
	r := &report{StartedAt: l.started.UTC()}
	var latencies []time.Duration
	var failures []failure
	last := l.measureFrom
	for _, c := range clients {
		r.WarmupCreated += c.warmup
		latencies = append(latencies, c.latencies...)
		failures = append(failures, c.failures...)
		if c.last.After(last) {
			last = c.last
		}
	}
	r.Created, r.Errors, r.ErrorKinds = len(latencies), len(failures), kinds(failures)
	r.Seconds = round(last.Sub(l.measureFrom).Seconds(), 3)
	if r.Created > 0 {
		r.PerSecond = round(float64(r.Created)/last.Sub(l.measureFrom).Seconds(), 1)
		slices.Sort(latencies)
		r.P50, r.P90, r.P99 = rank(latencies, 0.5), rank(latencies, 0.9), rank(latencies, 0.99)
		r.Max = rank(latencies, 1)
	}
	r.CPUSeconds = round(cpu().Seconds(), 3)
	return r
}

// kinds groups failures by status and message, in the order in which they first occurred.
func kinds(failures []failure) []errorKind {
	slices.SortFunc(failures, func(a, b failure) int { return cmp.Compare(a.at, b.at) })
	found := []errorKind{}
	for _, f := range failures {
		i := slices.IndexFunc(found, func(k errorKind) bool { return k.Status == f.status && k.Message == f.message })
		if i < 0 {
			if len(found) == maxKinds {
				continue
			}
			i = len(found)
			found = append(found, errorKind{Status: f.status, Message: f.message})
		}
		found[i].Count++
		if len(found[i].AtMS) < maxTimes {
			found[i].AtMS = append(found[i].AtMS, ms(f.at))
		}
	}
	return found
}

func rank(sorted []time.Duration, share float64) float64 {
	return ms(sorted[max(1, int(math.Ceil(share*float64(len(sorted)))))-1])
}

func ms(d time.Duration) float64 { return round(d.Seconds()*1000, 3) }

func round(value float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(value*scale) / scale
}

// cpu returns the CPU time of this process so far.
func cpu() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
