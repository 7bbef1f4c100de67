package worker

import (
	"encoding/binary"
	"net"
	"sync"
)

const (
	frameHeaderBytes   = 9
	prefaceBytes       = 24
	messageHeaderBytes = 5

	frameData, frameHeaders, frameReset = 0x0, 0x1, 0x3
	flagEndStream                       = 0x1
)

// incomplete is the plaintext of a connection, which counts the bytes of messages that have not arrived completely: the
// library keeps them, for each call up to the largest message, and tells nobody. Sources: RFC 9113, sections 4.1 and
// 6.1, and the Length-Prefixed-Message of gRPC over HTTP/2.
type incomplete struct {
	net.Conn
	in, out frames
	store   *store
	part    *part

	mu sync.Mutex
	// messages are by the id of the stream.
	messages map[uint32]*partial
	// last is the highest id so far.
	last uint32
	// bytes is the sum, and told is what the store knows.
	bytes, told int
}

// partial is the message that a stream is about to get.
type partial struct {
	header [messageHeaderBytes]byte
	// have is what has arrived of it, with its header.
	have int
}

func newIncomplete(conn net.Conn, of *client, received *store) *incomplete {
	made := &incomplete{Conn: conn, store: received, messages: make(map[uint32]*partial)}
	made.in.skip = prefaceBytes
	made.part = &part{of: of, end: func(error) { _ = of.Close() }}
	return made
}

func (i *incomplete) Read(into []byte) (int, error) {
	read, err := i.Conn.Read(into)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.in.scan(into[:read], func(frame frame, data []byte, isEnd bool) {
		switch {
		case frame.kind == frameData:
			i.take(frame.stream, data)
		case frame.kind == frameHeaders && isEnd && frame.stream > i.last:
			i.last = frame.stream
			i.messages[frame.stream] = &partial{}
		}
		if isEnd && (frame.kind == frameReset || frame.kind == frameData && frame.flags&flagEndStream != 0) {
			i.drop(frame.stream)
		}
	})
	if i.told != i.bytes {
		i.told = i.bytes
		i.store.set(i.part, i.bytes)
	}
	return read, err
}

func (i *incomplete) Write(text []byte) (int, error) {
	i.mu.Lock()
	i.out.scan(text, func(frame frame, _ []byte, isEnd bool) {
		isLast := frame.kind == frameHeaders || frame.kind == frameData
		if isEnd && (frame.kind == frameReset || isLast && frame.flags&flagEndStream != 0) {
			i.drop(frame.stream)
		}
	})
	i.mu.Unlock()
	return i.Conn.Write(text)
}

func (i *incomplete) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.messages)
	i.bytes = 0
	i.store.set(i.part, 0)
	return i.Conn.Close()
}

// take counts data of a stream; requires the mutex.
func (i *incomplete) take(stream uint32, data []byte) {
	message := i.messages[stream]
	if message == nil {
		return // the worker has ended the stream
	}
	i.bytes -= message.have
	for len(data) > 0 {
		if message.have < messageHeaderBytes {
			taken := copy(message.header[message.have:], data)
			message.have += taken
			data = data[taken:]
			if message.have < messageHeaderBytes {
				break
			}
		}
		length := messageHeaderBytes + int(binary.BigEndian.Uint32(message.header[1:]))
		taken := min(len(data), length-message.have)
		message.have += taken
		data = data[taken:]
		if message.have == length {
			message.have = 0
		}
	}
	i.bytes += message.have
}

// drop forgets a stream; requires the mutex.
func (i *incomplete) drop(stream uint32) {
	if message := i.messages[stream]; message != nil {
		i.bytes -= message.have
		delete(i.messages, stream)
	}
}

// frame is the header of a frame of HTTP/2.
type frame struct {
	kind, flags byte
	stream      uint32
}

// frames finds the frames in one direction of a connection.
type frames struct {
	// skip is what is left of the preface.
	skip   int
	header [frameHeaderBytes]byte
	have   int
	left   int
}

// scan calls found for each part of a frame; isEnd says that it is the last one.
func (f *frames) scan(text []byte, found func(of frame, part []byte, isEnd bool)) {
	skipped := min(f.skip, len(text))
	f.skip -= skipped
	text = text[skipped:]
	for len(text) > 0 {
		if f.have < frameHeaderBytes {
			taken := copy(f.header[f.have:], text)
			f.have += taken
			text = text[taken:]
			if f.have < frameHeaderBytes {
				return
			}
			f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
		}
		taken := min(f.left, len(text))
		f.left -= taken
		found(frame{
			kind: f.header[3], flags: f.header[4], stream: binary.BigEndian.Uint32(f.header[5:]) & (1<<31 - 1),
		}, text[:taken], f.left == 0)
		text = text[taken:]
		if f.left == 0 {
			f.have = 0
		}
	}
}
