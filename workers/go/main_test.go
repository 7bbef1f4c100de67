package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// asProgram makes the test's own program a worker.
const asProgram = "WORKER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "worker":
		newProbe().Main()
	case "greeting":
		greeting().Main()
	case "empty":
		NewServer().Main()
	}
	os.Exit(m.Run())
}

// program is a worker in a process of its own.
type program struct {
	*exec.Cmd
	t      *testing.T
	stderr *bufio.Reader
}

func start(t *testing.T, kind string, arguments ...string) *program {
	t.Helper()
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), asProgram+"="+kind)
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	return &program{command, t, bufio.NewReader(stderr)}
}

// status waits for the end and returns the exit status, with what it wrote.
func (p *program) status() (int, string) {
	p.t.Helper()
	text, _ := io.ReadAll(p.stderr)
	var failed *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &failed) {
		p.t.Fatal(err)
	}
	return p.ProcessState.ExitCode(), string(text)
}

// ready waits for the line that says so and returns a client.
func (p *program) ready() pb.PolicyWorkerClient {
	p.t.Helper()
	line, err := p.stderr.ReadString('\n')
	found := regexp.MustCompile(`^worker: serving 7 policies on (127\.0\.0\.1:[1-9][0-9]*)\n$`).FindStringSubmatch(line)
	if found == nil {
		p.t.Fatalf("%q, %v", line, err)
	}
	return pb.NewPolicyWorkerClient(dial(p.t, found[1], plaintext))
}

func TestTheProgramServesAndDrains(t *testing.T) {
	for _, number := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		running := start(t, "worker", "--listen", "127.0.0.1:0", "--grace", "20")
		client := running.ready()
		if _, err := review(soon(t), client, "allow", "{}"); err != nil {
			t.Error(err)
		}
		stream := open(t, client)
		stream.ask(asked(1, "allow"))
		stream.verdicts(1)
		if err := running.Process.Signal(number); err != nil {
			t.Fatal(err)
		}
		stream.notice()
		stream.CloseSend()
		if code, text := running.status(); code != 0 || text != "" {
			t.Error(code, text)
		}
	}
}

func TestTheSecondSignalEndsTheProgramAtOnce(t *testing.T) {
	running := start(t, "worker", "--listen=127.0.0.1:0")
	stream := open(t, running.ready())
	stream.ask(asked(1, "wait"), asked(2, "allow"))
	stream.verdicts(1)
	_ = running.Process.Signal(syscall.SIGTERM)
	stream.notice()
	_ = running.Process.Signal(syscall.SIGINT)
	if code, text := running.status(); code != 128+int(syscall.SIGINT) || text != "" {
		t.Error(code, text)
	}
}

func TestTheProgramEndsWhenTheGraceIsOver(t *testing.T) {
	running := start(t, "worker", "--listen", "127.0.0.1:0", "--grace", "0.05")
	client := running.ready()
	stream := open(t, client)
	stream.ask(asked(1, "deaf"), asked(2, "allow"))
	stream.verdicts(1)
	unary := make(chan error, 1)
	go func() {
		_, err := review(context.Background(), client, "deaf", "{}")
		unary <- err
	}()
	_ = running.Process.Signal(syscall.SIGTERM)
	if code, text := running.status(); code != 0 || text != "" {
		t.Error(code, text)
	}
	if err := wanted(t, unary); err == nil {
		t.Error("the call was answered")
	}
}

func TestTheProgramSaysWhyItCannotStart(t *testing.T) {
	if code, text := start(t, "empty").status(); code != 1 || !strings.HasPrefix(text, "worker: no policy is registered") {
		t.Error(code, text)
	}
	running := start(t, "worker", "--tls-cert", "/none/c", "--tls-key", "/none/k")
	if code, text := running.status(); code != 1 || text != "worker: /none/c: No such file or directory\n" {
		t.Error(code, text)
	}
	for _, arguments := range [][]string{
		{"--nothing"}, {"rest"}, {"--listen", "nowhere"}, {"--listen"}, {"--grace", "-1"}, {"--grace", "nan"}, {"--grace", "inf"},
		{"--tls-cert", "c"}, {"--client-ca", "c"}, {"--listen", "a:1", "--listen", "a:1"},
		{"--listen", "unix:/a", "--tls-cert", "c", "--tls-key", "k"},
	} {
		code, text := start(t, "worker", arguments...).status()
		if code != 2 || !strings.HasPrefix(text, "worker: ") || strings.Count(text, "\n") != 1 {
			t.Error(arguments, code, text)
		}
	}
}

func TestHelp(t *testing.T) {
	var stdout strings.Builder
	if code := newProbe().run([]string{"--help"}, &stdout, io.Discard); code != 0 || !strings.Contains(stdout.String(), "--listen ADDRESS") {
		t.Error(code, stdout.String())
	}
	for _, option := range []string{"--tls-cert", "--tls-key", "--client-ca", "--grace"} {
		if !strings.Contains(stdout.String(), option) {
			t.Error(fmt.Errorf("no word about %s", option))
		}
	}
}
