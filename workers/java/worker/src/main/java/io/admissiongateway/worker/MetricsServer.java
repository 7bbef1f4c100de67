package io.admissiongateway.worker;

import io.grpc.netty.shaded.io.netty.bootstrap.ServerBootstrap;
import io.grpc.netty.shaded.io.netty.buffer.Unpooled;
import io.grpc.netty.shaded.io.netty.channel.Channel;
import io.grpc.netty.shaded.io.netty.channel.ChannelFuture;
import io.grpc.netty.shaded.io.netty.channel.ChannelFutureListener;
import io.grpc.netty.shaded.io.netty.channel.ChannelHandlerContext;
import io.grpc.netty.shaded.io.netty.channel.ChannelInitializer;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.SimpleChannelInboundHandler;
import io.grpc.netty.shaded.io.netty.channel.nio.NioIoHandler;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioServerSocketChannel;
import io.grpc.netty.shaded.io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.grpc.netty.shaded.io.netty.handler.codec.http.FullHttpResponse;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpHeaderNames;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpHeaderValues;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpMethod;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpRequest;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpResponseStatus;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpServerCodec;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpVersion;
import io.grpc.netty.shaded.io.netty.handler.codec.http.QueryStringDecoder;
import io.grpc.netty.shaded.io.netty.util.concurrent.DefaultThreadFactory;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The metrics of a worker over HTTP: one request on each connection.
 *
 * <p>The server of the metrics library is that of the JDK, which bounds neither connections nor, without properties of
 * the whole process, the time of a request.
 */
final class MetricsServer {
    static final String PATH = "/metrics";

    private static final int REQUEST_SECONDS = 5;
    private static final int MAX_CONNECTIONS = 16;
    private static final int MAX_HEAD_BYTES = 8192;

    private final Metrics metrics;
    private final EventLoopGroup loop =
            new MultiThreadIoEventLoopGroup(
                    1, new DefaultThreadFactory("policy-metrics", true), NioIoHandler.newFactory());
    private final AtomicInteger open = new AtomicInteger();
    private final String address;

    MetricsServer(Address wanted, Metrics metrics) throws StartException {
        this.metrics = metrics;
        try {
            ChannelFuture bound =
                    new ServerBootstrap()
                            .group(loop)
                            .channel(NioServerSocketChannel.class)
                            .childHandler(
                                    new ChannelInitializer<>() {
                                        @Override
                                        protected void initChannel(Channel connection) {
                                            accept(connection);
                                        }
                                    })
                            .bind(wanted.claim())
                            .awaitUninterruptibly();
            if (!bound.isSuccess()) {
                throw new StartException(wanted + ": " + bound.cause().getMessage());
            }
            address = wanted.withPort(((InetSocketAddress) bound.channel().localAddress()).getPort()).toString();
        } catch (StartException problem) {
            stop();
            throw new StartException("--metrics-listen: " + problem.getMessage());
        }
    }

    /**
     * Returns the address that {@code --metrics-listen} names.
     *
     * @throws IllegalArgumentException if it is not HOST:PORT
     */
    static Address parse(String text) {
        Address address = Address.parse(text);
        if (address.isUnix()) {
            throw new IllegalArgumentException("HOST:PORT is expected");
        }
        return address;
    }

    String address() {
        return address;
    }

    void stop() {
        loop.shutdownGracefully(0, REQUEST_SECONDS, TimeUnit.SECONDS).awaitUninterruptibly();
    }

    private void accept(Channel connection) {
        var timeout = connection.eventLoop().schedule(() -> connection.close(), REQUEST_SECONDS, TimeUnit.SECONDS);
        connection
                .closeFuture()
                .addListener(
                        closed -> {
                            timeout.cancel(false);
                            open.decrementAndGet();
                        });
        if (open.incrementAndGet() > MAX_CONNECTIONS) {
            connection.close();
            return;
        }
        HttpServerCodec codec = new HttpServerCodec(MAX_HEAD_BYTES, MAX_HEAD_BYTES, MAX_HEAD_BYTES);
        connection.pipeline().addLast(codec, new Answers());
    }

    private final class Answers extends SimpleChannelInboundHandler<HttpRequest> {
        @Override
        protected void channelRead0(ChannelHandlerContext connection, HttpRequest request) throws Exception {
            if (request.decoderResult().isFailure()) {
                connection.close();
            } else {
                connection.writeAndFlush(answer(request)).addListener(ChannelFutureListener.CLOSE);
            }
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext connection, Throwable gone) {
            connection.close();
        }
    }

    private FullHttpResponse answer(HttpRequest request) throws Exception {
        if (!new QueryStringDecoder(request.uri()).path().equals(PATH)) {
            return answer(HttpResponseStatus.NOT_FOUND, "the metrics are at " + PATH + "\n");
        }
        if (!Set.of(HttpMethod.GET, HttpMethod.HEAD).contains(request.method())) {
            return answer(HttpResponseStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served\n");
        }
        return answer(HttpResponseStatus.OK, Metrics.TYPE, metrics.text());
    }

    private static FullHttpResponse answer(HttpResponseStatus status, String text) {
        return answer(status, "text/plain; charset=utf-8", text.getBytes(StandardCharsets.UTF_8));
    }

    private static FullHttpResponse answer(HttpResponseStatus status, String type, byte[] body) {
        var answer = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, Unpooled.wrappedBuffer(body));
        answer.headers()
                .set(HttpHeaderNames.CONTENT_TYPE, type)
                .set(HttpHeaderNames.CONTENT_LENGTH, body.length)
                .set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
        return answer;
    }
}
