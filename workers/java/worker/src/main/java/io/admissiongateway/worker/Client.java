package io.admissiongateway.worker;

import io.grpc.Attributes;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerTransportFilter;
import java.util.stream.Stream;

/** One connection, by which the bounds of a worker count. */
final class Client {
    private static final Attributes.Key<Client> ATTRIBUTE = Attributes.Key.create("client");
    private static final Context.Key<Client> CONTEXT = Context.key("client");

    /** By the ordinals of {@link Turns.Kind}, whose locks guard them. */
    final Turns.Share[] shares =
            Stream.generate(Turns.Share::new).limit(Turns.Kind.values().length).toArray(Turns.Share[]::new);

    /** Makes the client of each connection. */
    static final ServerTransportFilter FILTER =
            new ServerTransportFilter() {
                @Override
                public Attributes transportReady(Attributes attributes) {
                    return attributes.toBuilder().set(ATTRIBUTE, new Client()).build();
                }
            };

    /** Lets calls know their client. */
    static final ServerInterceptor INTERCEPTOR =
            new ServerInterceptor() {
                @Override
                public <Q, A> ServerCall.Listener<Q> interceptCall(
                        ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
                    Context context =
                            Context.current().withValue(CONTEXT, call.getAttributes().get(ATTRIBUTE));
                    return Contexts.interceptCall(context, call, headers, next);
                }
            };

    /** Returns the client of the present call. */
    static Client current() {
        return CONTEXT.get();
    }
}
