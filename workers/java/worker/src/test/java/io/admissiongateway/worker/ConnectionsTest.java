package io.admissiongateway.worker;

import static io.admissiongateway.worker.Gateway.batch;
import static io.admissiongateway.worker.Gateway.call;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Connections, open RPCs and messages that do not arrive completely cost others nothing. */
@Timeout(120)
final class ConnectionsTest {
    private static final int LONG = 60_000;
    private static final int MIB = 1024 * 1024;

    private final PolicyServer server = new PolicyServer().policy("allows", "", review -> {});
    private final List<AutoCloseable> opened = new ArrayList<>();
    private String address;

    @BeforeEach
    void start() throws Exception {
        address = server.start("127.0.0.1:0").get(0);
    }

    @AfterEach
    void stop() throws Exception {
        for (AutoCloseable each : opened) {
            each.close();
        }
        server.stop(Duration.ZERO);
    }

    private Gateway gateway() {
        Gateway gateway = new Gateway(address);
        opened.add(gateway);
        return gateway;
    }

    private Socket connect() throws IOException {
        Socket socket = new Socket("127.0.0.1", Integer.parseInt(address.substring(address.lastIndexOf(':') + 1)));
        opened.add(socket);
        return socket;
    }

    private static void answers(Gateway.Stream stream, long id) throws InterruptedException {
        stream.send(batch("{}").addCalls(call(id, "allows", LONG)));
        assertTrue(stream.verdict(id).getResponse().getAllowed());
    }

    @Test
    void manyIdleConnectionsKeepNobodyOut() throws Exception {
        Gateway.Stream honest = gateway().stream();
        answers(honest, 1);
        for (int count = 0; count < Connections.MAX_CONNECTIONS + 50; count++) {
            connect();
        }
        answers(honest, 2);
        assertTrue(gateway().review("allows", "{}").getAllowed());
    }

    @Test
    void theConnectionThatIsMissedLeastIsClosed() throws Exception {
        Connections tested = new Connections();
        InetAddress one = InetAddress.getByName("192.0.2.1");
        InetAddress other = InetAddress.getByName("192.0.2.2");
        Client silent = client(1, -10);
        Client idle = client(0, 20);
        Client idler = client(0, 10);
        tested.add(client(0, -20), other);
        tested.add(silent, one);
        tested.add(idle, one);
        tested.add(idler, one);
        for (int count = 4; count < Connections.MAX_CONNECTIONS; count++) {
            assertNull(tested.add(client(1, count), one));
        }
        for (Client expected : List.of(idler, idle, silent)) {
            assertSame(expected, tested.add(client(1, 9999), null));
        }
        Client leaving = client(0, 0);
        tested.add(leaving, one);
        tested.remove(leaving);
        assertNull(tested.add(client(1, 1), one));
        tested.shutdownGracefully();
    }

    private static Client client(int rpcs, long lastRead) {
        Client client = new Client();
        client.rpcs.set(rpcs);
        client.lastRead = lastRead;
        return client;
    }

