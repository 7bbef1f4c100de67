package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// defaultGrace is the gateway's default drain time, and less than the 30 s of a pod's grace period.
	defaultGrace = 10 * time.Second
	// collectAt is the growth of the heap between two collections, in percent. The heap of a worker is small and
	// mostly garbage, so that the default of 100 would collect every 4 MB.
	collectAt = 800
	// collectFrom is the memory from which garbage is collected whatever the growth: what the bounds let a worker keep
	// would take nine times as much otherwise.
	collectFrom = 1024 * 1024 * 1024
)

const usage = `Serves admission policies over gRPC.

  --listen ADDRESS    HOST:PORT or unix:PATH, repeatable; default ` + DefaultListen + `
  --tls-cert FILE     PEM certificate chain to serve with
  --tls-key FILE      its private key
  --client-ca FILE    let in only clients that it signed
  --metrics-listen HOST:PORT
                      serve Prometheus metrics over plain HTTP; off by default
  --grace SECONDS     for calls in flight when told to stop; default 10
` + help

const help = "  --help\n"

// Main serves as a program until SIGTERM or SIGINT, and exits: with 0 after a shutdown, 1 if the start fails,
// 2 after a usage error. The first signal drains, the second exits immediately.
func (s *Server) Main() {
	os.Exit(s.run(os.Args[1:], os.Stdout, os.Stderr))
}

// commandLine has the parsed arguments.
type commandLine struct {
	Options
	grace time.Duration
}

func (s *Server) run(arguments []string, stdout, stderr io.Writer) int {
	say := func(text string) { fmt.Fprintln(stderr, "worker: "+strings.ReplaceAll(text, "\n", " ")) }
	parsed, err := parseCommandLine(arguments, s.additions.define...)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, strings.TrimSuffix(usage, help)+s.additions.usage+help)
		return 0
	}
	if err != nil {
		say(err.Error())
		return 2
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	running, end := context.WithCancel(context.Background())
	defer end()
	if err := s.additions.prepare(running); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			say(line)
		}
		return 1
	}
	addresses, err := s.Start(parsed.Options)
	if err != nil {
		say(err.Error())
		return 1
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(collectFrom)
	}
	if at := s.MetricsAddress(); at != "" {
		say("metrics on http://" + at + metricsPath)
	}
	say(fmt.Sprintf("serving %d policies on %s", s.count(), strings.Join(addresses, ", ")))
	<-signals
	ctx, cancel := context.WithTimeout(context.Background(), parsed.grace)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		_ = s.Stop(ctx) // aborted calls report their own error
		close(stopped)
	}()
	select {
	case <-stopped:
		return 0
	case second := <-signals:
		return 128 + int(second.(syscall.Signal))
	}
}

func parseCommandLine(arguments []string, define ...func(*flag.FlagSet)) (commandLine, error) {
	parsed := commandLine{grace: defaultGrace}
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Func("listen", "", func(text string) error {
		_, err := parseAddress(text)
		parsed.Listen = append(parsed.Listen, text)
		return err
	})
	flags.StringVar(&parsed.CertFile, "tls-cert", "", "")
	flags.StringVar(&parsed.KeyFile, "tls-key", "", "")
	flags.StringVar(&parsed.ClientCAFile, "client-ca", "", "")
	flags.Func("metrics-listen", "", func(text string) error {
		_, err := parseMetricsAddress(text)
		parsed.MetricsListen = text
		return err
	})
	flags.Func("grace", "", func(text string) error {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds >= 0) || math.IsInf(seconds, 0) {
			return fmt.Errorf("%q is not a number of seconds", text)
		}
		parsed.grace = time.Duration(min(seconds*float64(time.Second), math.MaxInt64/2))
		return nil
	})
	for _, each := range define {
		each(flags)
	}
	if err := flags.Parse(arguments); err != nil {
		return parsed, err
	}
	return parsed, parsed.check(flags.Args())
}

func (c *commandLine) check(rest []string) error {
	isUnix := func(text string) bool { return strings.HasPrefix(text, "unix:") }
	sorted := slices.Sorted(slices.Values(c.Listen))
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unrecognized arguments: %s", strings.Join(rest, " "))
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("--tls-cert and --tls-key go together")
	case c.ClientCAFile != "" && c.CertFile == "":
		return errors.New("--client-ca needs --tls-cert and --tls-key")
	case c.CertFile != "" && slices.ContainsFunc(c.Listen, isUnix):
		return errors.New("TLS is for HOST:PORT; a unix: socket is guarded by the permissions of its folder")
	case len(slices.Compact(sorted)) != len(c.Listen):
		return errors.New("--listen names the same address twice")
	}
	return nil
}
