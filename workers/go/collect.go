package worker

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// minGrowth is the growth of the heap between two collections, in bytes. The heap of a worker is small and mostly
	// garbage, so that it would be collected every 4 MB by default. A heap that is larger than that may double.
	minGrowth = 32 * 1024 * 1024
	// minGrowthPercent is the default of the Go runtime, and maxGrowthPercent is for a heap of 4 MB.
	minGrowthPercent, maxGrowthPercent = 100, 800
)

// growthPercent returns by how much a heap of so many live bytes may grow until the next collection.
func growthPercent(live uint64) int {
	return max(minGrowthPercent, int(min(maxGrowthPercent, minGrowth*100/max(1, live))))
}

// cycle is an object that each collection finalizes.
type cycle struct {
	percent int
	// sample is allocated once.
	sample []metrics.Sample
}

// collectAtGrowth adjusts the growth after each collection to what is live then.
func collectAtGrowth() {
	debug.SetGCPercent(maxGrowthPercent)
	runtime.SetFinalizer(&cycle{percent: maxGrowthPercent, sample: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}, (*cycle).ended)
}

func (c *cycle) ended() {
	metrics.Read(c.sample)
	// The call stops the program for a moment.
	if percent := growthPercent(c.sample[0].Value.Uint64()); percent != c.percent {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
	runtime.SetFinalizer(c, (*cycle).ended)
}
