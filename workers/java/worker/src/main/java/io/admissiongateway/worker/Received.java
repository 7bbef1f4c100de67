package io.admissiongateway.worker;

import admissiongateway.worker.v1.Worker.ReviewBatch;
import com.google.protobuf.DiscardUnknownFieldsParser;
import com.google.protobuf.Message;
import com.google.protobuf.Parser;
import io.grpc.MethodDescriptor.Marshaller;
import io.grpc.protobuf.ProtoUtils;
import java.io.IOException;
import java.io.InputStream;

/**
 * A received message, or its decoding error. With an exception of a gRPC marshaller the client would get no details.
 *
 * @param message null if it is none
 * @param problem null if it is one
 * @param size length of its bytes
 */
record Received<T>(T message, String problem, int size) {
    /** Returns a marshaller for messages like {@code example}. */
    static <T extends Message> Marshaller<Received<T>> marshaller(T example) {
        Marshaller<T> inner = ProtoUtils.marshaller(example);
        // Unknown fields would be kept, as objects of several times their length.
        Parser<T> parser = DiscardUnknownFieldsParser.wrap(parserOf(example));
        String name = example.getDescriptorForType().getName();
        return new Marshaller<>() {
            @Override
            public InputStream stream(Received<T> value) {
                return inner.stream(value.message());
            }

            @Override
            public Received<T> parse(InputStream stream) {
                try {
                    // The stream knows its length.
                    byte[] text = stream.readNBytes(stream.available());
                    String excess = example instanceof ReviewBatch ? BatchBounds.excess(text) : null;
                    return excess != null
                            ? new Received<>(null, excess, 0)
                            : new Received<>(parser.parseFrom(text), null, text.length);
                } catch (IOException problem) {
                    return new Received<>(null, "not a " + name + ": " + problem.getMessage(), 0);
                }
            }
        };
    }

    @SuppressWarnings("unchecked") // a message has the parser of its class
    private static <T extends Message> Parser<T> parserOf(T example) {
        return (Parser<T>) example.getParserForType();
    }
}