    @Test
    void theClientWithMostOpenRpcsLosesOne() throws Exception {
        Store rpcs = server.limits().rpcs;
        rpcs.setLimit(10);
        Gateway greedy = gateway();
        List<Gateway.Stream> streams = new ArrayList<>();
        for (int count = 0; count < 10; count++) {
            streams.add(greedy.stream());
            answers(streams.get(count), 1);
        }
        Gateway.Stream honest = gateway().stream();
        answers(honest, 1);
        Status ended = null;
        for (long left = Gateway.PATIENCE.toMillis(); ended == null && left > 0; left--) {
            for (Gateway.Stream stream : streams) {
                ended = ended == null ? stream.end.poll() : ended;
            }
            Thread.sleep(1);
        }
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, ended.getCode());
        assertEquals("there are more than 10 open calls, most of them of this client", ended.getDescription());
        assertEquals(10, rpcs.total());
        answers(honest, 2);
    }

    @Test
    void incompleteMessagesAreCountedAndTheClientWithMostIsEnded() throws Exception {
        Store received = server.limits().received;
        received.setLimit(20 * MIB);
        Socket small = connect();
        send(small, 1, 3 * MIB);
        awaitTotal(received, 3 * MIB);
        Socket large = connect();
        send(large, 5, 3 * MIB);
        awaitTotal(received, 18 * MIB);
        Gateway.Stream honest = gateway().stream();
        answers(honest, 1);
        assertEquals(Set.of(), endedOn(large, 0));
        Socket third = connect();
        send(third, 1, 3 * MIB);
        assertEquals(1, endedOn(large, 1).size(), "the client that has most has lost nothing");
        awaitTotal(received, 18 * MIB);
        answers(honest, 2);
        for (Socket each : List.of(small, large, third)) {
            each.close();
        }
        awaitTotal(received, 0);
        awaitTotal(server.limits().rpcs, 1);
    }

    /** The sum is at least this, and not much more: each part that arrives counts with what it takes beside. */
    private static void awaitTotal(Store store, long expected) throws InterruptedException {
        for (long left = Gateway.PATIENCE.toMillis(); ; left--) {
            long total = store.total();
            if (total >= expected && total <= expected + expected / 8) {
                return;
            }
            assertTrue(left > 0, "the sum is " + total + ", expected " + expected);
            Thread.sleep(1);
        }
    }

    /** Begins RPCs with a message of 7 MiB each, of which only so many bytes are sent. */
    private static void send(Socket socket, int rpcs, int bytes) throws IOException {
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        out.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
        frame(out, 4, 0, 0, new byte[0], 0);
        for (int number = 0; number < rpcs; number++) {
            int id = 2 * number + 1;
            frame(out, 1, 4, id, headers(), headers().length);
            byte[] message = new byte[bytes];
            message[1] = 0;
            message[2] = 7 * MIB >> 16;
            for (int sent = 0; sent < bytes; sent += 16_384) {
                int length = Math.min(16_384, bytes - sent);
                byte[] part = Arrays.copyOfRange(message, sent, sent + length);
                frame(out, 0, 0, id, part, length);
                out.flush();
            }
        }
    }

    private static void frame(DataOutputStream out, int type, int flags, int id, byte[] content, int length)
            throws IOException {
        out.write(new byte[] {(byte) (length >> 16), (byte) (length >> 8), (byte) length, (byte) type, (byte) flags});
        out.writeInt(id);
        out.write(content, 0, length);
    }

    /** In HPACK, without its tables. */
    private static byte[] headers() throws IOException {
        ByteArrayOutputStream block = new ByteArrayOutputStream();
        String[] fields = {
            ":method", "POST", ":scheme", "http", ":path", "/" + WorkerService.NAME + "/Review", ":authority", "a",
            "content-type", "application/grpc", "te", "trailers"
        };
        for (int index = 0; index < fields.length; index++) {
            if (index % 2 == 0) {
                block.write(0);
            }
            block.write(fields[index].length());
            block.write(fields[index].getBytes(StandardCharsets.US_ASCII));
        }
        return block.toByteArray();
    }

    /** Reads until so many RPCs have ended, and returns their ids; with 0 what has come in. */
    private static Set<Integer> endedOn(Socket socket, int count) throws IOException {
        DataInputStream in = new DataInputStream(socket.getInputStream());
        socket.setSoTimeout((int) Gateway.PATIENCE.toMillis());
        Set<Integer> ended = new HashSet<>();
        while (ended.size() < count || count == 0 && in.available() > 0) {
            int length = in.readUnsignedShort() << 8 | in.readUnsignedByte();
            int type = in.readUnsignedByte();
            int flags = in.readUnsignedByte();
            int id = in.readInt();
            in.skipNBytes(length);
            if (type == 3 || type == 1 && (flags & 1) == 1) {
                ended.add(id);
            }
        }
        return ended;
    }
}
