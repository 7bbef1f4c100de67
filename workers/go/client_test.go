package worker

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// rawCalls returns the frames of calls whose messages of a mebibyte have arrived in part.
func rawCalls(t *testing.T, count, sent int) []byte {
	t.Helper()
	var text, block bytes.Buffer
	text.WriteString(http2.ClientPreface)
	framer, encoder := http2.NewFramer(&text, nil), hpack.NewEncoder(&block)
	_ = framer.WriteSettings()
	for number := range count {
		block.Reset()
		for _, field := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", pb.PolicyWorker_Review_FullMethodName}, {":authority", "a"},
			{"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		id := uint32(2*number + 1)
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		message := binary.BigEndian.AppendUint32([]byte{0}, 1<<20)
		message = append(message, make([]byte, sent-len(message))...)
		for len(message) > 0 {
			part := message[:min(len(message), 16_000)]
			_ = framer.WriteData(id, false, part)
			message = message[len(part):]
		}
	}
	return text.Bytes()
}

func (s *store) sum() (bytes, clients int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, len(s.clients)
}

func TestIncompleteMessagesCostTheirClientTheConnection(t *testing.T) {
	server := newBounded(t, newProbe())
	received := server.limits().received
	received.limit = 2 << 20
	honest := open(t, server.client(t))
	raw, err := net.Dial("tcp", server.address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	go func() { _, _ = raw.Write(rawCalls(t, 30, 60_000)) }()
	eventually(t, "incomplete messages are not counted", func() bool { total, _ := received.sum(); return total == 30*60_000 })
	honest.ask(asked(1, "look"))
	honest.verdicts(1)
	second, err := net.Dial("tcp", server.address)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	go func() { _, _ = second.Write(rawCalls(t, 10, 60_000)) }()
	_ = raw.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, raw); err != nil && !isReset(err) {
		t.Errorf("the connection that had most is open: %v", err)
	}
	eventually(t, "what is left is not that of the other", func() bool { total, _ := received.sum(); return total == 10*60_000 })
	honest.ask(asked(2, "look"))
	honest.verdicts(1)
	_ = second.Close()
	eventually(t, "a connection that has ended is counted", func() bool {
		total, clients := received.sum()
		return total == 0 && clients == 0
	})
}

func isReset(err error) bool {
	failed, ok := err.(net.Error)
	return ok && !failed.Timeout()
}

// However the bytes are cut, and whatever else comes with them.
func TestIncompleteMessagesAreCountedExactly(t *testing.T) {
	text := rawCalls(t, 5, 30_000)
	for seed := range int64(50) {
		random := rand.New(rand.NewSource(seed))
		near, far := net.Pipe()
		counted := newIncomplete(near, &client{Conn: near, closed: func() {}}, newStore("bytes", 1<<30))
		go func() {
			for rest := text; len(rest) > 0; {
				part := min(1+random.Intn(3000), len(rest))
				_, _ = far.Write(rest[:part])
				rest = rest[part:]
			}
			_ = far.Close()
		}()
		if _, err := io.Copy(io.Discard, counted); err != nil || counted.bytes != 5*30_000 {
			t.Fatalf("seed %d: %d bytes, %v", seed, counted.bytes, err)
		}
		var out bytes.Buffer
		_ = http2.NewFramer(&out, nil).WriteRSTStream(3, http2.ErrCodeCancel)
		counted.out.scan(out.Bytes(), func(of frame, _ []byte, isEnd bool) {
			if of.stream != 3 || !isEnd {
				t.Errorf("%v", of)
			}
			counted.drop(of.stream)
		})
		if counted.bytes != 4*30_000 {
			t.Errorf("%d bytes after an end", counted.bytes)
		}
	}
}

func TestAFullWorkerClosesAConnectionThatIsNotMissed(t *testing.T) {
	tested := &connections{limit: 4, open: make(map[*client]struct{})}
	add := func(rpcs int64, lastRead int64) *client {
		near, _ := net.Pipe()
		made := tested.add(near)
		made.rpcs.Store(rpcs)
		made.lastRead.Store(lastRead)
		return made
	}
	busy, waiting, old, young := add(2, 20), add(1, 1), add(0, 10), add(0, 11)
	for _, want := range []*client{old, young} {
		add(1, 30)
		if _, ok := tested.open[want]; ok || len(tested.open) != 4 {
			t.Errorf("another one was closed of %v", tested.open)
		}
	}
	add(1, 40)
	if _, ok := tested.open[waiting]; ok {
		t.Error("the one that has sent nothing for longest is open")
	}
	_ = busy.Close()
	if len(tested.open) != 3 {
		t.Errorf("%d are open", len(tested.open))
	}
}

func TestManyIdleConnectionsKeepNobodyOut(t *testing.T) {
	server := newBounded(t, newProbe())
	honest := open(t, server.client(t))
	honest.ask(asked(1, "allow"))
	honest.verdicts(1)
	for range maxConnections + 50 {
		idle, err := net.Dial("tcp", server.address)
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
	}
	honest.ask(asked(2, "allow"))
	honest.verdicts(1)
	if answer, err := review(soon(t), server.client(t), "allow", "{}"); err != nil || !answer.Allowed {
		t.Error(answer, err)
	}
}

func TestTheClientWithMostOpenCallsLosesOne(t *testing.T) {
	server := newBounded(t, newProbe())
	server.limits().rpcs.limit = 10
	greedy := server.client(t)
	ended := make(chan error, 20)
	for range 10 {
		stream := open(t, greedy)
		stream.ask(asked(1, "allow"))
		stream.verdicts(1)
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
	}
	honest := open(t, server.client(t))
	honest.ask(asked(1, "allow"))
	honest.verdicts(1)
	if err := wanted(t, ended); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if total, _ := server.limits().rpcs.sum(); total != 10 {
		t.Errorf("%d calls are open", total)
	}
}
