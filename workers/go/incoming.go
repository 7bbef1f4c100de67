package worker

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// maxBatchParts is the limit of the payloads and of the cancelled ids of a ReviewBatch.
const maxBatchParts = 4096

// incoming is a message that may be malformed. The gRPC library would answer INTERNAL before it calls the
// service, but a malformed message is an error of the client.
type incoming struct {
	message proto.Message
	err     error
	// excess says that it has too many elements.
	excess string
}

// problem returns the status for a malformed message; nil if it is valid.
func (i *incoming) problem() error {
	switch {
	case i.excess != "":
		return status.Error(codes.InvalidArgument, i.excess)
	case i.err == nil:
		return nil
	}
	name := i.message.ProtoReflect().Descriptor().Name()
	return status.Error(codes.InvalidArgument, fmt.Sprintf("not a %s: %v", name, i.err))
}

// messagePool has buffers for messages in several parts, of at most twice their size: the library clears a whole buffer for
// each message, and its own have 1 MiB for all messages of more than 32 KiB.
var messagePool = mem.NewTieredBufferPool(
	1<<14, 1<<15, 1<<16, 1<<17, 1<<18, 1<<19, 1<<20, 1<<21, 1<<22, maxMessageBytes,
)

// codec is the codec of the library, except that incoming records decoding errors.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	message, ok := into.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, into)
	}
	text := data.MaterializeToBuffer(messagePool)
	defer text.Free()
	if _, ok := message.message.(*pb.ReviewBatch); ok {
		if message.excess = excess(text.ReadOnlyData()); message.excess != "" {
			return nil
		}
	}
	message.err = proto.Unmarshal(text.ReadOnlyData(), message.message)
	return nil
}

// batchLimits are the most elements of the fields of a ReviewBatch, by their numbers.
var batchLimits = [...]struct {
	what  string
	limit int
}{1: {"payloads", maxBatchParts}, 2: {"calls", 2 * maxBatchParts}, 3: {"cancelled ids", maxBatchParts}, 4: {"parameters", maxParametersID}}

// excess returns which field of a ReviewBatch has too many elements, empty if none has. They are counted before they are
// decoded: 8 MiB of empty elements would take a hundred times as much.
func excess(text []byte) string {
	var counts [len(batchLimits)]int
	for len(text) > 0 {
		number, kind, length := protowire.ConsumeField(text)
		if length < 0 {
			break // The decoder says what is wrong.
		}
		if int(number) < len(batchLimits) {
			counts[number]++
			if number == 3 && kind == protowire.BytesType {
				counts[number] += packed(text[:length]) - 1
			}
		}
		text = text[length:]
	}
	for number, found := range counts {
		if bound := batchLimits[number]; found > bound.limit {
			return fmt.Sprintf("a ReviewBatch has %d %s, expected at most %d", found, bound.what, bound.limit)
		}
	}
	return ""
}

// packed returns how many varints a field of them has.
func packed(field []byte) (count int) {
	_, _, length := protowire.ConsumeTag(field)
	content, _ := protowire.ConsumeBytes(field[length:])
	for _, each := range content {
		if each < 0x80 {
			count++
		}
	}
	return count
}

// description is the service description, with methods that get their message as an incoming.
func description() *grpc.ServiceDesc {
	changed := pb.PolicyWorker_ServiceDesc
	changed.Methods = append([]grpc.MethodDesc(nil), changed.Methods...)
	for index := range changed.Methods {
		method := &changed.Methods[index]
		handler := method.Handler
		method.Handler = func(
			served any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			return handler(served, ctx, func(into any) error {
				request := &incoming{message: into.(proto.Message)}
				if err := read(request); err != nil {
					return err
				}
				return request.problem()
			}, interceptor)
		}
	}
	return &changed
}
