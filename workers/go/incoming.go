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
	"google.golang.org/protobuf/proto"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// incoming is a message that may be malformed. The gRPC library would answer INTERNAL before it calls the
// service, but a malformed message is an error of the client.
type incoming struct {
	message proto.Message
	err     error
}

// problem returns the status for a malformed message; nil if it is valid.
func (i *incoming) problem() error {
	if i.err == nil {
		return nil
	}
	name := i.message.ProtoReflect().Descriptor().Name()
	return status.Error(codes.InvalidArgument, fmt.Sprintf("not a %s: %v", name, i.err))
}

// codec is the codec of the library, except that incoming records decoding errors.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	message, ok := into.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, into)
	}
	message.err = c.CodecV2.Unmarshal(data, message.message)
	return nil
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
