package io.admissiongateway.worker;

import com.google.protobuf.Message;
import io.grpc.MethodDescriptor.Marshaller;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoUtils;
import java.io.InputStream;

/**
 * A received message, or its decoding error. With an exception of a gRPC marshaller the client would get no details.
 *
 * @param message null if it is none
 * @param problem null if it is one
 */
record Received<T>(T message, String problem) {
    /** Returns a marshaller for messages like {@code example}. */
    static <T extends Message> Marshaller<Received<T>> marshaller(T example) {
        Marshaller<T> inner = ProtoUtils.marshaller(example);
        String name = example.getDescriptorForType().getName();
        return new Marshaller<>() {
            @Override
            public InputStream stream(Received<T> value) {
                return inner.stream(value.message());
            }

            @Override
            public Received<T> parse(InputStream stream) {
                try {
                    return new Received<>(inner.parse(stream), null);
                } catch (StatusRuntimeException problem) {
                    Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                    return new Received<>(null, "not a " + name + ": " + cause.getMessage());
                }
            }
        };
    }
}
